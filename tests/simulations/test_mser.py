"""What MSER-5 leaves of a transient, and how often steady cells are called unsteady.

Run: pytest -m slow -s tests/simulations/test_mser.py
"""

import numpy as np
import pytest

from stepscope.analysis.cell.columns import Floats
from stepscope.analysis.cell.steady import (
    DRIFT_ERRORS,
    MOST_CUT,
    MOST_DRIFT,
    batch_means_error_pct,
    halves,
    mser5,
)

pytestmark = pytest.mark.slow
N = 1000


def noise(rng: np.random.Generator, n: int, rho: float, sd: float) -> Floats:
    """A first-order autoregressive series of the given marginal SD."""
    e = rng.normal(0, sd * np.sqrt(1 - rho**2), n)
    out = np.empty(n)
    last = rng.normal(0, sd)
    for i in range(n):
        last = rho * last + e[i]
        out[i] = last
    return out


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_bias_that_truncation_leaves(rho: float) -> None:
    rng = np.random.default_rng(3)
    n, before, after, cut = 800, [], [], []
    shape = 0.25 * np.exp(-np.arange(n) / 40)
    for _ in range(N):
        series = 1 + shape + noise(rng, n, rho, 0.05)
        at = mser5(series)
        before.append(shape.mean())
        after.append(series[at:].mean() - 1)
        cut.append(at / n)
    bias = 100 * float(np.mean(after))
    print(
        f"\nautocorrelation {rho}: {100 * np.mean(before):.2f} % before, {bias:+.2f} %"
        f" after, {100 * np.mean(cut):.0f} % cut"
    )
    assert abs(bias) < 0.35


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [250, 2000])
def test_how_often_a_steady_cell_is_called_unsteady(rho: float, n: int) -> None:
    rng = np.random.default_rng(4)
    late = drifts = false = 0
    covered = []
    for _ in range(N):
        series = 1 + noise(rng, n, rho, 0.03)
        at = mser5(series)
        cut = at / n
        off = np.log(series[:at].mean() / series[at:].mean()) if at else 0.0
        late += cut > MOST_CUT
        change, error = halves(series)
        assert change is not None
        assert error is not None
        moved = abs(change) > max(MOST_DRIFT, DRIFT_ERRORS * error)
        drifts += moved
        limit = max(MOST_DRIFT, DRIFT_ERRORS * error)
        false += moved or (cut > MOST_CUT and abs(off) > limit)
        half = batch_means_error_pct(series)
        assert half is not None
        covered.append(abs(series.mean() - 1) * 100 < half * series.mean())
    print(
        f"\nn {n}, autocorrelation {rho}: MSER-5 beyond half {100 * late / N:.1f} %,"
        f" drift {100 * drifts / N:.1f} %, not-steady {100 * false / N:.1f} %;"
        f" batch means cover {100 * np.mean(covered):.1f} %"
    )
    assert false / N <= 0.02
    assert np.mean(covered) > (0.78 if rho == 0.9 and n == 250 else 0.91)
