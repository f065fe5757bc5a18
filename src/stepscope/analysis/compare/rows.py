"""Families to the records of `analyze --json`, with what would settle the open ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stepscope.analysis.across.power import runs_needed, sd_upper
from stepscope.analysis.compare.contrasts import Contrast, Rows
from stepscope.analysis.compare.judge import (
    ALPHA,
    LEAST_EFFECT,
    SAME,
    Family,
    Judged,
    verdict,
)
from stepscope.analysis.compare.records import Comparison, PooledComparison
from stepscope.analysis.compare.table import METRICS, Table

#: Why a row that its runs would settle is not settled.
ONE_START = "one start of each: starts may differ by as much"


@dataclass(frozen=True, slots=True)
class Prices:
    """What a further unit takes.

    Attributes:
        of: The table.
        usd_per_hour: By arm; an arm without prices is not in it.
    """

    of: Table
    usd_per_hour: Mapping[str, float]

    def seconds(self, arm: str, one: Contrast, unit: str) -> float | None:
        """Return the mean length of a launch of an arm, or of a run of a row."""
        if unit == "launch" or one.starts:
            used = {r.launch for r in self.of.readings}
            starts = [s for s in self.of.starts if s.name in used]
            found = [s.seconds for s in starts if s.arm == arm]
        else:
            mine = [r for r in self.of.readings if (r.arm, r.row) == (arm, one.row)]
            found = [r.seconds for r in mine]
        known = [s for s in found if s is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else None


def comparisons(of: Family, rows: Rows, prices: Prices) -> list[Comparison]:
    """Return the records of a family, a row each."""
    pairs = zip(of.rows, of.judged, strict=True)
    return [_comparison(one, judged, rows, prices) for one, judged in pairs]


def pooled(of: Family) -> PooledComparison | None:
    """Return the record of a family's mean; None for a single row."""
    if of.q_p is None:
        return None
    one = of.pooled
    told = verdict(one, METRICS[of.metric]) if one is not None else "undetermined"
    return PooledComparison(
        a=of.a,
        b=of.b,
        metric=of.metric,
        n_rows=sum(j is not None for j in of.judged),
        delta_pct=None if one is None else percent(one.value),
        ci95_pct=None if one is None else _interval(one),
        verdict=told if of.rows_agree else "undetermined",
        rows_agree=of.rows_agree,
        q_p=of.q_p,
        p=None if one is None else one.p,
        p_adjusted=one.p_adjusted if one is not None and of.rows_agree else None,
    )


def _comparison(
    one: Contrast, judged: Judged | None, rows: Rows, prices: Prices
) -> Comparison:
    told = "undetermined" if judged is None else verdict(judged, METRICS[one.metric])
    interval = None
    if one.error is not None and one.value is not None:
        shown = judged or Judged(one.value, one.error, one.df, (), 1.0)
        interval = _interval(shown)
    needed = _needed(one, rows) if told == "undetermined" else None
    n_a, n_b = len(one.terms[-1].units), len(one.terms[0].units)
    seconds = _seconds(one, rows, prices, needed, (n_a, n_b))
    row = one.row
    rate = prices.usd_per_hour.get(one.b)
    return Comparison(
        a=one.a,
        b=one.b,
        concurrency=row.concurrency,
        metric=one.metric,
        delta_pct=None if one.value is None else percent(one.value),
        ci95_pct=interval,
        verdict=told,
        runs_needed=needed,
        n_a=n_a,
        n_b=n_b,
        unit=rows.unit,
        p=None if judged is None else judged.p,
        p_adjusted=None if judged is None else judged.p_adjusted,
        session=" / ".join(prices.of.sessions[s].text for s in one.sessions),
        anchor=one.anchor,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        n_prompts=row.n_prompts,
        request_rate=row.request_rate,
        reason=_reason(one, judged) if told == "undetermined" else None,
        mean_a=float(np.exp(one.terms[-1].mean)),
        mean_b=float(np.exp(one.terms[0].mean)),
        minutes_needed=None if seconds is None else seconds / 60,
        usd_needed=None if seconds is None or rate is None else seconds / 3600 * rate,
    )


def _reason(one: Contrast, judged: Judged | None) -> str:
    reasons = [one.why_not] if one.why_not is not None else []
    if not one.sound:
        reasons.append("a stall or a figure out of order in every cell of one")
    if reasons:
        return "; ".join(reasons)
    if judged is not None and one.starts:
        alone = replace(judged, starts=0.0, holds=judged.p_adjusted <= ALPHA)
        if verdict(alone, METRICS[one.metric]) != "undetermined":
            return ONE_START
    return "not told from noise"


def _needed(one: Contrast, rows: Rows) -> int | None:
    """Return units an arm that would settle a row with 80 % power.

    Source: power of the t test at the 80 % upper bound of the spread, for the observed
        difference; below 1 % for the distance from it to the margin of "same". Where
        no arm was started twice, each further run has a start of its own, since more
        runs on one start never tell what starts differ by.
    Assumes: this row alone, without Holm's and Dunnett's corrections.
    """
    if one.value is None or one.raw:
        return None
    known = rows.spread(one.sessions)
    if known is None:
        return None
    error, df = (known.sd * one.weight**-0.5, known.df)
    if one.error is not None:
        error, df = one.error, one.df
    size = abs(one.value)
    effect = size if size >= LEAST_EFFECT else SAME - size
    return units_needed(effect, one, error, df)


def units_needed(effect: float, one: Contrast, error: float, df: float) -> int | None:
    """Return units an arm that would show ``effect``; see ``_needed``.

    Args:
        effect: Difference of logs.
        one: The row, for what is at hand.
        error: Standard error that it would have without what starts may add.
        df: Of the error.
    """
    n = min(len(t.units) for t in one.terms)
    sd = sd_upper(error * float(np.sqrt(n / 2)), df)
    found = runs_needed(effect, float(np.hypot(sd, one.starts * 0.5**0.5)))
    if found is None:
        return None
    return n + found - 1 if one.starts else max(found, n + 1)


def _seconds(
    one: Contrast,
    rows: Rows,
    prices: Prices,
    needed: int | None,
    n: tuple[int, int],
) -> float | None:
    """Return how long the missing units of both arms take."""
    if needed is None:
        return None
    each = [prices.seconds(arm, one, rows.unit) for arm in (one.a, one.b)]
    if None in each:
        return None
    return sum(
        (s or 0.0) * max(needed - have, 0) for s, have in zip(each, n, strict=True)
    )


def _interval(one: Judged) -> tuple[float, float]:
    return percent(one.value - one.half), percent(one.value + one.half)


def percent(log: float) -> float:
    """Return a difference of logs in percent."""
    return float(100 * np.expm1(log))
