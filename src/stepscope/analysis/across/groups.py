"""Repeats of one point, read together."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from stepscope.analysis.records import CellResult, RepeatGroup
from stepscope.findings import Finding

#: What is read over repeats: name -> how to take it from a cell.
METRICS = ("output_tokens_per_s", "tpot_ms", "ttft_ms")
#: First against the rest: a first read this far off with the others this close.
_FIRST_OFF_PCT = 3.0


def value_of(cell: CellResult, metric: str) -> float | None:
    """Return a cell's figure: a rate itself, of a distribution its mean."""
    found = getattr(cell, metric)
    if found is None or isinstance(found, float):
        return found
    return None if found.mean is None else float(found.mean)


def readable(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells that may support a figure: valid and no warm-ups."""
    return [c for c in cells if c.valid and not c.warm_up and not c.n_failed]


def whole_waves(cell: CellResult) -> bool:
    """Return True where the cell is not cut into partial waves."""
    return cell.waves is None or cell.waves == int(cell.waves)


def repeat_groups(
    cells: Sequence[CellResult], leave_out: frozenset[str] = frozenset()
) -> tuple[RepeatGroup, ...]:
    """Return each point's repeats with a Student t interval on logs.

    Assumes: runs are independent and log-normal. Requests of one run are not runs:
        they share the engine's steps and say nothing of repeatability.

    Args:
        cells: All cells; those that can support nothing are left out.
        leave_out: Names of further cells to leave out (contaminated first runs).
    """
    points: dict[tuple[str, str, int | None], list[CellResult]] = defaultdict(list)
    for cell in readable(cells):
        if whole_waves(cell) and cell.name not in leave_out:
            points[(cell.configuration, cell.session, cell.concurrency)].append(cell)
    groups = []
    for (configuration, session, concurrency), members in points.items():
        for metric in METRICS:
            pairs = [(c.name, value_of(c, metric)) for c in members]
            known = [(name, v) for name, v in pairs if v is not None and v > 0]
            if not known:
                continue
            values = tuple(v for _, v in known)
            ci, cv = interval(values)
            groups.append(
                RepeatGroup(
                    configuration=configuration,
                    session=session,
                    concurrency=concurrency,
                    metric=metric,
                    cells=tuple(name for name, _ in known),
                    values=values,
                    mean=float(np.exp(np.mean(np.log(values)))),
                    ci95=ci,
                    cv_pct=cv,
                )
            )
    return tuple(groups)


def interval(
    values: Sequence[float],
) -> tuple[tuple[float, float] | None, float | None]:
    """Return the 95 % interval of the geometric mean, and the CV in percent.

    None for one value: a single run has no interval.
    """
    n = len(values)
    if n < 2:
        return None, None
    logs = np.log(values)
    sd = float(logs.std(ddof=1))
    half = float(stats.t.ppf(0.975, n - 1)) * sd / np.sqrt(n)
    middle = float(logs.mean())
    return (float(np.exp(middle - half)), float(np.exp(middle + half))), 100 * sd


def group_findings(groups: Sequence[RepeatGroup]) -> list[Finding]:
    """Return findings on repeats: none at all, or a first one that stands apart."""
    rates = [g for g in groups if g.metric == "output_tokens_per_s"]
    found = []
    alone = sorted({g.concurrency or 0 for g in rates if len(g.values) == 1})
    if alone:
        found.append(
            Finding(
                code="no-repeats",
                severity="warning",
                message="measured once, so without an interval: concurrency "
                + ", ".join(map(str, alone)),
                hint='Repeat them: concurrency = ["64x3"].',
            )
        )
    for group in rates:
        contaminated = _first_off(group)
        if contaminated is not None:
            found.append(contaminated)
    return found


def _first_off(group: RepeatGroup) -> Finding | None:
    """Flag a first run outside a t prediction interval of the others."""
    if len(group.values) < 3:
        return None
    first, *rest = np.log(group.values)
    n = len(rest)
    middle, sd = float(np.mean(rest)), float(np.std(rest, ddof=1))
    # Two or three repeats may agree by luck: half a percent is assumed at least.
    spread = max(sd, 0.005) * np.sqrt(1 + 1 / n)
    off = float(first - middle)
    limit = float(stats.t.ppf(0.975, max(n - 1, 2))) * spread
    if abs(off) <= limit or abs(100 * np.expm1(off)) < _FIRST_OFF_PCT:
        return None
    reads = ", ".join(f"{v:.0f}" for v in group.values)
    return Finding(
        code="first-run-contaminated",
        severity="warning",
        message=f"the first of {len(group.values)} reads at concurrency"
        f" {group.concurrency} is {100 * np.expm1(off):+.1f} % from the others"
        f" ({reads} tokens/s): their mean is no figure",
        hint="It still carries warm-up: take the later reads, or repeat it.",
        cell=group.cells[0],
    )
