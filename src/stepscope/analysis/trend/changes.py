"""Where the level of a series shifts: a scan over splits, judged by permutation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import stats

#: Fewer runs than this say nothing about when a level moved.
LEAST_RUNS = 20
#: Runs on each side of a change.
_LEAST_SIDE = 4
#: Random orders, and the most of them: so many that a chance of a tenth of what is
#: asked for can be told, which over many series is a small one.
_N_PERMUTATIONS, _MOST_PERMUTATIONS = 1999, 199_900
#: Smaller shifts are told from noise and still not worth a name.
_LEAST_SHIFT = 0.01

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of level before index ``at``; logs.

    ``p`` is that of the permutation test, before any correction over series.
    """

    at: int
    delta: float
    half: float
    p: float


def shifts(values: Sequence[float], alpha: float) -> tuple[Shift, ...]:
    """Return the changes of level of a series of positive values, in order.

    Source: binary segmentation; each segment is split where the difference of means
        over its standard error is largest, if no more than a share ``alpha`` of 1,999
        random orders of the segment has as large a largest one, or of as many as a
        small share takes; each part of a split gets half of the share.
    Assumes: runs are independent, with equal relative spread within levels. A slow
        drift is no level, and shows as many small shifts.

    Args:
        values: In order of time.
        alpha: Chance of a false change that is accepted in a series without any.

    Returns:
        Shifts of at least 1 %; none below 20 values.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    if logs.size < LEAST_RUNS:
        return ()
    rng = np.random.default_rng(logs.size)
    cuts: dict[int, float] = {}
    todo = [(0, int(logs.size), alpha)]
    while todo:
        low, high, most = todo.pop()
        found = _split(logs[low:high], rng, most)
        if found is None or found[1] > most:
            continue
        middle = low + found[0]
        cuts[middle] = found[1]
        # Two parts are two more chances of a false change.
        todo += [(low, middle, most / 2), (middle, high, most / 2)]
    return _sized(logs, cuts)


def levels(values: Sequence[float], at: Sequence[int]) -> Floats:
    """Return each log value less the mean of its level.

    Args:
        values: In order of time.
        at: Indices before which the level changes.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    parts = np.split(logs, sorted(at))
    return np.concatenate([part - part.mean() for part in parts])


def drift(residuals: Floats) -> float | None:
    """Return the correlation of neighbours; None where nothing varies."""
    total = float(np.sum(residuals**2))
    if total <= 1e-24:
        return None
    return float(np.sum(residuals[1:] * residuals[:-1])) / total


def _split(
    logs: Floats, rng: np.random.Generator, most: float
) -> tuple[int, float] | None:
    """Return the best split and its p; None where the segment is too short.

    Random orders are drawn until ``p`` is told from ``most``.
    """
    if logs.size < 2 * _LEAST_SIDE or float(np.ptp(logs)) == 0:
        return None
    seen = _scan(logs[None, :])
    at = int(np.argmax(seen[0]))
    wanted = min(max(_N_PERMUTATIONS, int(10 / most)), _MOST_PERMUTATIONS)
    n, as_large = 0, 0
    while n < wanted and 1 + as_large <= most * (1 + wanted):
        orders = rng.permuted(np.tile(logs, (_N_PERMUTATIONS, 1)), axis=1)
        as_large += int(np.sum(_scan(orders).max(axis=1) >= seen[0, at] - 1e-12))
        n += _N_PERMUTATIONS
    return at + _LEAST_SIDE, (1 + as_large) / (1 + n)


def _scan(rows: Floats) -> Floats:
    """Return |difference of means| over its standard error, by row and split."""
    n = rows.shape[1]
    k = np.arange(_LEAST_SIDE, n - _LEAST_SIDE + 1)
    sums = np.cumsum(rows, axis=1)
    left, whole = sums[:, k - 1], sums[:, -1:]
    apart = left / k - (whole - left) / (n - k)
    spread = np.sum(rows**2, axis=1, keepdims=True) - whole**2 / n
    between = apart**2 * k * (n - k) / n
    within = np.maximum(spread - between, 1e-18)
    return np.asarray(np.sqrt(between / (within / (n - 2))))


def _sized(logs: Floats, cuts: dict[int, float]) -> tuple[Shift, ...]:
    """Return the shifts between neighbouring levels, small ones left out."""
    edges = [0, *sorted(cuts), int(logs.size)]
    parts = [logs[a:b] for a, b in pairwise(edges)]
    found = []
    for i, at in enumerate(sorted(cuts)):
        before, after = parts[i], parts[i + 1]
        delta = float(after.mean() - before.mean())
        df = before.size + after.size - 2
        total = np.sum((before - before.mean()) ** 2) + np.sum(
            (after - after.mean()) ** 2
        )
        error = float(np.sqrt(total / df * (1 / before.size + 1 / after.size)))
        half = float(stats.t.ppf(0.975, df)) * error
        if abs(delta) >= np.log1p(_LEAST_SHIFT):
            found.append(Shift(at, delta, half, cuts[at]))
    return tuple(found)
