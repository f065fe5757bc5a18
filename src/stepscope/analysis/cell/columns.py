"""The requests of a cell as columns, so that 100,000 of them cost nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stepscope.run.requests import Request

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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
        chunk_bytes: Chunk offsets after ``sent`` of all requests, joined.
        n_offsets: How many offsets each request has.
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
    chunk_bytes: bytes
    n_offsets: Ints
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

    @cached_property
    def offsets(self) -> Ints:
        """Chunk arrivals after each request's sending, int64[sum(n_offsets)]."""
        return np.frombuffer(self.chunk_bytes, dtype="<i8").astype(np.int64)

    @cached_property
    def _follows(self) -> Bools:
        """Whether an offset follows another of the same, successful request."""
        follows = np.ones(self.offsets.size, np.bool_)
        begins = np.cumsum(self.n_offsets) - self.n_offsets
        follows[begins[self.n_offsets > 0]] = False
        return follows & np.repeat(self.ok, self.n_offsets)

    @cached_property
    def gaps_ns(self) -> Ints:
        """Gaps between consecutive chunks of one request, successful ones pooled."""
        if self.offsets.size < 2:
            return np.empty(0, np.int64)
        gaps: Ints = np.diff(self.offsets)[self._follows[1:]]
        return gaps

    @property
    def gap_ends_ns(self) -> Ints:
        """The instants at which ``gaps_ns`` end, in the same order."""
        ends: Ints = self.arrivals_ns[self._follows]
        return ends

    @cached_property
    def arrivals_ns(self) -> Ints:
        """Arrival instants of all chunks, in no order."""
        arrivals: Ints = self.offsets + np.repeat(self.sent, self.n_offsets)
        return arrivals

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


def columns(requests: tuple[Request, ...]) -> Columns:
    """Return the requests as columns, in order of sending.

    Args:
        requests: All requests of a cell, failed ones too.
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
    chunks = [row.chunk_offsets_ns for row in rows]
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
        chunk_bytes=b"".join(chunks),
        n_offsets=np.fromiter((len(c) // 8 for c in chunks), np.int64, n),
        due=(
            ints(lambda row: row.due_at_ns)
            if any(row.intended_at_ns is not None for row in rows)
            else None
        ),
    )
