"""Chosen entries on their way from the parent to its workers: a file of frames.

A worker reads it once and keeps its own entries, so that no process holds all of a
large file and none reads the data set itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from stepscope.load.datasets.items import Item
from stepscope.run.frames import frame, payloads

_NAME = "prompts.items"


def hand_over(folder: Path, items: Sequence[Item]) -> Path:
    """Write the entries into ``folder`` and return the file."""
    path = folder / _NAME
    encode = msgspec.msgpack.encode
    with path.open("wb") as file:
        for item in items:
            file.write(frame(encode(item)))
    return path


def handed_over(path: str) -> Iterator[Item]:
    """Yield the entries in their order."""
    decode = msgspec.msgpack.Decoder(Item).decode
    for payload in payloads(Path(path).read_bytes()):
        yield decode(payload)
