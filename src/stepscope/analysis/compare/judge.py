"""From differences and their errors to verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from stepscope.analysis.compare.contrasts import Contrast, Rows
from stepscope.analysis.compare.many import p_value, quantile
from stepscope.analysis.compare.records import Verdict

#: Margin of "same", and the smallest difference that is worth a name.
SAME = 0.02
LEAST_EFFECT = 0.01
ALPHA = 0.05
#: Degrees of freedom from which on t is normal.
_MANY = 1e6


@dataclass(frozen=True, slots=True)
class Judged:
    """A difference of logs with everything that a verdict needs.

    ``shares`` has a number for each configuration that is compared with the same
    baseline: how much of its variance is the baseline's. ``starts`` is an error that
    is assumed (``STARTS``): the interval and ``p`` are without it, verdicts are not.
    """

    value: float
    error: float
    df: float
    shares: tuple[float, ...]
    p: float
    starts: float = 0.0
    holds: bool = False
    p_adjusted: float = 1.0

    @property
    def with_starts(self) -> tuple[float, float]:
        """Return the error with what starts may add, and its degrees of freedom.

        Source: Satterthwaite; what is assumed has infinitely many.
        """
        joint = self.error**2 + self.starts**2
        return joint**0.5, min(self.df * (joint / self.error**2) ** 2, _MANY)

    @property
    def half(self) -> float:
        """Half width of the 95 % interval, over all configurations together."""
        return quantile(1 - ALPHA, self.df, self.shares) * self.error

    @property
    def half_one_sided(self) -> float:
        """Distance to a one-sided 95 % bound, with what starts may add."""
        both = ((self.error, self.df), self.with_starts)
        return max(float(stats.t.ppf(1 - ALPHA, df)) * error for error, df in both)

    @property
    def p_with_starts(self) -> float:
        """Like ``p``, with what starts may add to the error; never below it."""
        error, df = self.with_starts
        return max(self.p, p_value(self.value / error, df, self.shares))


@dataclass(frozen=True, slots=True)
class Family:
    """All rows of one pair and metric, and their mean.

    Attributes:
        a: Compared with.
        b: The other.
        metric: What is compared.
        rows: Contrasts, those without an interval too.
        judged: One for each row; None without an interval or on anomalous cells.
        pooled: Their mean, from two rows on.
        rows_agree: None for a single row.
        q_p: Probability of Cochran's Q.
    """

    a: str
    b: str
    metric: str
    rows: tuple[Contrast, ...]
    judged: tuple[Judged | None, ...]
    pooled: Judged | None
    rows_agree: bool | None
    q_p: float | None


def family(found: Sequence[Contrast], rows: Rows, shares: Sequence[float]) -> Family:
    """Judge the rows of a pair together.

    Source: Holm over the rows and their mean: "faster" and "slower" anywhere in the
        family are wrong in 5 % of families without a difference, at most. With several
        configurations each p is Dunnett's.

    Args:
        found: Contrasts of one pair and metric, at least one.
        rows: Where they come from.
        shares: See ``Judged``.
    """
    judged = [_judged(one, tuple(shares)) for one in found]
    known = [i for i, j in enumerate(judged) if j is not None]
    usable = [found[i] for i in known]
    pooled, q_p = None, None
    if len(usable) > 1:
        pooled, q_p = _pooled(usable, rows, tuple(shares))
    agree = None if q_p is None else q_p >= ALPHA
    every = [j for j in (*judged, pooled if agree else None) if j is not None]
    held = iter(holm(every))
    out = [None if j is None else next(held) for j in judged]
    if pooled is not None and agree:
        pooled = next(held)
    first = found[0]
    return Family(
        a=first.a,
        b=first.b,
        metric=first.metric,
        rows=tuple(found),
        judged=tuple(out),
        pooled=pooled,
        rows_agree=agree,
        q_p=q_p,
    )


def _judged(one: Contrast, shares: tuple[float, ...]) -> Judged | None:
    if one.value is None or one.error is None or not one.sound:
        return None
    p = p_value(one.value / one.error, one.df, shares)
    return Judged(one.value, one.error, one.df, shares, p, one.starts)


def holm(found: Sequence[Judged]) -> list[Judged]:
    """Return them with p adjusted over all of them, and which hold at 5 %.

    What holds does so with what starts may add to its error too.
    """
    plain = _adjusted([one.p for one in found])
    strict = _adjusted([one.p_with_starts for one in found])
    return [
        replace(one, p_adjusted=p, holds=max(p, q) <= ALPHA)
        for one, p, q in zip(found, plain, strict, strict=True)
    ]


def _adjusted(ps: Sequence[float]) -> list[float]:
    """Return the p values over all of them.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    out = list(ps)
    reached = 0.0
    for rank, i in enumerate(order):
        reached = max(reached, min(1.0, ps[i] * (len(order) - rank)))
        out[i] = reached
    return out


def _pooled(
    found: Sequence[Contrast], rows: Rows, shares: tuple[float, ...]
) -> tuple[Judged | None, float | None]:
    """Return the mean over rows, and the probability that rows are alike.

    Source: inverse-variance mean. Where launches repeat its error is that of launches:
        what a launch does to all its rows at once is not thinned out by more rows;
        nor is what single starts are taken to add.
        Cochran's Q, referred to F because the variance is estimated.
    """
    sessions = tuple(dict.fromkeys(s for one in found for s in one.sessions))
    known = rows.spread(sessions)
    if known is None:
        return None, None
    values = np.array([one.value for one in found], dtype=float)
    errors = np.array([one.error for one in found], dtype=float)
    weights = np.array([one.weight for one in found])
    middle = float((weights * values).sum() / weights.sum())
    n = len(found)
    if known.alike:
        squares = float((weights * (values - middle) ** 2).sum()) / known.inner_ms
        inner_df: float = known.inner_df
    else:
        exact = 1 / errors**2
        own = float((exact * values).sum() / exact.sum())
        squares = float((exact * (values - own) ** 2).sum())
        inner_df = min(one.df for one in found)
    q_p = float(stats.f.sf(squares / (n - 1), n - 1, inner_df))
    if known.unit_ms is not None:
        if not known.unit_df:
            return None, q_p
        error, df = float(np.sqrt(known.unit_ms / weights.sum())), float(known.unit_df)
    elif known.alike:
        error, df = known.sd / float(np.sqrt(weights.sum())), known.df
    else:
        parts = (weights * errors / weights.sum()) ** 2
        error = float(np.sqrt(parts.sum()))
        df = float(
            parts.sum() ** 2
            / sum(p * p / one.df for p, one in zip(parts, found, strict=True))
        )
    starts = max(one.starts for one in found)
    p = p_value(middle / error, df, shares)
    return Judged(middle, error, df, shares, p, starts), q_p


def verdict(one: Judged, sign: int) -> Verdict:
    """Return what a difference is.

    ``faster`` and ``slower``: it holds, and is at least 1 %. ``same``: two one-sided
    tests within 2 % (Schuirmann 1987). Otherwise ``undetermined``.

    Args:
        one: The difference.
        sign: +1 where more is better.
    """
    if one.holds and abs(one.value) >= np.log1p(LEAST_EFFECT):
        return "faster" if one.value * sign > 0 else "slower"
    if abs(one.value) + one.half_one_sided < np.log1p(SAME):
        return "same"
    if one.holds:
        return "faster" if one.value * sign > 0 else "slower"
    return "undetermined"
