"""Exact statistics of gaps that do not fit into memory, from two walks over them.

The first walk counts gaps in bins 1/4096 of their value wide. It tells in which bin
each order statistic lies, and the mean. The second counts the values of those bins
alone, one by one, so that a percentile is one of the gaps and not the edge of a bin.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stepscope.units import ms

Gaps = npt.NDArray[np.int64]
Counted = tuple[Gaps, Gaps]

#: A float's exponent and so many bits of its mantissa are its bin.
_MANTISSA_BITS = 12
_SHIFT = 52 - _MANTISSA_BITS
_ONE = 1023 << _MANTISSA_BITS
#: Up to 2^53 ns, a hundred days, integers are floats exactly.
_N_BINS = (53 << _MANTISSA_BITS) + 1
#: Gaps that are looked at together.
_BATCH = 1 << 18


class GapStatistics:
    """Mean, standard deviation and percentiles: ``count`` all, then ``pick`` all.

    Attributes:
        n: Gaps counted.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_N_BINS, np.int64)
        self._sum = 0
        self._squares = 0.0
        self._waiting: list[Gaps] = []
        self._n_waiting = 0
        self._wanted = np.zeros(_N_BINS, np.bool_)
        self._picked: Counted = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.n = 0

    def count(self, gaps: Gaps) -> None:
        """First walk: take gaps of nanoseconds, none below 0."""
        self._gather(gaps, last=False, second=False)

    def want(self, percentiles: Sequence[float]) -> None:
        """End the first walk; say which percentiles are asked for."""
        self._gather(np.zeros(0, np.int64), last=True, second=False)
        until = np.cumsum(self._counts)
        for p in percentiles if self.n else ():
            ranks = _ranks(self.n, p)[:2]
            self._wanted[np.searchsorted(until, ranks, "right")] = True

    def pick(self, gaps: Gaps) -> None:
        """Second walk: take the same gaps again, in any order."""
        self._gather(gaps, last=False, second=True)

    def finish(self) -> None:
        """End the second walk."""
        self._gather(np.zeros(0, np.int64), last=True, second=True)

    def _gather(self, gaps: Gaps, *, last: bool, second: bool) -> None:
        self._waiting.append(gaps)
        self._n_waiting += len(gaps)
        if self._n_waiting >= _BATCH or (last and self._n_waiting):
            batch = np.concatenate(self._waiting)
            self._waiting.clear()
            self._n_waiting = 0
            (self._pick_batch if second else self._count_batch)(batch)

    def _count_batch(self, gaps: Gaps) -> None:
        self._counts += np.bincount(_bins(gaps), minlength=_N_BINS)
        self._sum += int(gaps.sum())
        self.n += len(gaps)

    def _pick_batch(self, gaps: Gaps) -> None:
        self._squares += float(np.square(gaps - self._sum / self.n).sum())
        found = gaps[self._wanted[_bins(gaps)]]
        values, n = self._picked
        merged, place = np.unique(np.concatenate([values, found]), return_inverse=True)
        weights = np.concatenate([n, np.ones(len(found), np.int64)])
        # Sums of counts stay whole below 2^53.
        counts = np.bincount(place, weights, minlength=len(merged))
        self._picked = merged, counts.astype(np.int64)

    @property
    def mean_ms(self) -> float | None:
        """Mean, milliseconds; None: there is none."""
        return ms(self._sum / self.n) if self.n else None

    @property
    def std_ms(self) -> float | None:
        """Standard deviation of the population, milliseconds; None: there is none."""
        return ms(math.sqrt(self._squares / self.n)) if self.n else None

    def percentile_ms(self, p: float) -> float | None:
        """Return a percentile that was wanted, between order statistics linearly.

        Milliseconds; None: there is none. As ``numpy.percentile`` has it.
        """
        if not self.n:
            return None
        low, high, share = _ranks(self.n, p)
        below, above = ms(self._at(low)), ms(self._at(high))
        step = above - below
        return below + step * share if share < 0.5 else above - step * (1 - share)

    def _at(self, rank: int) -> int:
        """Return the gap with so many before it."""
        until = np.cumsum(self._counts)
        at = int(np.searchsorted(until, rank, "right"))
        before = int(until[at] - self._counts[at])
        values, n = self._picked
        own = _bins(values) == at
        place = np.searchsorted(np.cumsum(n[own]), rank - before, "right")
        return int(values[own][place])


def gaps_of(offsets: Iterable[bytes]) -> Iterable[Gaps]:
    """Yield the gaps between each request's chunks, from their offsets."""
    for data in offsets:
        yield np.diff(np.frombuffer(data, "<i8")).astype(np.int64, copy=False)


def _bins(gaps: Gaps) -> Gaps:
    """Return the bin of each gap: its leading bits as a float, ascending with it."""
    found: Gaps = gaps.astype(np.float64).view(np.int64) >> _SHIFT
    # 0 lies below the least exponent of a whole number.
    np.maximum(found - (_ONE - 1), 0, out=found)
    return found


def _ranks(n: int, p: float) -> tuple[int, int, float]:
    """Return the two order statistics around a percentile, and how far it lies on."""
    place = (n - 1) * p / 100
    low = math.floor(place)
    return low, min(low + 1, n - 1), place - low
