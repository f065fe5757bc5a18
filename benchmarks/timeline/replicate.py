"""Make a large trace out of a real one: the same events, again and again, later on.

Every copy has its stamps shifted by the span of the original and its correlation and
flow ids moved, so that launches keep their own operations and steps stay steps.
The layout of the text is that of the original, since layout decides a loader's speed.
"""

import gzip
import re
from pathlib import Path

import msgspec

_TS = re.compile(rb'("ts":\s*)(\d+)((?:\.\d+)?)')
_ID = re.compile(rb'("(?:correlation|id|External id|cbid)":\s*)(\d+)\b')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


class _Document(msgspec.Struct):
    events: msgspec.Raw = msgspec.field(name="traceEvents")


def replicate(source: Path, out: Path, least_bytes: int) -> int:
    """Write ``out`` with at least ``least_bytes``; a name ending in .gz compresses.

    Returns:
        Uncompressed size, bytes.
    """
    text = source.read_bytes()
    if text[:2] == b"\x1f\x8b":
        text = gzip.decompress(text)
    opened = _EVENTS.search(text)
    at = opened.end() if opened else text.index(b"[") + 1
    close = text.rindex(b"]")
    if opened:
        events = bytes(msgspec.json.decode(text, type=_Document).events)
        close = at - 1 + len(events) - 1
    head, body, tail = text[:at], text[at:close].rstrip(), text[close:]
    stamps = [int(found[2]) for found in _TS.finditer(body)]
    span_us = max(stamps) - min(stamps) + 1000
    ids = max(int(found[2]) for found in _ID.finditer(body)) + 1
    n_copies = max(1, -(-least_bytes // len(body)))
    written = len(head) + len(tail)
    with gzip.open(out, "wb", 6) if out.suffix == ".gz" else out.open("wb") as stream:
        stream.write(head)
        for copy in range(n_copies):
            moved = _shifted(body, copy * span_us, copy * ids)
            stream.write(moved if copy == 0 else b"," + moved)
            written += len(moved) + (copy > 0)
        stream.write(tail)
    return written


def _shifted(body: bytes, by_us: int, by_id: int) -> bytes:
    if not by_us:
        return body

    def stamp(found: re.Match[bytes]) -> bytes:
        return found[1] + str(int(found[2]) + by_us).encode() + found[3]

    def number(found: re.Match[bytes]) -> bytes:
        return found[1] + str(int(found[2]) + by_id).encode()

    return _ID.sub(number, _TS.sub(stamp, body))
