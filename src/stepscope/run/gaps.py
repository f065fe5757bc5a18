"""Exact statistics of gaps that need not fit into memory, from two walks over them.

A few are held. Of many the first walk counts gaps in bins 1/4096 of their value wide;
it tells in which bin each order statistic lies, and the mean. The second counts the
values of those bins alone, one by one, so that a percentile is one of the gaps, or lies
between two, and is not the edge of a bin.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stepscope.units import ms

Gaps = npt.NDArray[np.int64]
Counted = tuple[Gaps, Gaps]
#: Yields all gaps, in any pieces; called as often as they must be looked at.
Walk = Callable[[], Iterable[Gaps]]

#: A float's exponent and so many bits of its mantissa are its bin.
_MANTISSA_BITS = 12
_SHIFT = 52 - _MANTISSA_BITS
_ONE = 1023 << _MANTISSA_BITS
#: Up to 2^53 ns, a hundred days, integers are floats exactly.
_ZERO = 53 << _MANTISSA_BITS
#: Gaps that are looked at together; so many are held and not counted.
_BATCH = 1 << 18


class GapStatistics:
    """Mean, standard deviation and percentiles: ``count`` all, then ``pick`` all.

    Attributes:
        n: Gaps counted.
        total_ns: Their sum.
        least: The shortest; None: there is none.
        longest: The longest; None: there is none.
    """

    def __init__(self) -> None:
        self._held: list[Gaps] = []
        self._n_held = 0
        self._whole: Gaps | None = None
        self._counts: Gaps = np.zeros(0, np.int64)
        self._first_bin = 0
        self._until: Gaps = np.zeros(0, np.int64)
        self._wanted = np.zeros(0, np.bool_)
        self._picked: Counted = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.total_ns = 0
        self._squares = 0.0
        self.n = 0
        self.least: int | None = None
        self.longest: int | None = None

    def count(self, gaps: Gaps) -> None:
        """First walk: take gaps of nanoseconds."""
        if not len(gaps):
            return
        self._held.append(gaps)
        self._n_held += len(gaps)
        if self._n_held > _BATCH:
            self._count_held()

    def want(self, percentiles: Sequence[float]) -> None:
        """End the first walk; say which percentiles are asked for."""
        if not len(self._counts):
            self._whole = self._batch()
            self._survey(self._whole)
            return
        self._count_held()
        self._until = np.cumsum(self._counts)
        self._wanted = np.zeros(len(self._counts), np.bool_)
        for p in percentiles:
            ranks = _ranks(self.n, p)[:2]
            self._wanted[np.searchsorted(self._until, ranks, "right")] = True

    @property
    def walk_again(self) -> bool:
        """Whether a second walk is needed; ``pick`` is harmless where it is not."""
        return self._whole is None

    def pick(self, gaps: Gaps) -> None:
        """Second walk: take the same gaps again, in any order."""
        if self._whole is not None or not len(gaps):
            return
        self._held.append(gaps)
        self._n_held += len(gaps)
        if self._n_held > _BATCH:
            self._pick_held()

    def finish(self) -> None:
        """End the second walk."""
        if self._whole is None:
            self._pick_held()

    def _batch(self) -> Gaps:
        if not self._held:
            return np.zeros(0, np.int64)
        batch = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        self._held, self._n_held = [], 0
        return batch

    def _survey(self, gaps: Gaps) -> None:
        if not len(gaps):
            return
        least, longest = int(gaps.min()), int(gaps.max())
        self.least = least if self.least is None else min(self.least, least)
        self.longest = longest if self.longest is None else max(self.longest, longest)
        self.total_ns += int(gaps.sum())
        self.n += len(gaps)

    def _count_held(self) -> None:
        gaps = self._batch()
        if not len(gaps):
            return
        self._survey(gaps)
        bins = _bins(gaps)
        # Bins are kept from the first to the last that holds something.
        first, end = int(bins.min()), int(bins.max()) + 1
        if len(self._counts):
            first = min(first, self._first_bin)
            end = max(end, self._first_bin + len(self._counts))
        counts = np.bincount(bins - first, minlength=end - first)
        own = self._first_bin - first
        counts[own : own + len(self._counts)] += self._counts
        self._counts, self._first_bin = counts, first

    def _pick_held(self) -> None:
        gaps = self._batch()
        if not len(gaps):
            return
        self._squares += float(np.square(gaps - self.total_ns / self.n).sum())
        found = gaps[self._wanted[_bins(gaps) - self._first_bin]]
        values, n = self._picked
        merged, place = np.unique(np.concatenate([values, found]), return_inverse=True)
        weights = np.concatenate([n, np.ones(len(found), np.int64)])
        # Sums of counts stay whole below 2^53.
        counts = np.bincount(place, weights, minlength=len(merged))
        self._picked = merged, counts.astype(np.int64)

    @property
    def mean_ns(self) -> float | None:
        """Mean, nanoseconds; None: there is none."""
        return self.total_ns / self.n if self.n else None

    @property
    def mean_ms(self) -> float | None:
        """Mean, milliseconds; None: there is none."""
        return None if self.mean_ns is None else ms(self.mean_ns)

    @property
    def std_ms(self) -> float | None:
        """Standard deviation of the population, milliseconds; None: there is none."""
        if not self.n:
            return None
        if self._whole is not None:
            return ms(float(self._whole.std()))
        return ms(math.sqrt(self._squares / self.n))

    def percentile_ms(self, p: float) -> float | None:
        """Return a percentile that was wanted, milliseconds; None: there is none."""
        found = self.percentile_ns(p)
        return None if found is None else ms(found)

    def percentile_ns(self, p: float) -> float | None:
        """Return a percentile that was wanted, between order statistics linearly.

        Nanoseconds; None: there is none. As ``numpy.percentile`` has it.
        """
        if not self.n:
            return None
        if self._whole is not None:
            return float(np.percentile(self._whole, p))
        low, high, share = _ranks(self.n, p)
        below, above = self._at(low), self._at(high)
        step = above - below
        return below + step * share if share < 0.5 else above - step * (1 - share)

    def _at(self, rank: int) -> int:
        """Return the gap with so many before it."""
        at = int(np.searchsorted(self._until, rank, "right"))
        before = int(self._until[at] - self._counts[at])
        values, n = self._picked
        own = _bins(values) - self._first_bin == at
        place = np.searchsorted(np.cumsum(n[own]), rank - before, "right")
        return int(values[own][place])


def walked(walk: Walk, percentiles: Sequence[float]) -> GapStatistics:
    """Return the statistics of all gaps, walking as often as they need it.

    Args:
        walk: Yields the same gaps at each call.
        percentiles: What will be asked for.
    """
    found = GapStatistics()
    for gaps in walk():
        found.count(gaps)
    found.want(percentiles)
    if found.walk_again:
        for gaps in walk():
            found.pick(gaps)
        found.finish()
    return found


def gaps_of(offsets: Iterable[bytes]) -> Iterable[Gaps]:
    """Yield the gaps between each request's chunks, from their offsets."""
    for data in offsets:
        yield np.diff(np.frombuffer(data, "<i8")).astype(np.int64, copy=False)


def _bins(gaps: Gaps) -> Gaps:
    """Return the bin of each gap: its leading bits as a float, ascending with it."""
    found: Gaps = np.abs(gaps).astype(np.float64).view(np.int64) >> _SHIFT
    # 0 lies below the least exponent of a whole number.
    np.maximum(found - (_ONE - 1), 0, out=found)
    # Foreign stamps may run backwards.
    signed: Gaps = np.where(gaps < 0, -found, found)
    return signed + _ZERO


def _ranks(n: int, p: float) -> tuple[int, int, float]:
    """Return the two order statistics around a percentile, and how far it lies on."""
    place = (n - 1) * p / 100
    low = math.floor(place)
    return low, min(low + 1, n - 1), place - low
