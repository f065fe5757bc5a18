"""Least squares with constant relative error, and the shapes that a step can take."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
#: Knees tried, evenly on a log scale between the first and the last point.
_N_KNEES = 220
_REWEIGHTINGS = 3
_N_DRAWS = 1000


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
    """t = level below the knee, level + slope (x - knee) above; 95 % intervals.

    ``asymptote`` is level - slope x knee.
    """

    level: float
    slope: float
    knee: float
    asymptote: float
    sse: float
    level_ci: tuple[float, float]
    slope_ci: tuple[float, float]
    knee_ci: tuple[float, float]
    asymptote_ci: tuple[float, float]
    at_the_end: bool


@dataclass(frozen=True, slots=True)
class _Bends:
    """Hinges of one sweep, one for each knee tried: arrays over the knees.

    ``v``: the covariance of (level, slope) over the variance of a relative error, as
    its three numbers (level, slope, both).
    """

    knees: Floats
    level: Floats
    slope: Floats
    sse: Floats
    v: tuple[Floats, Floats, Floats]


def knees_of(sizes: Floats) -> Floats:
    """Return the knees that are tried, between the first and the last size but one."""
    return np.geomspace(sizes[0], sizes[-2], _N_KNEES)


def _bends(x: Floats, y: Floats, knees: Floats) -> _Bends:
    """Fit level and slope at every knee, as ``linear`` does."""
    above = np.maximum(x - knees[:, None], 0.0)
    weight = np.broadcast_to(1 / y**2, above.shape)
    level = slope = det = np.zeros_like(knees)
    fitted = np.broadcast_to(y, above.shape)
    s0 = s1 = s2 = det
    for _ in range(_REWEIGHTINGS):
        s0, s1 = weight.sum(axis=1), (weight * above).sum(axis=1)
        s2 = (weight * above**2).sum(axis=1)
        t0, t1 = (weight * y).sum(axis=1), (weight * above * y).sum(axis=1)
        det = np.maximum(s0 * s2 - s1**2, 1e-300)
        level, slope = (s2 * t0 - s1 * t1) / det, (s0 * t1 - s1 * t0) / det
        fitted = np.maximum(level[:, None] + slope[:, None] * above, 1e-3 * y)
        weight = 1 / fitted**2
    sse = (((y - fitted) / fitted) ** 2).sum(axis=1)
    return _Bends(knees, level, slope, sse, (s2 / det, s0 / det, -s1 / det))


def hinge(x: Floats, y: Floats, sizes: Floats) -> Hinge | None:
    """Fit a hinge by trying knees; None with fewer than five sizes or four points.

    Source: profile intervals: of every number the values that some hinge has whose
        SSE is at most SSE_min (1 + F(.95; 1, n - 3) / (n - 3)).
    Assumes: errors of constant relative size, independent from point to point.

    Args:
        x: Observed sequences per rank.
        y: Step times.
        sizes: Distinct sizes, ascending: where ``x`` of repeats is pooled.
    """
    n = x.size
    if sizes.size < 5 or n < 4:
        return None
    allowed = 1 + float(stats.f.ppf(0.95, 1, n - 3)) / (n - 3)
    coarse = _bends(x, y, knees_of(sizes))
    near = np.flatnonzero(coarse.sse <= coarse.sse.min() * allowed)
    # A well-known knee lies between two places: look closer there.
    ends = max(near[0] - 1, 0), min(near[-1] + 1, _N_KNEES - 1)
    closer = np.geomspace(coarse.knees[ends[0]], coarse.knees[ends[1]], _N_KNEES)
    tried = _bends(x, y, closer)
    best = int(np.argmin(tried.sse))
    room = tried.sse[best] * allowed - tried.sse
    inside = np.flatnonzero(room >= 0)
    asymptote = tried.level - tried.slope * tried.knees
    v_level, v_slope, v_both = tried.v
    v_asymptote = v_level + tried.knees**2 * v_slope - 2 * tried.knees * v_both

    def profile(value: Floats, variance: Floats) -> tuple[float, float]:
        half = np.sqrt(np.maximum(room[inside] * variance[inside], 0.0))
        middle = value[inside]
        return float((middle - half).min()), float((middle + half).max())

    return Hinge(
        level=float(tried.level[best]),
        slope=float(tried.slope[best]),
        knee=float(tried.knees[best]),
        asymptote=float(asymptote[best]),
        sse=float(tried.sse[best]),
        level_ci=profile(tried.level, v_level),
        slope_ci=profile(tried.slope, v_slope),
        knee_ci=(float(tried.knees[inside[0]]), float(tried.knees[inside[-1]])),
        asymptote_ci=profile(asymptote, v_asymptote),
        at_the_end=bool(near[0] == 0 or near[-1] == _N_KNEES - 1),
    )


def bend_p(x: Floats, line: Fit, sizes: Floats, f: float) -> float:
    """Return the chance of so large an F of a hinge over a line, where there is none.

    The knee is searched for, and a hinge with its knee inside the sweep holds no line:
    F does not follow the F distribution. Its distribution is drawn instead, 1,000
    times from a fixed seed, from the fitted line with its own scatter.

    Source: R. B. Davies, "Hypothesis Testing when a Nuisance Parameter is Present only
        under the Alternative", Biometrika 64 (1977), on why; parametric bootstrap.
    Assumes: independent normal relative errors.

    Args:
        x: Observed sequences per rank.
        line: The line that was fitted.
        sizes: Distinct sizes, ascending.
        f: (SSE of line - SSE of hinge) / (SSE of hinge / (n - 3)).
    """
    n = x.size
    sd = np.sqrt(line.sse / (n - 2))
    drawn = 1 + sd * np.random.default_rng(0).normal(size=(n, _N_DRAWS))
    whole = (drawn**2).sum(axis=0)
    kept, _ = np.linalg.qr(np.column_stack([1 / line.fitted, x / line.fitted]))
    straight = whole - ((kept.T @ drawn) ** 2).sum(axis=0)
    above = np.maximum(x - knees_of(sizes)[:, None], 0.0) / line.fitted
    level = np.broadcast_to(1 / line.fitted, above.shape)
    level = level / np.linalg.norm(level, axis=1, keepdims=True)
    above = above - (above * level).sum(axis=1, keepdims=True) * level
    above = above / np.linalg.norm(above, axis=1, keepdims=True)
    explained = (level[:1] @ drawn) ** 2 + ((above @ drawn) ** 2).max(axis=0)
    bent = np.maximum(whole - explained[0], 1e-300)
    return float(np.mean((straight - bent) / bent * (n - 3) >= f))


def better(sse_small: float, sse_big: float, n: int, k_small: int, k_big: int) -> bool:
    """Return True when the bigger of two nested models is better at 5 %.

    Source: F-test on the drop of the residual sum of squares.
    Assumes: errors of the points are independent. Where rows deviate from every model
        by more than their repeats do, give one point a row (``Points.one_a_row``).
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
