"""Durations gathered by the million in bounded memory: a histogram 1 % wide."""

from array import array

import numpy as np
import numpy.typing as npt

_LOWEST_NS, _HIGHEST_NS = 1_000, 1_000_000_000_000
#: Bin edges, each 1 % above the one before.
_N_BINS = round(np.log(_HIGHEST_NS / _LOWEST_NS) / np.log(1.01)) + 2
_EDGES: npt.NDArray[np.float64] = np.geomspace(_LOWEST_NS, _HIGHEST_NS, _N_BINS - 1)


class Spread:
    """A set of durations in nanoseconds; mean and maximum exact, quantiles to 1 %.

    ``add`` is the array's own append, because it is called once a read.
    """

    __slots__ = ("_buffer", "_counts", "_max", "_sum", "add")

    def __init__(self) -> None:
        self._buffer: array[int] = array("q")
        self._counts: npt.NDArray[np.int64] = np.zeros(_N_BINS, np.int64)
        self._sum = 0
        self._max = 0
        self.add = self._buffer.append

    def fold(self) -> None:
        """Move what was added into the histogram, so that memory stays bounded."""
        if not self._buffer:
            return
        values = np.array(self._buffer, np.int64)
        self._sum += int(values.sum())
        self._max = max(self._max, int(values.max()))
        bins = np.searchsorted(_EDGES, values, side="right")
        self._counts += np.bincount(bins, minlength=_N_BINS)
        del self._buffer[:]

    def merge(self, other: bytes) -> None:
        """Take in what another's ``to_bytes`` gave."""
        head, counts = (
            np.frombuffer(other, "<i8", 2),
            np.frombuffer(other, "<i8", -1, 16),
        )
        self._sum += int(head[0])
        self._max = max(self._max, int(head[1]))
        self._counts += counts

    def to_bytes(self) -> bytes:
        """Return the whole state as little-endian int64: sum, maximum, counts."""
        self.fold()
        head = np.array([self._sum, self._max], "<i8")
        return head.tobytes() + self._counts.astype("<i8").tobytes()

    @property
    def n(self) -> int:
        """Durations in the histogram."""
        self.fold()
        return int(self._counts.sum())

    @property
    def mean_ns(self) -> float | None:
        """Mean, nanoseconds; None when it is empty."""
        return self._sum / self.n if self.n else None

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
        rank = max(1, int(np.ceil(q * n)))
        at = int(np.searchsorted(np.cumsum(self._counts), rank))
        edge = float(_EDGES[min(at, len(_EDGES) - 1)])
        return min(edge, float(self._max))
