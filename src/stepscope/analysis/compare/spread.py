"""How much figures vary by themselves: between launches, and inside them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: unit (a launch, or one run) -> row -> mean of logs. One table an arm and session.
Units = Mapping[str, Mapping[object, float]]
#: Draws of the null distribution of Bartlett's statistic.
_N_DRAWS = 4000
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Spread:
    """Variation of logs, pooled over rows and arms.

    Attributes:
        sd: Of one unit at one row.
        df: Its degrees of freedom; below those of independent rows where all rows of
            a launch move together.
        unit_ms: Mean square between units over all their rows; None where a unit has
            one row.
        unit_df: Its degrees of freedom.
        inner_ms: Mean square of what is left of a unit's rows.
        inner_df: Its degrees of freedom.
        alike: False where rows or arms differ in spread by more than chance; each row
            then stands on its own.
    """

    sd: float
    df: float
    unit_ms: float | None
    unit_df: int
    inner_ms: float
    inner_df: int
    alike: bool


def spread(tables: Sequence[Units], *, nested: bool) -> Spread | None:
    """Return the spread of units around the means of their arm and row.

    Source: split-plot analysis of variance: launches are whole plots, rows split
        them. The pooled variance is the sum of both strata, its degrees of freedom are
        Satterthwaite's. Where launches move all rows alike they come down to those of
        the launches; counting every row would claim several times as many.
    Assumes: log-normal figures of one relative spread, which ``alike`` tests; an
        incomplete table is treated as if its rows were balanced.

    Args:
        tables: One for each arm and session.
        nested: Units are launches with several rows; False: each unit is one run.

    Returns:
        None where nothing repeats.
    """
    residuals: dict[tuple[int, str], list[float]] = defaultdict(list)
    groups: list[list[float]] = []
    df, unit_df = 0, 0
    for number, units in enumerate(tables):
        rows: dict[object, list[tuple[str, float]]] = defaultdict(list)
        for unit, values in units.items():
            for row, value in values.items():
                rows[row].append((unit, value))
        repeated = {
            name for pairs in rows.values() if len(pairs) > 1 for name, _ in pairs
        }
        unit_df += max(len(repeated) - 1, 0)
        for pairs in rows.values():
            if len(pairs) > 1:
                middle = float(np.mean([v for _, v in pairs]))
                df += len(pairs) - 1
                groups.append([v for _, v in pairs])
                for unit, value in pairs:
                    residuals[(number, unit)].append(value - middle)
    if not df:
        return None
    total = sum(r * r for rs in residuals.values() for r in rs)
    unit_ss = sum(len(rs) * float(np.mean(rs)) ** 2 for rs in residuals.values())
    sd = max(float(np.sqrt(total / df)), _TINY)
    alike = _alike(groups)
    if not nested or df <= unit_df:
        return Spread(sd, df, None, 0, sd * sd, df, alike)
    inner_df = df - unit_df
    inner_ss = max(total - unit_ss, 0.0)
    shares = unit_ss**2 / max(unit_df, 1) + inner_ss**2 / inner_df
    joint = (unit_ss + inner_ss) ** 2 / shares if shares > 0 else float(df)
    return Spread(
        sd=sd,
        df=min(max(joint, 1.0), float(df)),
        unit_ms=max(unit_ss / unit_df, _TINY**2),
        unit_df=unit_df,
        inner_ms=max(inner_ss / inner_df, _TINY**2),
        inner_df=inner_df,
        alike=alike,
    )


def welch(sizes: Sequence[int], variances: Sequence[float]) -> tuple[float, float]:
    """Return the error of a contrast of means and its degrees of freedom.

    Source: Welch and Satterthwaite.

    Args:
        sizes: Values of each mean, two at least.
        variances: Their sample variances.
    """
    parts = [max(v, _TINY**2) / n for n, v in zip(sizes, variances, strict=True)]
    joint = sum(parts) ** 2
    df = joint / sum(p * p / (n - 1) for n, p in zip(sizes, parts, strict=True))
    return float(np.sqrt(sum(parts))), df


def _alike(groups: Sequence[Sequence[float]]) -> bool:
    """Tell whether groups can have one variance, at 5 %.

    Source: Bartlett's statistic. With two or three values a group its chi-square
        approximation is poor, so its null distribution is drawn; it depends on the
        sizes alone.
    """
    if len(groups) < 2:
        return True
    variances = np.maximum([np.var(g, ddof=1) for g in groups], _TINY**2)
    df = tuple(len(g) - 1 for g in groups)
    return float(_bartlett(variances[None, :], np.array(df))[0]) <= _limit(df)


@lru_cache(maxsize=256)
def _limit(df: tuple[int, ...]) -> float:
    rng = np.random.default_rng(20261130)
    sizes = np.array(df)
    drawn = rng.chisquare(sizes, (_N_DRAWS, sizes.size)) / sizes
    return float(np.quantile(_bartlett(drawn, sizes), 0.95))


def _bartlett(variances: Floats, df: npt.NDArray[np.int64]) -> Floats:
    """Return the statistic of each row of ``variances``, float64[n, groups]."""
    pooled = (variances * df).sum(axis=1) / df.sum()
    logs = (np.log(variances) * df).sum(axis=1)
    return np.asarray(df.sum() * np.log(pooled) - logs)
