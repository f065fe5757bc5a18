"""How wrong a model is where it was not fitted: leave measured sizes out, predict them.

The intervals of a fit's parameters hold noise alone. What a prediction misses by is
mostly the shape, so the error is taken from predictions that could be checked.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from stepscope.analysis.across.curves import Curve, Points
from stepscope.analysis.across.fits import Floats

#: From points to a curve: the whole procedure, the choice of a shape included.
Fitter = Callable[[Points], Curve]
#: A run repeats no better than this, whatever few repeats say.
_LEAST_SD = 0.003
#: Fewer sizes left than this are no model to check.
_LEAST_SIZES = 3
#: Beyond so many doublings outside the measured range nothing is predicted.
MOST_DOUBLINGS = 2.0


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of predictions, as standard deviations of logs.

    Attributes:
        inside: Between measured sizes.
        per_doubling_up: What a doubling above the largest adds; None: no check of
            it was possible.
        per_doubling_down: The same below the smallest.
        quantile: Of Student's t at 97.5 % for the checks at hand.
    """

    inside: float
    per_doubling_up: float | None
    per_doubling_down: float | None
    quantile: float

    def half(self, low: float, high: float, x: float) -> float | None:
        """Return half a 95 % interval of a log prediction at ``x``.

        None: too far outside ``low`` to ``high``, or nothing tells how errors grow.
        """
        far = doublings_outside(low, high, x)
        if far == 0:
            return self.quantile * self.inside
        growth = self.per_doubling_up if x > high else self.per_doubling_down
        if growth is None or far > MOST_DOUBLINGS + 1e-9:
            return None
        return self.quantile * float(np.hypot(self.inside, growth * far))


def doublings_outside(low: float, high: float, x: float) -> float:
    """Return how many doublings ``x`` lies outside a range; a hundredth is inside."""
    far = max(np.log2(x / high), np.log2(low / x), 0.0)
    return float(far) if far > 0.02 else 0.0


def errors(points: Points, fit: Fitter, again: Fitter | None = None) -> Errors | None:
    """Return how well the procedure predicts sizes that it did not see.

    Source: leave-one-size-out errors for the inside; for the outside the worst error
        of fits to the lower (upper) sizes at the sizes beyond, over their distance.
    Assumes: errors of constant relative size inside, and growing in proportion to
        the doublings outside; repeats of one size are left out together, for they
        would vouch for one another. Fits of another shape than the one in use are
        no check of it where others are at hand, as where too few sizes are left.

    Args:
        points: Step time over sequences per rank.
        fit: The procedure as it is used.
        again: The same for fewer points; None: ``fit``.

    Returns:
        None below four sizes: nothing would be left to fit.
    """
    sizes = np.unique(points.asked)
    if sizes.size < _LEAST_SIZES + 1:
        return None
    full = fit(points)
    n_free = max(sizes.size - full.n_parameters, 1)
    within = float(np.sqrt(full.sse / max(full.n - full.n_parameters, 1)))
    again = again or fit
    left = [_misses(points, again, points.asked != c) for c in sizes[1:-1]]
    alike = [m for m in left if m[0] == full.kind]
    inner = [misses[0][1] for _, misses in alike or left]
    left_out = float(np.sqrt(np.mean(np.square(inner))))
    noise = max(within, left_out, _LEAST_SD)
    return Errors(
        inside=noise,
        per_doubling_up=_growth(points, again, sizes, full.kind),
        per_doubling_down=_growth(points, again, sizes[::-1], full.kind),
        quantile=float(stats.t.ppf(0.975, n_free)),
    )


def _misses(
    points: Points, fit: Fitter, kept: npt.NDArray[np.bool_]
) -> tuple[str, list[tuple[float, float]]]:
    """Return the shape that was fitted, and of each size left out how it missed.

    A miss is (doublings outside what was kept, log error).
    """
    curve = fit(Points.of(points.x[kept], points.y[kept], points.asked[kept]))
    low, high = float(points.x[kept].min()), float(points.x[kept].max())
    found = []
    for size in np.unique(points.asked[~kept]):
        here = points.asked == size
        x = float(points.x[here].mean())
        seen = float(np.log(points.y[here]).mean())
        told = max(float(curve.at(np.array([x]))[0]), 1e-9)
        found.append((doublings_outside(low, high, x), seen - float(np.log(told))))
    return curve.kind, found


def _growth(points: Points, fit: Fitter, sizes: Floats, kind: str) -> float | None:
    """Return the worst error a doubling of fits to the first sizes at later ones.

    The worst, since the checks are few and share most of their points. Fits of
    another shape than the one in use are no check of it, as where too few sizes are
    left for the shape.
    """
    rates: list[float] = []
    for n in range(_LEAST_SIZES, sizes.size):
        chosen, misses = _misses(points, fit, np.isin(points.asked, sizes[:n]))
        if chosen != kind:
            continue
        rates += [
            error / far for far, error in misses if 0 < far <= MOST_DOUBLINGS + 0.5
        ]
    return max(map(abs, rates)) if rates else None
