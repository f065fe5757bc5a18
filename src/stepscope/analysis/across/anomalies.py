"""Rows that do not fit between their neighbours."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import isotonic_regression

from stepscope.analysis.across.points import Shape, shape_of, whole_waves
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

#: A row that stands above both sides by this ratio is flagged whatever its spread;
#: with repeats on other rows, by three of their standard deviations, but never by less
#: than the second ratio.
ABOVE, LEAST_ABOVE = 1.3, 1.1
#: One-sided chance of three standard deviations where they are known exactly.
_THREE_SD = 0.99865
_LEAST_DF = 3


def ttft_findings(cells: Sequence[CellResult]) -> list[Finding]:
    """Flag cells whose mean TTFT stands above what lies on either side.

    TTFT can not fall as more requests share a server. A row is held against an
    isotonic fit of all other rows: above it on both sides by 1.3, or by three standard
    deviations of the repeats of other rows, it breaks the order by itself. All
    requests count, first wave too: a stall there is what it must see. Void cells are no
    neighbours, since their stamps are the client's.

    Source: R. E. Barlow et al., "Statistical Inference under Order Restrictions",
        1972, for the fit; docs/analysis/anomalies.md for how often it errs.
    Assumes: the same shape of requests on all rows. The first row has no left
        neighbour and the last none on its right: neither can be flagged.
    """
    rows: dict[tuple[str, str, Shape], list[CellResult]] = defaultdict(list)
    for cell in cells:
        sound = cell.valid and not cell.warm_up and whole_waves(cell)
        if sound and cell.concurrency and cell.ttft_ms.mean:
            key = (cell.configuration, cell.session, shape_of(cell))
            rows[key].append(cell)
    found = []
    for members in rows.values():
        found += _out_of_order(members)
    return found


def _out_of_order(cells: Sequence[CellResult]) -> list[Finding]:
    """Flag the cell that stands out most, leave it out, and look again.

    Rows that lie beside each other hide each other until the worse one is out.
    """
    points: dict[int, list[CellResult]] = defaultdict(list)
    for cell in cells:
        points[cell.concurrency or 0].append(cell)
    order = sorted(points)
    flagged: list[tuple[CellResult, Stands]] = []
    while True:
        out = {cell.name for cell, _ in flagged}
        found = [
            (cell, stands)
            for at in order[1:-1]
            for cell in points[at]
            if cell.name not in out
            for stands in [_stands(cell, points, out)]
            if stands is not None and stands.excess > 0
        ]
        if not found:
            break
        flagged.append(max(found, key=lambda each: each[1].excess))
    flagged.sort(key=lambda each: (each[0].concurrency or 0, each[0].name))
    return [_finding(cell, stands) for cell, stands in flagged]


@dataclass(frozen=True, slots=True)
class Stands:
    """How a cell stands to the rows on either side; milliseconds.

    ``before`` and ``after``: concurrencies; ``low`` and ``high``: what the isotonic
    fit without the cell's row gives for them. ``excess``: log ratio above the limit.
    """

    before: int
    after: int
    low: float
    high: float
    excess: float


def _stands(
    cell: CellResult, points: Mapping[int, Sequence[CellResult]], out: set[str]
) -> Stands | None:
    here = cell.concurrency or 0
    others = {
        at: [np.log(_ttft(x)) for x in members if x.name not in out]
        for at, members in points.items()
        if at != here
    }
    rows = [at for at in sorted(others) if others[at]]
    before, after = [c for c in rows if c < here], [c for c in rows if c > here]
    if not before or not after:
        return None
    fit = isotonic_regression([float(np.median(others[at])) for at in rows]).x
    low, high = float(fit[len(before) - 1]), float(fit[len(before)])
    limit = min(math.log(ABOVE), _three_sd([others[at] for at in rows]))
    return Stands(
        before=before[-1],
        after=after[0],
        low=math.exp(low),
        high=math.exp(high),
        excess=math.log(_ttft(cell)) - high - limit,
    )


def _three_sd(rows: Sequence[Sequence[float]]) -> float:
    """Return what is improbable above a row by repeats, in logs; inf: too few."""
    spread = [np.asarray(row) for row in rows if len(row) > 1]
    df = sum(row.size - 1 for row in spread)
    if df < _LEAST_DF:
        return math.inf
    total = sum(float(((row - row.mean()) ** 2).sum()) for row in spread)
    # The row above is known no better than by one read.
    limit = float(stats.t.ppf(_THREE_SD, df)) * math.sqrt(2 * total / df)
    return max(limit, math.log(LEAST_ABOVE))


def _ttft(cell: CellResult) -> float:
    assert cell.ttft_ms.mean is not None
    return cell.ttft_ms.mean


def _finding(cell: CellResult, stands: Stands) -> Finding:
    return Finding(
        code="ttft-not-monotone",
        severity="warning",
        message=f"mean TTFT {_ttft(cell):.0f} ms at concurrency {cell.concurrency},"
        f" with {stands.low:.0f} ms at {stands.before} and {stands.high:.0f} ms at"
        f" {stands.after} by the rows without it: an accident, not a trend",
        hint="Repeat it; its throughput and TTFT can be no baseline of a comparison."
        " Its TPOT does not hold the wait for the first token.",
        cell=cell.name,
    )
