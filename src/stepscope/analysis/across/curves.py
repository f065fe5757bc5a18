"""The shapes that step time over batch can take, each fitted to the same points."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from stepscope.analysis.across.fits import (
    Fit,
    Floats,
    bend_p,
    better,
    hinge,
    linear,
)
from stepscope.analysis.across.records import StepModelKind

#: Bytes of one step of one rank at x sequences per rank.
BytesAt = Callable[[float], float]
Interval = tuple[float, float] | None
#: A knee whose interval spans more is not claimed.
MOST_KNEE_SPAN = 4.0
#: A bend by chance where there is a line.
LEVEL = 0.05
#: A fitted bandwidth above the data sheet's by more can not be one.
_BANDWIDTH_TOLERANCE = 1.05
#: Why a line is refused whose slope is shown to be negative.
FALLS = "line: it falls as the batch grows"
#: Sizes nearer than this, as a part of the larger, are one.
_ONE_SIZE = 0.01


@dataclass(frozen=True, slots=True)
class Points:
    """What a model is fitted to.

    Attributes:
        x: Observed sequences per rank.
        y: Step times, milliseconds.
        asked: Concurrency of each point.
        sizes: Mean ``x`` at each concurrency, ascending; those within 1 % of the
            size below count as one with it.
    """

    x: Floats
    y: Floats
    asked: Floats
    sizes: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats, asked: Floats) -> "Points":
        """Pool the sizes of repeats, and of rows that a full cache holds at one."""
        means = np.sort([x[asked == c].mean() for c in np.unique(asked)])
        apart = np.diff(means, prepend=0.0) > _ONE_SIZE * means
        return cls(x=x, y=y, asked=asked, sizes=means[apart])

    @property
    def n(self) -> int:
        """Return the number of points."""
        return int(self.x.size)

    def pure_error(self) -> tuple[float, int]:
        """Return the squared relative error within rows, and its degrees of freedom."""
        logs, rows = np.log(self.y), np.unique(self.asked)
        inside = [logs[self.asked == c] for c in rows]
        total = sum(float(((row - row.mean()) ** 2).sum()) for row in inside)
        return total, self.n - rows.size

    def one_a_row(self) -> "Points":
        """Return each row's mean as one point."""
        rows = np.unique(self.asked)
        x = np.array([self.x[self.asked == c].mean() for c in rows])
        y = np.array([np.exp(np.log(self.y[self.asked == c]).mean()) for c in rows])
        return Points(x=x, y=y, asked=rows, sizes=self.sizes)

    def rows_deviate(self, sse: float, n_parameters: int) -> bool:
        """Return whether a model misses rows by more than their repeats differ.

        Then repeats of a row are no new evidence for a shape: they share what the
        row's kernels or batch shapes do that no smooth law holds, and each row counts
        once.

        Source: F-test of lack of fit against pure error, at 25 %, the usual level for
            a decision to pool (T. A. Bancroft, Biometrics 20 (1964)).
        """
        within, df = self.pure_error()
        df_rows = int(np.unique(self.asked).size) - n_parameters
        if df < 1 or df_rows < 1:
            return False
        lack = max(sse - within, 0.0) / df_rows
        if within <= 1e-12:
            return lack > 1e-9
        return bool(lack / (within / df) > stats.f.ppf(0.75, df_rows, df))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One fitted shape; intervals are 95 %.

    ``knee`` is None for a hinge whose knee is not pinned down, although
    ``knee_ci`` says where it may lie. ``n_parameters`` counts the fitted ones, ``n``
    the points.
    """

    kind: StepModelKind
    at: Callable[[Floats], Floats]
    sse: float
    n: int
    n_parameters: int
    level: float
    level_ci: Interval = None
    slope: float = 0.0
    slope_ci: Interval = None
    knee: float | None = None
    knee_ci: Interval = None
    asymptote: float | None = None
    asymptote_ci: Interval = None
    bandwidth: float | None = None
    bandwidth_ci: Interval = None
    rejected: tuple[str, ...] = field(default=())


def plain(points: Points) -> Curve:
    """Return constant, line or hinge, whichever the F-tests allow at 5 %."""
    x, y, n = points.x, points.y, points.n
    ones = np.ones_like(x)
    flat = linear(ones[:, None], y)
    line = linear(np.column_stack([ones, x]), y)
    bent = _hinge(points)
    rejected: tuple[str, ...] = ("hinge: it needs five sizes",) if bent is None else ()
    if bent is not None:
        drop = (line.sse - bent.sse) / max(bent.sse, 1e-12) * (n - 3)
        bends = bend_p(x, line, points.sizes, drop) < LEVEL
        if bends and better(flat.sse, bent.sse, n, 1, 3) and bent.slope > 0:
            return bent
        rejected = ("hinge: no better than a line",)
    no_line = "line: no better than a constant"
    if better(flat.sse, line.sse, n, 1, 2):
        if line.theta[1] > 0:
            return _line(line, rejected)
        no_line = FALLS
    level = float(flat.theta[0])
    return Curve(
        kind="constant",
        at=lambda xs: np.full_like(xs, level),
        sse=flat.sse,
        n=n,
        n_parameters=1,
        level=level,
        level_ci=flat.interval(0),
        rejected=(*rejected, no_line),
    )


def _line(line: Fit, rejected: tuple[str, ...]) -> Curve:
    a, b = float(line.theta[0]), float(line.theta[1])
    return Curve(
        kind="line",
        at=lambda xs: a + b * xs,
        sse=line.sse,
        n=line.n,
        n_parameters=2,
        level=a,
        level_ci=line.interval(0),
        slope=b,
        slope_ci=line.interval(1),
        rejected=rejected,
    )


def _hinge(points: Points) -> Curve | None:
    bent = hinge(points.x, points.y, points.sizes)
    if bent is None:
        return None
    level, slope, knee = bent.level, bent.slope, bent.knee
    rejected = []
    low, high = bent.knee_ci
    if bent.at_the_end:
        rejected.append(f"knee: {low:.3g} to {high:.3g} reaches the sweep's end")
    elif high / low > MOST_KNEE_SPAN:
        rejected.append(f"knee: {low:.3g} to {high:.3g} spans too much")
    return Curve(
        kind="hinge",
        at=lambda xs: level + slope * np.maximum(xs - knee, 0),
        sse=bent.sse,
        n=points.n,
        n_parameters=3,
        level=level,
        level_ci=bent.level_ci,
        slope=slope,
        slope_ci=bent.slope_ci,
        knee=None if rejected else knee,
        knee_ci=bent.knee_ci,
        asymptote=None if rejected else bent.asymptote,
        asymptote_ci=None if rejected else bent.asymptote_ci,
        rejected=tuple(rejected),
    )


#: Sizes below which three terms are not fitted, a check of a known shape excepted.
LEAST_SIZES = 5


def coverage(
    points: Points,
    bytes_at: BytesAt,
    peak: float | None,
    *,
    least_sizes: int = LEAST_SIZES,
) -> Curve | str:
    """Return t = toll + bytes(x) / bandwidth + slope x, none of them negative.

    Assumes: bytes are read at one bandwidth at every size, experts are drawn
        uniformly, and nothing else that costs time is shaped like the coverage of
        experts.

    Args:
        points: At least ``least_sizes`` of them, since three numbers are fitted.
        bytes_at: Bytes of one step of one rank.
        peak: The data sheet's bandwidth, bytes per second; None where unknown.
        least_sizes: Five for a model that is reported, four to check one.

    Returns:
        The curve, or why there is none.
    """
    if points.sizes.size < least_sizes:
        return "coverage: it needs five sizes"
    size = np.array([bytes_at(float(at)) for at in points.x])
    columns = {"toll": np.ones_like(points.x), "bytes": size, "slope": points.x}
    fit, kept = _positive(columns, points.y)
    if "bytes" not in kept:
        return "coverage: step time does not grow with the bytes read"
    index = {key: i for i, key in enumerate(kept)}
    value = {key: float(fit.theta[i]) for key, i in index.items()}
    ci = {key: fit.interval(i) for key, i in index.items()}
    bandwidth = 1e3 / value["bytes"]
    if peak is not None and bandwidth > peak * _BANDWIDTH_TOLERANCE:
        return f"coverage: it would take {bandwidth / peak:.1f} x the peak bandwidth"
    toll, slope = value.get("toll", 0.0), value.get("slope", 0.0)

    def curve(xs: Floats) -> Floats:
        moved = np.array([bytes_at(float(v)) for v in xs])
        return np.asarray(toll + value["bytes"] * moved + slope * xs)

    per_byte = ci["bytes"]
    known = per_byte is not None and per_byte[0] > 0
    return Curve(
        kind="coverage",
        at=curve,
        sse=fit.sse,
        n=fit.n,
        n_parameters=len(kept),
        level=toll,
        level_ci=ci.get("toll"),
        slope=slope,
        slope_ci=ci.get("slope"),
        bandwidth=bandwidth,
        bandwidth_ci=(1e3 / per_byte[1], 1e3 / per_byte[0])
        if known and per_byte is not None
        else None,
    )


def _positive(columns: dict[str, Floats], y: Floats) -> tuple[Fit, list[str]]:
    """Fit; drop the most negative term and fit again until none is negative."""
    kept = list(columns)
    while True:
        fit = linear(np.column_stack([columns[k] for k in kept]), y)
        scale = [fit.theta[i] * np.mean(columns[k]) for i, k in enumerate(kept)]
        worst = int(np.argmin(scale))
        if scale[worst] >= 0 or len(kept) == 1:
            return fit, kept
        kept.pop(worst)
