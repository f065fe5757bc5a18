"""Several configurations against one baseline: Dunnett's law, by quadrature."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

Floats = npt.NDArray[np.float64]

_N_NORMAL = 48
_N_SPREAD = 64


def p_value(t: float, df: float, shares: Sequence[float]) -> float:
    """Return the chance that any |t| of the family is as large, without a difference.

    Source: Dunnett, JASA 50 (1955): the t's share the baseline's mean and the spread.
        Given both they are independent, so the joint probability is a double integral
        of a product; here Gauss-Hermite nodes times chi-square quantiles.
    Assumes: one normal spread for all.

    Args:
        t: The largest, or the one in question.
        df: Degrees of freedom of the spread.
        shares: For each configuration the part of its difference's variance that is
            the baseline's: n / (n + n_baseline). One: Student's t.
    """
    if len(shares) < 2:
        return float(2 * stats.t.sf(abs(t), df))
    return min(max(1.0 - _inside(abs(t), df, tuple(shares)), 0.0), 1.0)


@lru_cache(maxsize=1024)
def quantile(level: float, df: float, shares: tuple[float, ...]) -> float:
    """Return the two-sided limit that all t's of the family stay within.

    Args:
        level: Such as 0.95.
        df: Degrees of freedom of the spread.
        shares: As in ``p_value``.
    """
    if len(shares) < 2:
        return float(stats.t.ppf(0.5 + level / 2, df))
    low = float(stats.t.ppf(0.5 + level / 2, df))
    # Bonferroni's limit is never too small.
    high = float(stats.t.ppf(1 - (1 - level) / (2 * len(shares)), df)) + 1e-6
    if _inside(high, df, shares) <= level:
        return high
    found = optimize.brentq(
        lambda t: _inside(t, df, shares) - level, low, high, xtol=1e-4
    )
    return float(found)


@lru_cache(maxsize=4096)
def _inside(t: float, df: float, shares: tuple[float, ...]) -> float:
    nodes, weights = _normal()
    scale, width = _spread(df)
    inside = np.ones((_N_SPREAD, _N_NORMAL))
    for share, n in Counter(shares).items():
        own = np.sqrt(1 - share)
        shift = np.sqrt(share) * nodes[None, :]
        limit = t * scale[:, None]
        one = special.ndtr((shift + limit) / own) - special.ndtr((shift - limit) / own)
        inside *= one**n
    return float((inside @ weights) @ width)


@lru_cache(maxsize=1)
def _normal() -> tuple[Floats, Floats]:
    """Return nodes of the baseline's mean and their probabilities."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_N_NORMAL)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=256)
def _spread(df: float) -> tuple[Floats, Floats]:
    """Return estimated over true spread, and the probabilities."""
    middle, width = np.polynomial.legendre.leggauss(_N_SPREAD)
    return np.sqrt(stats.chi2.ppf((middle + 1) / 2, df) / df), width / 2
