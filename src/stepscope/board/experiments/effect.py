"""Whether a change moved the step, with noise in mind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis, CellResult

Moved = Literal["longer", "shorter", "unchanged", "needs-launches"]

#: One launch of each side counts only beyond both. Launches of one command were seen
#: to differ by 1 % on a GPU and by a third on a shared two-core machine; 5 spreads of a
#: cell leave room for what a single launch can not show.
FAR_PCT = 20.0
FAR_SPREADS = 5.0


@dataclass(frozen=True, slots=True)
class Effect:
    """TPOT of the heavier side over that of the lighter one.

    Attributes:
        light_ms: Mean TPOT without the burden.
        heavy_ms: With it.
        low: Least ratio that the measurement allows; the ratio itself without interval.
        high: Most.
        n_light: Launches (or runs) behind ``light_ms``.
        n_heavy: The same behind ``heavy_ms``.
        moved: What it comes to; ``needs-launches``: not told from noise.
        why: What that rests on.
        interval: Whether ``low`` and ``high`` are a 95 % interval.
    """

    light_ms: float
    heavy_ms: float
    low: float
    high: float
    n_light: int
    n_heavy: int
    moved: Moved
    why: str
    interval: bool = False

    @property
    def ratio(self) -> float:
        """Heavier over lighter."""
        return self.heavy_ms / self.light_ms

    @property
    def settled(self) -> bool:
        """Whether it may be used."""
        return self.moved != "needs-launches"


def effect_of(
    light: Sequence[CellResult],
    heavy: Sequence[CellResult],
    compared: Comparison | None,
    analysis: Analysis,
) -> Effect | None:
    """Return the effect at one workload point; None where a side has no TPOT.

    Args:
        light: Sound cells of the side without the burden.
        heavy: Of the other.
        compared: TPOT of the heavier side against the lighter one.
        analysis: Where repeats are found.
    """
    one, other = _mean(light), _mean(heavy)
    if one is None or other is None:
        return None
    if compared is not None and compared.ci95_pct is not None:
        return _repeated(one, other, compared, _spread(light, heavy, analysis))
    ratio = other / one
    far, why = _far(ratio, _spread(light, heavy, analysis))
    moved: Moved = "needs-launches"
    if far:
        moved = "longer" if ratio > 1 else "shorter"
    return Effect(
        one, other, ratio, ratio, len(light), len(heavy), moved, f"n = 1: {why}"
    )


def _repeated(
    one: float, other: float, compared: Comparison, spread: float | None
) -> Effect:
    """Return the comparison's own verdict; runs of one launch must be far off too."""
    assert compared.ci95_pct is not None
    low, high = (1 + x / 100 for x in compared.ci95_pct)
    ratio = 1 + (compared.delta_pct or 0.0) / 100
    moved: Moved = "needs-launches"
    why = f"{compared.verdict} by {compared.unit}s of each, 95 % interval"
    why += f" {100 * (low - 1):+.3g} to {100 * (high - 1):+.3g} %"
    alone = compared.unit == "run"
    far, told = _far(ratio, spread)
    if compared.verdict == "same" and not alone:
        moved = "unchanged"
    elif compared.verdict in ("faster", "slower") and (far or not alone):
        moved = "longer" if compared.verdict == "slower" else "shorter"
    if alone:
        why += f"; one launch of each: {told}"
    return Effect(
        compared.mean_a or one,
        compared.mean_b or other,
        low,
        high,
        compared.n_a,
        compared.n_b,
        moved,
        why,
        interval=True,
    )


def _far(ratio: float, spread: float | None) -> tuple[bool, str]:
    """Tell whether a single launch of each shows a difference, and why."""
    if spread is None:
        return False, "nothing says how much its cells vary"
    size = abs(float(np.log(ratio)))
    far = size > np.log1p(FAR_PCT / 100) and size > FAR_SPREADS * spread
    what = "beyond" if far else "not beyond"
    times = f"{size / spread:.3g} times" if spread > 0 else "far over"
    return far, (
        f"{what} {FAR_PCT:g} % and {FAR_SPREADS:g} times the spread seen"
        f" ({times} {100 * spread:.3g} %)"
    )


def _mean(cells: Sequence[CellResult]) -> float | None:
    values = [c.tpot_ms.mean for c in cells if c.tpot_ms.mean]
    return float(np.exp(np.mean(np.log(values)))) if values else None


def _spread(
    light: Sequence[CellResult], heavy: Sequence[CellResult], analysis: Analysis
) -> float | None:
    """Return the spread of the ratio's logarithm that this run shows.

    The larger of what varies inside a cell (half the interval of its batch means) and
    between repeats of any configuration, of each side, added in squares.
    """
    repeats = [g.cv_pct for g in analysis.groups if g.metric == "tpot_ms" and g.cv_pct]
    between = max(repeats, default=0.0)
    sides = []
    for cells in (light, heavy):
        inside = [c.batch_means_error_pct for c in cells]
        known = [x for x in inside if x is not None]
        if not known and not repeats:
            return None
        sides.append(max([*known, between]))
    return math.hypot(*sides) / 100
