"""The requests of a cell as columns, so that 100,000 of them cost nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stepscope.analysis.cell.chunks import Bools, Chunks, Ints, Piece
from stepscope.run.chunks import ChunkTimes
from stepscope.run.requests import Request

Floats = npt.NDArray[np.float64]
#: So many chunks are one piece, which is kept; of more, pieces of this size are made
#: anew at each walk.
_PIECE, _PART = 1 << 20, 1 << 18


@dataclass(frozen=True)
class Columns:
    """Requests of one cell in order of sending; instants in nanoseconds.

    Attributes:
        sent: When each was sent, int64[n].
        first: First content; where ``has_content`` is False it repeats ``sent``.
        last: Last content; where ``has_content`` is False it repeats ``sent``.
        left: When it left the flight: last content where it succeeded, the end of
            the response or of the attempt where it failed.
        has_content: Whether a first and a last content instant are known.
        ok: Whether it succeeded.
        tokens: Output tokens; 0 where ``has_tokens`` is False.
        has_tokens: Whether the server said how many.
        asked: Output tokens asked for; 0 where unknown.
        said_stop: Whether the server gave ``stop`` as the reason for its end.
        n_chunks: Content chunks.
        index: Position in the prompt order.
        chunks: When their chunks came.
        due: When each was to be sent by the schedule of an open loop; None: as they
            were sent.
    """

    sent: Ints
    first: Ints
    last: Ints
    left: Ints
    has_content: Bools
    ok: Bools
    tokens: Ints
    has_tokens: Bools
    asked: Ints
    said_stop: Bools
    n_chunks: Ints
    index: Ints
    chunks: Chunks
    due: Ints | None = None

    @property
    def due_at(self) -> Ints:
        """When each was to be sent: latencies count from it."""
        return self.sent if self.due is None else self.due

    @property
    def n(self) -> int:
        """Return the number of requests."""
        return len(self.sent)

    @cached_property
    def timed(self) -> Bools:
        """Successful requests with both content instants: they have latencies."""
        return self.ok & self.has_content

    @cached_property
    def counted(self) -> Bools:
        """Timed requests with at least two output tokens: they have a TPOT."""
        return self.timed & self.has_tokens & (self.tokens >= 2)

    def ttft_ns(self) -> Ints:
        """When it was due to first content, of timed requests."""
        value: Ints = (self.first - self.due_at)[self.timed]
        return value

    def e2el_ns(self) -> Ints:
        """When it was due to last content, of timed requests."""
        value: Ints = (self.last - self.due_at)[self.timed]
        return value

    def tpot_ns(self) -> Floats:
        """Last minus first content over tokens less one, of counted requests."""
        decode = (self.last - self.first)[self.counted]
        value: Floats = decode / (self.tokens[self.counted] - 1)
        return value


def columns(requests: tuple[Request, ...], chunks: ChunkTimes | None = None) -> Columns:
    """Return the requests as columns, in order of sending.

    Args:
        requests: All requests of a cell, failed ones too.
        chunks: Their chunk times where the requests do not hold them.
    """
    rows = sorted(requests, key=lambda request: request.sent_at_ns)
    n = len(rows)

    def ints(value: Callable[[Request], int]) -> Ints:
        return np.fromiter((value(row) for row in rows), np.int64, n)

    def flags(value: Callable[[Request], bool]) -> Bools:
        return np.fromiter((value(row) for row in rows), np.bool_, n)

    sent = ints(lambda row: row.sent_at_ns)
    ok = flags(lambda row: row.failure is None)
    has_content = flags(
        lambda row: (
            row.first_content_at_ns is not None and row.last_content_at_ns is not None
        )
    )
    first = ints(lambda row: row.first_content_at_ns or row.sent_at_ns)
    last = ints(lambda row: row.last_content_at_ns or row.sent_at_ns)
    ended = ints(lambda row: row.ended_at_ns)
    return Columns(
        sent=sent,
        first=np.where(has_content, first, sent),
        last=np.where(has_content, last, sent),
        left=np.where(ok & has_content, last, ended),
        has_content=has_content,
        ok=ok,
        tokens=ints(lambda row: row.output_tokens or 0),
        has_tokens=flags(lambda row: row.output_tokens is not None),
        asked=ints(lambda row: row.requested_output_tokens or 0),
        said_stop=flags(lambda row: row.finish_reason == "stop"),
        n_chunks=ints(lambda row: row.n_chunks),
        index=ints(lambda row: row.index),
        chunks=_held(rows) if chunks is None else _kept(requests, chunks),
        due=(
            ints(lambda row: row.due_at_ns)
            if any(row.intended_at_ns is not None for row in rows)
            else None
        ),
    )


def _held(rows: Sequence[Request]) -> Chunks:
    """Return the chunks that the requests hold; of few, one piece that is kept."""
    n = sum(len(row.chunk_offsets_ns) for row in rows) // 8
    if n <= _PIECE:
        whole = (_piece(rows),)
        return Chunks(n, lambda: iter(whole))

    def pieces() -> Iterator[Piece]:
        begin = size = 0
        for end, row in enumerate(rows, 1):
            size += len(row.chunk_offsets_ns) // 8
            if size >= _PART or end == len(rows):
                yield _piece(rows[begin:end])
                begin, size = end, 0

    return Chunks(n, pieces)


def _piece(rows: Sequence[Request]) -> Piece:
    n, raw = len(rows), [row.chunk_offsets_ns for row in rows]
    return Piece(
        sent=np.fromiter((row.sent_at_ns for row in rows), np.int64, n),
        ok=np.fromiter((row.failure is None for row in rows), np.bool_, n),
        n_offsets=np.fromiter((len(one) // 8 for one in raw), np.int64, n),
        offsets=np.frombuffer(b"".join(raw), dtype="<i8").astype(np.int64),
    )


def _kept(requests: Sequence[Request], chunks: ChunkTimes) -> Chunks:
    n = len(requests)
    sent = np.fromiter((row.sent_at_ns for row in requests), np.int64, n)
    ok = np.fromiter((row.failure is None for row in requests), np.bool_, n)

    def pieces() -> Iterator[Piece]:
        at = 0
        for n_offsets, offsets in chunks.pieces():
            ends = np.concatenate(([0], np.cumsum(n_offsets)))
            cuts = np.searchsorted(ends, np.arange(0, ends[-1], _PART)[1:])
            for begin, end in pairwise((0, *map(int, cuts), len(n_offsets))):
                here = slice(at + begin, at + end)
                part = offsets[ends[begin] : ends[end]]
                yield Piece(sent[here], ok[here], n_offsets[begin:end], part)
            at += len(n_offsets)

    return Chunks(chunks.n, pieces)
