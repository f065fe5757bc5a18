"""How many runs it takes to see a difference."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

_POWER = 0.8
_MOST_RUNS = 1000
_N_QUANTILES = 400


def power(n: int, effect: float, sd: float) -> float:
    """Return the chance that n runs an arm show a difference, two-sided at 5 %.

    Source: power of the two-sample t test; the mean over the distribution of the
        estimated SD of the normal probability (scipy's noncentral t gives NaN for
        large effects).
    Assumes: independent runs, equal SD of logs in both arms.

    Args:
        n: Runs an arm, two at least.
        effect: True difference of logs.
        sd: Run-to-run SD of logs.
    """
    shift = abs(effect) / (sd * np.sqrt(2 / n))
    limit = _limits(2 * (n - 1))
    chance = stats.norm.cdf(shift - limit) + stats.norm.cdf(-shift - limit)
    return float(chance.mean())


@lru_cache(maxsize=4096)
def _limits(df: int) -> npt.NDArray[np.float64]:
    """Return the t limit in true standard errors, over the estimates of the SD."""
    middle = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    ratio = np.sqrt(stats.chi2.ppf(middle, df) / df)
    return np.asarray(float(stats.t.ppf(0.975, df)) * ratio)


def runs_needed(effect: float, sd: float) -> int | None:
    """Return runs an arm that show ``effect`` with 80 % power; None above 1,000."""
    low, high = 2, _MOST_RUNS
    if power(high, effect, sd) < _POWER:
        return None
    while low < high:
        middle = (low + high) // 2
        if power(middle, effect, sd) >= _POWER:
            high = middle
        else:
            low = middle + 1
    return low


def sd_upper(sd: float, df: float) -> float:
    """Return the 80 % upper bound of an SD: what a plan should reckon with.

    Source: chi-square interval of a variance.
    """
    return sd * float(np.sqrt(df / stats.chi2.ppf(0.2, df)))
