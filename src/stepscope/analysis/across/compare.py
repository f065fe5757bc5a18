"""Configurations against the first, row by row; honest about how little n = 1 says."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from stepscope.analysis.across.groups import RATE, Spread, pooled
from stepscope.analysis.across.points import Shape
from stepscope.analysis.across.power import runs_needed, sd_upper
from stepscope.analysis.records import Comparison, RepeatGroup
from stepscope.findings import Finding

#: TOST margin of "same", and the smallest effect that runs are planned for.
_SAME = 0.02
_LEAST_EFFECT = 0.01
#: metric -> +1 where more is faster.
_METRICS = {RATE: 1, "tpot_ms": -1}

Verdict = Literal["faster", "slower", "same", "undetermined"]


@dataclass(frozen=True, slots=True)
class Row:
    """Where both arms were measured: one workload point of one session."""

    session: str
    shape: Shape
    concurrency: int | None
    n_prompts: int | None
    metric: str


@dataclass(frozen=True, slots=True)
class Delta:
    """B against A on one row, logs; ``p`` two-sided, None without repeats."""

    row: Row
    a: RepeatGroup
    b: RepeatGroup
    value: float
    half: float | None = None
    half_90: float | None = None
    p: float | None = None
    sound: bool = True


def comparisons(
    groups: Sequence[RepeatGroup],
    order: Sequence[str],
    launches: Mapping[str, str],
    flagged: frozenset[str] = frozenset(),
) -> tuple[tuple[Comparison, ...], list[Finding]]:
    """Compare each configuration with the first one, at each concurrency.

    Source: Student t on logs, the variance pooled over rows and arms of a session;
        "faster" and "slower" hold after Holm's correction over the rows of a pair;
        "same" by two one-sided tests at 2 %.
    Assumes: equal relative spread on every row. One run an arm has no interval and
        no verdict. A row whose cells are all anomalous gets no verdict.

    Args:
        groups: Repeats by point.
        order: Configurations, the baseline first.
        launches: Launch of each cell.
        flagged: Names of anomalous cells.

    Returns:
        Comparisons within sessions, and findings: pairs that exist only across
        sessions, which are never compared raw, and what the intervals do not hold.
    """
    if len(order) < 2:
        return (), []
    base, *others = order
    rows = _rows(groups)
    spreads = _spreads(groups)
    found: list[Comparison] = []
    for other in others:
        for metric, sign in _METRICS.items():
            deltas = [
                _delta(row, here[base], here[other], spreads, flagged)
                for row, here in rows.items()
                if row.metric == metric and base in here and other in here
            ]
            found += [
                _comparison(delta, holds, sign, spreads)
                for delta, holds in zip(deltas, _holm(deltas), strict=True)
            ]
    notes = [
        *_across(rows, base, others),
        *_one_launch(found, groups, launches),
        *_shared_baseline(found, base),
    ]
    return tuple(found), notes


def _rows(groups: Sequence[RepeatGroup]) -> dict[Row, dict[str, RepeatGroup]]:
    rows: dict[Row, dict[str, RepeatGroup]] = defaultdict(dict)
    for group in sorted(groups, key=lambda g: g.concurrency or 0):
        if group.metric in _METRICS:
            shape = Shape(group.input_tokens, group.output_tokens)
            row = Row(
                group.session, shape, group.concurrency, group.n_prompts, group.metric
            )
            rows[row][group.configuration] = group
    return rows


def _spreads(
    groups: Sequence[RepeatGroup],
) -> dict[tuple[str, str], Spread | None]:
    series: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for group in groups:
        series[(group.session, group.metric)].append(group.values)
    return {key: pooled(values) for key, values in series.items()}


def _delta(
    row: Row,
    a: RepeatGroup,
    b: RepeatGroup,
    spreads: Mapping[tuple[str, str], Spread | None],
    flagged: frozenset[str],
) -> Delta:
    value = float(np.mean(np.log(b.values)) - np.mean(np.log(a.values)))
    delta = Delta(row=row, a=a, b=b, value=value)
    n_a, n_b = len(a.values), len(b.values)
    spread = spreads.get((row.session, row.metric))
    if spread is None or min(n_a, n_b) < 2:
        return delta
    error = max(spread.sd, 1e-9) * float(np.sqrt(1 / n_a + 1 / n_b))
    return replace(
        delta,
        half=float(stats.t.ppf(0.975, spread.df)) * error,
        half_90=float(stats.t.ppf(0.95, spread.df)) * error,
        p=2 * float(stats.t.sf(abs(value) / error, spread.df)),
        sound=not any(set(g.cells) <= flagged for g in (a, b)),
    )


def _holm(deltas: Sequence[Delta]) -> list[bool]:
    """Return which differences hold at 5 % over all rows together."""
    holds = [False] * len(deltas)
    tested = sorted((d.p, i) for i, d in enumerate(deltas) if d.p is not None)
    for rank, (p, i) in enumerate(tested):
        if p > 0.05 / (len(tested) - rank):
            break
        holds[i] = True
    return holds


def _comparison(
    delta: Delta,
    holds: bool,
    sign: int,
    spreads: Mapping[tuple[str, str], Spread | None],
) -> Comparison:
    verdict: Verdict = "undetermined"
    ci = None
    if delta.half is not None and delta.half_90 is not None:
        ci = _percent(delta.value - delta.half), _percent(delta.value + delta.half)
        if abs(delta.value) + delta.half_90 < np.log1p(_SAME):
            verdict = "same"
        elif holds:
            verdict = "faster" if delta.value * sign > 0 else "slower"
        if not delta.sound:
            verdict = "undetermined"
    spread = spreads.get((delta.row.session, delta.row.metric))
    needed = None
    if verdict == "undetermined" and spread is not None:
        effect = max(abs(delta.value), _LEAST_EFFECT)
        needed = runs_needed(effect, sd_upper(max(spread.sd, 1e-9), spread.df))
    return Comparison(
        a=delta.a.configuration,
        b=delta.b.configuration,
        concurrency=delta.row.concurrency,
        metric=delta.row.metric,
        delta_pct=_percent(delta.value),
        ci95_pct=ci,
        verdict=verdict,
        runs_needed=needed,
        n_a=len(delta.a.values),
        n_b=len(delta.b.values),
    )


def _percent(log: float) -> float:
    return float(100 * np.expm1(log))


def _across(
    rows: Mapping[Row, Mapping[str, RepeatGroup]], base: str, others: Sequence[str]
) -> list[Finding]:
    sessions = {row.session for row in rows}
    apart = [
        other
        for other in others
        if any(other in here for here in rows.values())
        and not any(base in here and other in here for here in rows.values())
    ]
    if len(sessions) < 2:
        return []
    return [
        Finding(
            code="cross-session",
            severity="warning",
            message=f"{base} and {other} were never measured in one session at one"
            " workload point: their figures are not compared, since sessions differ"
            " by more than most flags do",
            hint=f"Measure {base} in both sessions, first and last, as an anchor.",
        )
        for other in apart
    ]


def _one_launch(
    found: Sequence[Comparison],
    groups: Sequence[RepeatGroup],
    launches: Mapping[str, str],
) -> list[Finding]:
    decided = {c.b for c in found if c.verdict != "undetermined"}
    starts: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        starts[group.configuration] |= {launches.get(name, "") for name in group.cells}
    alone = sorted(name for name in decided if len(starts[name]) < 2)
    if not alone:
        return []
    return [
        Finding(
            code="one-launch",
            severity="warning",
            message=f"{', '.join(alone)}: measured on a single server start; the"
            " intervals hold the spread from run to run, not from start to start",
            hint="Start each configuration again, in the order A B B A.",
        )
    ]


def _shared_baseline(found: Sequence[Comparison], base: str) -> list[Finding]:
    """Say when unrelated configurations move alike against one baseline row.

    Where an interval settles the row, the baseline's own error is inside it.
    """
    rows: dict[tuple[int | None, str], list[Comparison]] = defaultdict(list)
    for one in found:
        rows[(one.concurrency, one.metric)].append(one)
    notes = []
    for (concurrency, metric), here in rows.items():
        moves = [c.delta_pct for c in here if c.delta_pct is not None]
        alike = all(m > 100 * _SAME for m in moves) or all(
            m < -100 * _SAME for m in moves
        )
        open_ = all(c.verdict == "undetermined" for c in here)
        if metric == RATE and len(moves) > 1 and alike and open_:
            shown = ", ".join(f"{c.b} {c.delta_pct:+.1f} %" for c in here)
            notes.append(
                Finding(
                    code="shared-baseline",
                    severity="warning",
                    message=f"at concurrency {concurrency} all configurations move"
                    f" alike against {base} ({shown}): the baseline's row is what they"
                    " share",
                    hint=f"Measure {base} at {concurrency} again, before and after.",
                )
            )
    return notes
