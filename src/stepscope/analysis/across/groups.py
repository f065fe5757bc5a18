"""Repeats of one point, read together."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from stepscope.analysis.across.points import (
    Point,
    copies,
    point_of,
    readable,
    value_of,
)
from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

#: What is read over repeats: name -> how to take it from a cell.
METRICS = ("output_tokens_per_s", "tpot_ms", "ttft_ms")
RATE = METRICS[0]
#: A first read this far off the others is worth a sentence.
_FIRST_OFF = 0.02
#: Two or three repeats may agree by luck; a run's rate is not better known than this.
_LEAST_SD = 0.003


@dataclass(frozen=True, slots=True)
class Spread:
    """Run-to-run standard deviation of a log figure, pooled over points."""

    sd: float
    df: int


def pooled(values: Sequence[Sequence[float]]) -> Spread | None:
    """Return the SD of logs within each series, pooled; None without repeats.

    Assumes: the same relative spread in all series.
    """
    logs = [np.log(series) for series in values if len(series) > 1]
    df = sum(series.size - 1 for series in logs)
    if not df:
        return None
    total = sum(float(((series - series.mean()) ** 2).sum()) for series in logs)
    return Spread(sd=float(np.sqrt(total / df)), df=df)


def by_point(cells: Sequence[CellResult]) -> Mapping[Point, list[CellResult]]:
    """Return readable cells by the point that they repeat, in the run's order.

    A copy of a cell repeats nothing.
    """
    points: dict[Point, list[CellResult]] = defaultdict(list)
    known = readable(cells)
    again = copies(known)
    for cell in known:
        if cell.name not in again:
            points[point_of(cell)].append(cell)
    return points


def repeat_groups(
    cells: Sequence[CellResult], leave_out: frozenset[str] = frozenset()
) -> tuple[RepeatGroup, ...]:
    """Return each point's repeats with a Student t interval on logs.

    Assumes: runs are independent and log-normal. Requests of one run are not runs:
        they share the engine's steps and say nothing of repeatability. Repeats of
        one launch do not hold what differs from launch to launch.

    Args:
        cells: All cells; those that can support nothing are left out.
        leave_out: Names of cells to leave out where their point has others:
            contaminated first runs, stalls.
    """
    groups = []
    for point, everyone in by_point(cells).items():
        members = [c for c in everyone if c.name not in leave_out] or everyone
        for metric in METRICS:
            pairs = [(cell.name, value_of(cell, metric)) for cell in members]
            known = [(name, v) for name, v in pairs if v is not None and v > 0]
            if not known:
                continue
            values = tuple(v for _, v in known)
            ci, cv = interval(values)
            groups.append(
                RepeatGroup(
                    configuration=point.configuration,
                    session=point.session,
                    concurrency=point.concurrency,
                    request_rate=point.request_rate,
                    metric=metric,
                    cells=tuple(name for name, _ in known),
                    values=values,
                    mean=float(np.exp(np.mean(np.log(values)))),
                    ci95=ci,
                    cv_pct=cv,
                    n_prompts=point.n_prompts,
                    input_tokens=point.shape.input_tokens,
                    output_tokens=point.shape.output_tokens,
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


def repeat_findings(cells: Sequence[CellResult]) -> list[Finding]:
    """Return what the repeats say: there are none, or a first one stands apart."""
    points = by_point(cells)
    return [*_copied(cells), *_alone(points), *_first_runs(points)]


def _copied(cells: Sequence[CellResult]) -> list[Finding]:
    return [
        Finding(
            code="copied-results",
            severity="warning",
            message=f"every figure is that of {first} to the last digit: a copy, which"
            " repeats nothing and is left out of means and intervals",
            hint="Measure again; a copy holds nothing of how much figures vary.",
            cell=name,
        )
        for name, first in copies(readable(cells)).items()
    ]


def _alone(points: Mapping[Point, list[CellResult]]) -> list[Finding]:
    alone: dict[tuple[str, str], set[int]] = defaultdict(set)
    rates: dict[tuple[str, str], set[float]] = defaultdict(set)
    for point, members in points.items():
        if len(members) == 1:
            key = (point.configuration, point.session)
            if point.concurrency is not None:
                alone[key].add(point.concurrency)
            else:
                rates[key].add(point.request_rate or 0.0)
    return [
        Finding(
            code="no-repeats",
            severity="warning",
            message=f"{configuration}: measured once, so without an interval, at"
            f" concurrency {', '.join(map(str, sorted(sizes)))}",
            hint='Repeat what a claim rests on, such as concurrency = ["64x3"].',
        )
        for (configuration, _), sizes in alone.items()
    ] + [
        Finding(
            code="no-repeats",
            severity="warning",
            message=f"{configuration}: measured once, so without an interval,"
            f" {_at_rates(found)}",
            hint='Repeat what a claim rests on, such as request_rate = ["8x3"].',
        )
        for (configuration, _), found in rates.items()
    ]


def _at_rates(rates: set[float]) -> str:
    known = [f"{rate:g}" for rate in sorted(rates) if rate]
    return f"at {', '.join(known)} requests/s" if known else "in an open loop"


def _first_runs(points: Mapping[Point, list[CellResult]]) -> list[Finding]:
    """Test each first run against the rest of its point.

    Source: t on logs with the SD of the later runs, pooled over points: two later
        runs alone would have one degree of freedom.
    """
    rates = {
        point: [(c.name, v) for c in members if (v := value_of(c, RATE))]
        for point, members in points.items()
    }
    found = []
    for (configuration, session), mine in _by_session(rates).items():
        spread = pooled([[v for _, v in pairs[1:]] for pairs in mine])
        if spread is None:
            continue
        for pairs in mine:
            off = _first_off(pairs, spread)
            if off is not None:
                found.append(_first_off_finding(configuration, session, pairs, off))
    return found


def _by_session(
    rates: Mapping[Point, list[tuple[str, float]]],
) -> Mapping[tuple[str, str], list[list[tuple[str, float]]]]:
    sessions: dict[tuple[str, str], list[list[tuple[str, float]]]] = defaultdict(list)
    for point, pairs in rates.items():
        if len(pairs) > 2:
            sessions[(point.configuration, point.session)].append(pairs)
    return sessions


def _first_off(pairs: Sequence[tuple[str, float]], spread: Spread) -> float | None:
    first, *rest = np.log([v for _, v in pairs])
    off = float(first - np.mean(rest))
    error = max(spread.sd, _LEAST_SD) * np.sqrt(1 + 1 / len(rest))
    limit = float(stats.t.ppf(0.975, max(spread.df, 2))) * error
    return off if abs(off) > max(limit, _FIRST_OFF) else None


def _first_off_finding(
    configuration: str, session: str, pairs: Sequence[tuple[str, float]], off: float
) -> Finding:
    reads = ", ".join(f"{v:.0f}" for _, v in pairs)
    way = "low" if off < 0 else "high"
    return Finding(
        code="first-run-contaminated",
        severity="warning",
        message=f"{configuration} in {session}: the first of {len(pairs)} repeats read"
        f" {abs(100 * np.expm1(off)):.1f} % {way} ({reads} tokens/s), far outside the"
        " spread of the others; it is left out of every mean and model",
        hint="Take the later reads. What was it: a stall, a compilation, warm-up? See"
        " the cell's other findings, or repeat it.",
        cell=pairs[0][0],
    )
