"""Runs over time: series by workload point, and where their level moved."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis
from stepscope.analysis.trend.changes import (
    LEAST_RUNS,
    Shift,
    drift,
    levels,
    shifts,
)
from stepscope.analysis.trend.identity import Taken, identity_changes
from stepscope.analysis.trend.records import (
    ChangePoint,
    IdentityChange,
    TrendDocument,
    TrendPoint,
    TrendRun,
    TrendSeries,
)
from stepscope.errors import RefusedError
from stepscope.findings import Finding
from stepscope.run.run import Run

SCHEMA = 1
#: Chance of any false change point over all series of a document.
_ALPHA = 0.05
#: Neighbours that resemble each other more than chance does, in standard errors.
_DRIFTS = 2.5


@dataclass(frozen=True, slots=True)
class Key:
    """One metric at one workload point of one configuration."""

    configuration: str
    concurrency: int | None
    metric: str
    input_tokens: int | None
    output_tokens: int | None
    n_prompts: int | None
    request_rate: float | None


def taken_of(run: Run, path: str) -> Taken:
    """Return a run with its wall clock.

    Raises:
        RefusedError: Nothing says when it was taken.
    """
    if run.created_unix_ns is None:
        raise RefusedError(
            path,
            "nothing says when it was taken",
            "runs with a wall clock, to put them in order",
            "Measure with stepscope run, or give command_started_at in import.toml",
        )
    return Taken(run=run, path=path, at_unix_ns=run.created_unix_ns)


def trend(runs: Sequence[tuple[Taken, Analysis]]) -> TrendDocument:
    """Return the series of some runs in the order of their wall clock.

    Args:
        runs: Each with what was computed from it, in any order.

    Raises:
        RefusedError: The same run twice.
    """
    ordered = sorted(runs, key=lambda pair: pair[0].at_unix_ns)
    seen: set[tuple[str, int]] = set()
    for one, _ in ordered:
        key = (one.run.id, one.at_unix_ns)
        if key in seen:
            raise RefusedError(one.path, "this run was given before", "each run once")
        seen.add(key)
    identities = identity_changes([one for one, _ in ordered])
    rows = _rows(ordered)
    long = sum(len(points) >= LEAST_RUNS for points in rows.values())
    series = tuple(
        _series(key, points, _ALPHA / max(long, 1), max(long, 1), identities)
        for key, points in rows.items()
    )
    return TrendDocument(
        schema=SCHEMA,
        runs=tuple(
            TrendRun(id=t.run.id, path=t.path, at_unix_ns=t.at_unix_ns)
            for t, _ in ordered
        ),
        runs_needed=LEAST_RUNS,
        identity_changes=identities,
        series=series,
        findings=tuple(_findings(series, len(ordered))),
    )


def _rows(
    ordered: Sequence[tuple[Taken, Analysis]],
) -> Mapping[Key, list[TrendPoint]]:
    rows: dict[Key, list[TrendPoint]] = {}
    for one, analysis in ordered:
        # Sessions of one run are apart in its groups and one value here.
        groups: dict[Key, list[RepeatGroup]] = defaultdict(list)
        for group in analysis.groups:
            key = Key(
                group.configuration,
                group.concurrency,
                group.metric,
                group.input_tokens,
                group.output_tokens,
                group.n_prompts,
                group.request_rate,
            )
            groups[key].append(group)
        for key, mine in groups.items():
            sizes = [len(group.values) for group in mine]
            logs = [np.log(group.mean) for group in mine]
            value = float(np.exp(np.average(logs, weights=sizes)))
            rows.setdefault(key, []).append(
                TrendPoint(
                    run=one.run.id,
                    at_unix_ns=one.at_unix_ns,
                    value=mine[0].mean if len(mine) == 1 else value,
                    n=sum(sizes),
                )
            )
    order = sorted(
        rows,
        key=lambda k: (
            k.configuration, k.concurrency or 0, k.request_rate or 0, k.metric
        ),
    )  # fmt: skip
    return {key: rows[key] for key in order}


def _series(
    key: Key,
    points: Sequence[TrendPoint],
    alpha: float,
    n_series: int,
    identities: Sequence[IdentityChange],
) -> TrendSeries:
    values = [p.value for p in points]
    enough = len(values) >= LEAST_RUNS
    found = shifts(values, alpha) if enough else ()
    residuals = levels(values, [s.at for s in found])
    df = len(values) - 1 - len(found)
    cv = 100 * float(np.sqrt(np.sum(residuals**2) / df)) if df >= 2 else None
    return TrendSeries(
        configuration=key.configuration,
        concurrency=key.concurrency,
        metric=key.metric,
        input_tokens=key.input_tokens,
        output_tokens=key.output_tokens,
        n_prompts=key.n_prompts,
        request_rate=key.request_rate,
        points=tuple(points),
        mean=float(np.exp(np.mean(np.log(values)))),
        cv_pct=cv,
        changes=tuple(_change(s, points, n_series, identities) for s in found)
        if enough
        else None,
        runs_missing=max(LEAST_RUNS - len(values), 0),
        drift=drift(residuals) if enough else None,
    )


def _change(
    shift: Shift,
    points: Sequence[TrendPoint],
    n_series: int,
    identities: Sequence[IdentityChange],
) -> ChangePoint:
    here, before = points[shift.at], points[shift.at - 1]
    fields = [
        f.field
        for change in identities
        if before.at_unix_ns < change.at_unix_ns <= here.at_unix_ns
        for f in change.fields
    ]
    return ChangePoint(
        run=here.run,
        at_unix_ns=here.at_unix_ns,
        delta_pct=_percent(shift.delta),
        ci95_pct=(
            _percent(shift.delta - shift.half),
            _percent(shift.delta + shift.half),
        ),
        p=min(shift.p * n_series, 1.0),
        fields=tuple(dict.fromkeys(fields)),
    )


def number_of_runs(n: int) -> str:
    """Return "1 run", "2 runs"."""
    return f"{n} run" if n == 1 else f"{n} runs"


def _percent(log: float) -> float:
    return float(100 * np.expm1(log))


def _findings(series: Sequence[TrendSeries], n_runs: int) -> list[Finding]:
    found = []
    if not any(s.changes is not None for s in series):
        longest = max((len(s.points) for s in series), default=0)
        found.append(
            Finding(
                code="too-few-runs",
                severity="info",
                message=f"{number_of_runs(n_runs)}, at most {longest} of one workload"
                f" point: change points need {LEAST_RUNS}, so {LEAST_RUNS - longest}"
                " are missing; the series are shown and nothing is said of them",
                hint="Keep measuring the same recipe.",
            )
        )
    for one in series:
        limit = _DRIFTS / np.sqrt(max(len(one.points), 1))
        if one.drift is not None and one.drift > limit:
            where = (
                "" if one.concurrency is None else f" at concurrency {one.concurrency}"
            )
            found.append(
                Finding(
                    code="drifting",
                    severity="warning",
                    message=f"{one.configuration}{where}: neighbouring runs of"
                    f" {one.metric} resemble each other (correlation {one.drift:.2f},"
                    f" by chance below {limit:.2f}): its change points are not to be"
                    " trusted",
                    hint="Look for what drifts: temperature, neighbours, disk, clocks.",
                )
            )
    return found
