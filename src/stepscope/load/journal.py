"""Reading back what the workers wrote, one record at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from stepscope.run.frames import frame, payloads
from stepscope.run.requests import Request

T = TypeVar("T")

_HEAD_BYTES = len(frame(b""))
_READ_BYTES = 1 << 18


class Stamps(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that a second reading needs; the rest is passed over.

    Attributes as of ``Request``.
    """

    sent_at_ns: int
    ended_at_ns: int
    last_content_at_ns: int | None = None
    output_tokens: int | None = None
    n_chunks: int = 0
    chunk_offsets_ns: bytes = b""
    failure: str | None = None


class Recorded(Generic[T]):
    """The requests of a cell, read from its journals each time they are walked.

    A cell of many tokens does not fit into memory; one request does. A frame that a
    kill cut short, and what follows it in its journal, is left out.

    Args:
        journal_dir: Where the journals lie.
        kind: ``Request``, or ``Stamps`` for less.
    """

    def __init__(self, journal_dir: Path, kind: type[T]) -> None:
        self._paths = journals(journal_dir)
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def __iter__(self) -> Iterator[T]:
        """Walk all journals, in the order in which requests ended in each."""
        for path in self._paths:
            for payload in _payloads(path):
                yield self._decode(payload)


def journals(journal_dir: Path, kind: str = "requests") -> list[Path]:
    """Return the journals of a cell, of ``requests`` or of ``texts``."""
    return sorted(journal_dir.glob(f"{kind}-*.journal"))


def read_requests(journal_dir: Path) -> tuple[Request, ...]:
    """Return every request that ended, in order of sending; all in memory."""
    found = Recorded(journal_dir, Request)
    return tuple(sorted(found, key=lambda r: (r.sent_at_ns, r.index)))


def read_texts(journal_dir: Path) -> dict[int, str]:
    """Return the text of each answer by request index."""
    decode = msgspec.msgpack.Decoder(tuple[int, str]).decode
    return dict(
        decode(payload)
        for path in journals(journal_dir, "texts")
        for payload in _payloads(path)
    )


def _payloads(path: Path) -> Iterator[bytes]:
    """Yield the payloads of all good frames, holding little more than the longest.

    An empty one ends them: no record is empty, but a file system that lost power may
    leave zeros, which look like empty frames.
    """
    left, rest = path.stat().st_size, b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            left -= len(block)
            rest += block
            n_used = 0
            for payload in payloads(rest):
                if not payload:
                    return
                n_used += _HEAD_BYTES + len(payload)
                yield payload
            rest = rest[n_used:]
            if not _goes_on(rest, left):
                return


def _goes_on(rest: bytes, n_unread: int) -> bool:
    """Return whether bytes after the good frames may be the beginning of another."""
    if len(rest) < _HEAD_BYTES:
        return True
    ends_at = _HEAD_BYTES + int.from_bytes(rest[:4], "little")
    # One that is here whole and was not taken is damaged; one that ends behind the
    # journal was cut.
    return len(rest) < ends_at <= len(rest) + n_unread
