"""Durations gathered by the million in bounded memory: a histogram 1 % wide.

Without numpy, which a client process has no other use for: it would take 13 MB of each.
"""

import math
import struct
from array import array
from bisect import bisect_right
from collections import Counter
from itertools import accumulate, repeat

_LOWEST_NS, _HIGHEST_NS = 1_000, 1_000_000_000_000
_SPAN = _HIGHEST_NS / _LOWEST_NS
_N_EDGES = round(math.log(_SPAN) / math.log(1.01)) + 1
#: Bin edges, each 1 % above the one before.
_EDGES = [_LOWEST_NS * math.pow(_SPAN, i / (_N_EDGES - 1)) for i in range(_N_EDGES)]
#: The same for whole nanoseconds: one is not below an edge that it reaches.
_STEPS = [math.ceil(edge) for edge in _EDGES]
_N_BINS = _N_EDGES + 1
_STATE = struct.Struct(f"<{2 + _N_BINS}q")


class Spread:
    """A set of durations in nanoseconds; mean and maximum exact, quantiles to 1 %.

    ``add`` is the array's own append, because it is called once a read.
    """

    __slots__ = ("_buffer", "_counts", "_max", "_sum", "add")

    def __init__(self) -> None:
        self._buffer: array[int] = array("q")
        self._counts: array[int] = array("q", bytes(8 * _N_BINS))
        self._sum = 0
        self._max = 0
        self.add = self._buffer.append

    def fold(self) -> None:
        """Move what was added into the histogram, so that memory stays bounded.

        It takes 0.2 us a duration and holds up the loop so long: call it often.
        """
        buffer = self._buffer
        if not buffer:
            return
        self._sum += sum(buffer)
        self._max = max(self._max, *buffer)
        for at, n in Counter(map(bisect_right, repeat(_STEPS), buffer)).items():
            self._counts[at] += n
        del buffer[:]

    def merge(self, other: bytes) -> None:
        """Take in what another's ``to_bytes`` gave."""
        total, most, *counts = _STATE.unpack(other)
        self._sum += total
        self._max = max(self._max, most)
        for at, n in enumerate(counts):
            self._counts[at] += n

    def to_bytes(self) -> bytes:
        """Return the whole state as little-endian int64: sum, maximum, counts."""
        self.fold()
        return _STATE.pack(self._sum, self._max, *self._counts)

    @property
    def n(self) -> int:
        """Durations in the histogram."""
        self.fold()
        return sum(self._counts)

    @property
    def mean_ns(self) -> float | None:
        """Mean, nanoseconds; None when it is empty."""
        n = self.n
        return self._sum / n if n else None

    @property
    def max_ns(self) -> int | None:
        """Maximum, nanoseconds; None when it is empty."""
        return self._max if self.n else None

    def quantile_ns(self, q: float) -> float | None:
        """Return the upper edge of the bin that holds quantile ``q`` (0 to 1).

        Never above the maximum; None when it is empty.
        """
        n = self.n
        if not n:
            return None
        rank = max(1, math.ceil(q * n))
        below = accumulate(self._counts)
        at = next(i for i, until in enumerate(below) if until >= rank)
        return min(_EDGES[min(at, _N_EDGES - 1)], float(self._max))
