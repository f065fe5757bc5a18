"""Least squares with constant relative error, and the shapes that a step can take."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
#: Knees tried, evenly on a log scale between the first and the last point.
_N_KNEES = 220
_REWEIGHTINGS = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of a linear model with their 95 % intervals; residuals relative.

    ``sse``: sum of squared relative residuals. ``half`` is None without degrees of
    freedom.
    """

    theta: Floats
    half: Floats | None
    sse: float
    fitted: Floats
    n: int

    @property
    def rms_pct(self) -> float:
        """Root mean square of the relative residuals, percent."""
        return float(100 * np.sqrt(self.sse / self.n))

    def interval(self, i: int) -> tuple[float, float] | None:
        """Return the 95 % interval of one parameter."""
        if self.half is None:
            return None
        at, half = float(self.theta[i]), float(self.half[i])
        return at - half, at + half


def linear(design: Floats, y: Floats) -> Fit:
    """Fit y = design @ theta with errors proportional to the fitted value.

    Source: iteratively reweighted least squares, weights 1/fitted^2, three rounds.
    Assumes: independent errors of constant relative size.
    """
    # Columns may be bytes by the billion beside ones: scaled, nothing is ill-posed.
    scale = np.abs(design).max(axis=0)
    scale[scale == 0] = 1.0
    design = design / scale
    weight = 1 / y
    theta: Floats = np.zeros(design.shape[1])
    fitted: Floats = y.copy()
    for _ in range(_REWEIGHTINGS):
        solved = np.linalg.lstsq(design * weight[:, None], y * weight, rcond=None)
        theta = np.asarray(solved[0], dtype=np.float64)
        fitted = np.asarray(np.maximum(design @ theta, 1e-3 * y), dtype=np.float64)
        weight = 1 / fitted
    sse = float(np.sum(((y - fitted) / fitted) ** 2))
    n, k = design.shape
    half = None
    if n > k:
        scaled = design * weight[:, None]
        covariance = np.linalg.pinv(scaled.T @ scaled) * sse / (n - k)
        half = stats.t.ppf(0.975, n - k) * np.sqrt(np.diag(covariance))
        half = half / scale
    return Fit(theta=theta / scale, half=half, sse=sse, fitted=fitted, n=n)


@dataclass(frozen=True, slots=True)
class Hinge:
    """t = level below the knee, level + slope (x - knee) above; 95 % intervals."""

    level: float
    slope: float
    knee: float
    sse: float
    level_ci: tuple[float, float] | None
    slope_ci: tuple[float, float] | None
    knee_ci: tuple[float, float] | None
    at_the_end: bool


def hinge(x: Floats, y: Floats, sizes: Floats) -> Hinge | None:
    """Fit a hinge by trying knees; None with fewer than five sizes.

    Source: profile intervals: every knee whose SSE is at most
        SSE_min (1 + F(.95; 1, n - 3) / (n - 3)); level and slope take the union of
        their conditional intervals over those knees.
    Assumes: errors of constant relative size, independent from run to run.

    Args:
        x: Observed sequences per rank.
        y: Step times.
        sizes: Distinct sizes, ascending: where ``x`` of repeats is pooled.
    """
    if sizes.size < 5:
        return None
    knees = np.geomspace(sizes[0], sizes[-2], _N_KNEES)
    fits = [linear(np.column_stack([np.ones_like(x), np.maximum(x - k, 0)]), y)
            for k in knees]  # fmt: skip
    sse = np.array([f.sse for f in fits])
    best = int(np.argmin(sse))
    n = x.size
    limit = sse[best] * (1 + float(stats.f.ppf(0.95, 1, n - 3)) / (n - 3))
    inside = np.flatnonzero(sse <= limit)
    return Hinge(
        level=float(fits[best].theta[0]),
        slope=float(fits[best].theta[1]),
        knee=float(knees[best]),
        sse=float(sse[best]),
        level_ci=_union([fits[i].interval(0) for i in inside]),
        slope_ci=_union([fits[i].interval(1) for i in inside]),
        knee_ci=(float(knees[inside[0]]), float(knees[inside[-1]])),
        at_the_end=bool(inside[0] == 0 or inside[-1] == len(knees) - 1),
    )


def _union(
    parts: list[tuple[float, float] | None],
) -> tuple[float, float] | None:
    known = [p for p in parts if p is not None]
    if not known:
        return None
    return min(p[0] for p in known), max(p[1] for p in known)


def better(sse_small: float, sse_big: float, n: int, k_small: int, k_big: int) -> bool:
    """Return True when the bigger of two nested models is better at 5 %.

    Source: F-test on the drop of the residual sum of squares.
    Assumes: what the bigger model leaves is noise. Its own residual is the yardstick
        and not the spread of repeats: repeats on one launch agree far better than
        any model fits, and would make every bend significant.
    """
    if n <= k_big:
        return False
    if sse_big <= 1e-12:
        return sse_small > 1e-9
    f = (sse_small - sse_big) / (k_big - k_small) / (sse_big / (n - k_big))
    return bool(f > stats.f.ppf(0.95, k_big - k_small, n - k_big))


def aicc(sse: float, n: int, k: int) -> float:
    """Return Akaike's criterion, corrected for small n: for models that do not nest.

    Source: Hurvich and Tsai, "Regression and time series model selection in small
        samples", Biometrika 76 (1989); the variance counts as a parameter.
    Returns infinity where n is too small for it.
    """
    k += 1
    if n <= k + 1:
        return float("inf")
    return n * float(np.log(max(sse, 1e-12) / n)) + 2 * k * n / (n - k - 1)
