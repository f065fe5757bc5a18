"""Configurations against the first, row by row; honest about how little n = 1 says."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy import stats

from stepscope.analysis.records import Comparison, RepeatGroup
from stepscope.findings import Finding

_SAME_MARGIN_PCT = 2.0
_METRIC = "output_tokens_per_s"


def comparisons(
    groups: Sequence[RepeatGroup], order: Sequence[str]
) -> tuple[tuple[Comparison, ...], list[Finding]]:
    """Compare each configuration with the first one, at each concurrency.

    Source: Student t on logs, the variance pooled over all rows and arms; "same" by
        two one-sided tests at 2 %. One run an arm has no interval and no verdict.
    Assumes: equal relative spread on every row.

    Args:
        groups: Repeats by point.
        order: Configurations, the baseline first.

    Returns:
        Comparisons within sessions, and findings on pairs that only exist across
        sessions, which are never compared raw.
    """
    rows: dict[tuple[str, int | None], dict[str, RepeatGroup]] = defaultdict(dict)
    for group in groups:
        if group.metric == _METRIC:
            rows[(group.session, group.concurrency)][group.configuration] = group
    if len(order) < 2:
        return (), []
    base, *others = order
    spread, df = _pooled(groups)
    found: list[Comparison] = []
    for (_, concurrency), here in sorted(rows.items(), key=lambda kv: kv[0][1] or 0):
        found += [
            _one(here[base], here[other], concurrency, spread, df)
            for other in others
            if base in here and other in here
        ]
    return tuple(found), _across(rows, base, others)


def _pooled(groups: Sequence[RepeatGroup]) -> tuple[float | None, int]:
    total, df = 0.0, 0
    for group in groups:
        if group.metric == _METRIC and len(group.values) > 1:
            logs = np.log(group.values)
            total += float(((logs - logs.mean()) ** 2).sum())
            df += len(group.values) - 1
    return (float(np.sqrt(total / df)) if df else None), df


def _one(
    a: RepeatGroup,
    b: RepeatGroup,
    concurrency: int | None,
    spread: float | None,
    df: int,
) -> Comparison:
    n_a, n_b = len(a.values), len(b.values)
    delta = float(np.mean(np.log(b.values)) - np.mean(np.log(a.values)))
    ci = None
    verdict, needed = "undetermined", None
    if spread is not None and min(n_a, n_b) > 1:
        error = max(spread, 1e-9) * np.sqrt(1 / n_a + 1 / n_b)
        half = float(stats.t.ppf(0.975, df)) * error
        ci = _percent(delta - half), _percent(delta + half)
        narrow = float(stats.t.ppf(0.95, df)) * error
        margin = np.log1p(_SAME_MARGIN_PCT / 100)
        if abs(delta) > half:
            verdict = "faster" if delta > 0 else "slower"
        elif abs(delta) + narrow < margin:
            verdict = "same"
        else:
            needed = _runs_needed(delta, spread)
    return Comparison(
        a=a.configuration,
        b=b.configuration,
        concurrency=concurrency,
        metric=_METRIC,
        delta_pct=_percent(delta),
        ci95_pct=ci,
        verdict=verdict,  # type: ignore[arg-type]  # one of the literals above
        runs_needed=needed if min(n_a, n_b) > 1 else 3,
        n_a=n_a,
        n_b=n_b,
    )


def _percent(log: float) -> float:
    return float(100 * np.expm1(log))


def _runs_needed(delta: float, spread: float) -> int:
    """Return runs an arm that would settle it: an effect this large, or the margin.

    Source: normal approximation, 5 % two-sided, power 80 %: 2 (2.8 sd / effect)^2.
    """
    effect = max(abs(delta), np.log1p(_SAME_MARGIN_PCT / 100))
    return max(3, int(np.ceil(2 * (2.8 * spread / effect) ** 2)))


def _across(
    rows: dict[tuple[str, int | None], dict[str, RepeatGroup]],
    base: str,
    others: Sequence[str],
) -> list[Finding]:
    sessions = {s for s, _ in rows}
    if len(sessions) < 2:
        return []
    apart = [
        other
        for other in others
        if not any(base in here and other in here for here in rows.values())
    ]
    return [
        Finding(
            code="cross-session",
            severity="warning",
            message=f"{base} and {other} were measured in different sessions: their"
            " figures are not compared",
            hint="Measure the baseline in both sessions as an anchor.",
        )
        for other in apart
    ]
