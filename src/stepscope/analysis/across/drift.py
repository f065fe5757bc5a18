"""Did a launch change while it was measured? Its repeats say, in the order of time."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from stepscope.analysis.across.points import Point, point_of, readable
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Run

#: A change from the first to the last cell that is worth a word, in logs.
MOST_DRIFT = 0.02
_LEVEL = 0.01
_LEAST_DF = 3


@dataclass(frozen=True, slots=True)
class Drift:
    """The log change of TPOT over a launch's measured cells, with its 95 % interval.

    ``p``: the chance of as large a change where there is none. ``n`` cells.
    """

    change: float
    half: float
    p: float
    n: int


def drift_findings(
    run: Run, cells: Sequence[CellResult], leave_out: frozenset[str] = frozenset()
) -> list[Finding]:
    """Flag launches whose repeats drift, in whichever direction.

    Args:
        run: The run, for the order of its cells in time.
        cells: Figures of its cells.
        leave_out: Names of contaminated first runs and stalls, which have a finding.
    """
    began = {
        c.name: c.started_at_ns
        if c.started_at_ns is not None
        else c.requests[0].sent_at_ns
        for c in run.cells
        if c.started_at_ns is not None or c.requests
    }
    launches: dict[str, list[CellResult]] = defaultdict(list)
    for cell in readable(cells):
        if cell.name not in leave_out and cell.name in began and cell.tpot_ms.mean:
            launches[cell.launch].append(cell)
    found = []
    for launch, members in launches.items():
        drift = drift_of(members, began)
        if drift is None or abs(drift.change) <= MOST_DRIFT or drift.p > _LEVEL:
            continue
        low, high = (drift.change - drift.half, drift.change + drift.half)
        found.append(
            Finding(
                code="not-steady",
                severity="warning",
                message=f"{launch}: TPOT of the same points changed by"
                f" {100 * np.expm1(drift.change):+.1f} % (95 %:"
                f" {100 * np.expm1(low):+.1f} to {100 * np.expm1(high):+.1f}) from the"
                f" first to the last of {drift.n} repeated cells",
                hint="Look at clocks, power and temperature; a comparison on this"
                " launch needs the order A B B A.",
                launch=launch,
            )
        )
    return found


def drift_of(cells: Sequence[CellResult], began: Mapping[str, int]) -> Drift | None:
    """Return the drift of one launch; None below four repeats beyond the first.

    Source: least squares of log TPOT on time with a level of its own for each
        workload point (analysis of covariance).
    Assumes: the same relative drift at every point, linear in time; independent runs.

    Args:
        cells: Of one launch.
        began: When each began, nanoseconds.
    """
    points: dict[Point, list[CellResult]] = defaultdict(list)
    for cell in cells:
        points[point_of(cell)].append(cell)
    times, logs, n, n_points = [], [], 0, 0
    for members in points.values():
        if len(members) < 2:
            continue
        at = np.array([began[c.name] for c in members], np.float64)
        y = np.log([c.tpot_ms.mean or 1.0 for c in members])
        times.append(at - at.mean())
        logs.append(y - y.mean())
        n, n_points = n + len(members), n_points + 1
    df = n - n_points - 1
    if df < _LEAST_DF:
        return None
    x, y = np.concatenate(times), np.concatenate(logs)
    square = float(x @ x)
    if square <= 0:
        return None
    slope = float(x @ y) / square
    left = y - slope * x
    error = float(np.sqrt(left @ left / df / square))
    names = [c.name for group in points.values() if len(group) > 1 for c in group]
    length = max(began[k] for k in names) - min(began[k] for k in names)
    t = abs(slope) / error if error > 0 else np.inf
    return Drift(
        change=slope * length,
        half=float(stats.t.ppf(0.975, df)) * error * length,
        p=float(2 * stats.t.sf(t, df)),
        n=n,
    )
