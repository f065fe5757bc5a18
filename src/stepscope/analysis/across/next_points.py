"""Where the next two concurrencies would teach a step model most."""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from stepscope.analysis.across.curves import Points
from stepscope.analysis.across.fits import Floats, Hinge, hinge, linear
from stepscope.analysis.across.records import StepModel

Target = Literal["knee", "level"]
_N_CANDIDATES = 24
_LEAST_SIZES = 3
#: Sizes closer than this in logs are repeats.
_SAME_SIZE = 0.04
_HOW_MANY = 2


class NextPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A concurrency to measure, and what it would do for a step model.

    Attributes:
        configuration: Of the model.
        session: Of the model.
        target: The number that it narrows.
        concurrency: Requests in flight over all ranks.
        seqs_per_rank: The same for one rank.
        width_now: Width of the target's 95 % interval: milliseconds, or for the knee
            sequences per rank; None: it has none.
        width_after: The width that is expected once it, and those before it in the
            list, are measured.
        narrows_pct: By how much it is narrower than before this point, percent.
        measured_before: A repeat of a concurrency that is known already.
    """

    configuration: str
    session: str | None
    target: Target
    concurrency: int
    seqs_per_rank: float
    width_now: float | None
    width_after: float
    narrows_pct: float | None
    measured_before: bool


def next_points(models: Sequence[StepModel], dp: int = 1) -> tuple[NextPoint, ...]:
    """Return for each model the two concurrencies that narrow its weakest number most.

    The knee where the model has one or may have one (a hinge), else the level. A
    candidate is judged by the interval that the model would have if the point were
    measured and lay on the curve, with the scatter of the points at hand; the second
    is chosen with the first in place. Candidates lie where a knee may be; for a level
    in the sweep, and one doubling beyond it where the shape needs no bytes.

    Assumes: the model's shape is right, and the next point scatters as those at hand.

    Args:
        models: Of one run.
        dp: Data-parallel ranks: concurrency per sequence and rank.
    """
    return tuple(found for model in models for found in _next(model, dp))


def _next(model: StepModel, dp: int) -> list[NextPoint]:
    points = _rows(model)
    if points.sizes.size < _LEAST_SIZES:
        return []
    target: Target = "knee" if model.kind == "hinge" else "level"
    now, n_first = _width(points, model, target, points.n), points.n
    found: list[NextPoint] = []
    for _ in range(_HOW_MANY):
        tried = [
            (width, concurrency, more)
            for concurrency in _candidates(points, model, dp)
            for more in [_with_point(points, model, concurrency / dp)]
            for width in [_width(more, model, target, n_first)]
            if width is not None
        ]
        if not tried:
            return found
        width, concurrency, points = min(tried, key=lambda each: each[:2])
        found.append(_said(model, target, concurrency, dp, (now, width)))
        now = width
    return found


def _said(
    model: StepModel,
    target: Target,
    concurrency: int,
    dp: int,
    widths: tuple[float | None, float],
) -> NextPoint:
    now, after = widths
    known = {round(x * dp) for x, _ in model.points}
    return NextPoint(
        configuration=model.configuration,
        session=model.session,
        target=target,
        concurrency=concurrency,
        seqs_per_rank=concurrency / dp,
        width_now=now,
        width_after=after,
        narrows_pct=None if not now else 100 * (1 - after / now),
        measured_before=concurrency in known,
    )


def _rows(model: StepModel) -> Points:
    """Return the points, one a size where the model counted them so."""
    x, y = np.array(model.points).T
    # Repeats hold the same concurrency up to a few hundredths of occupancy.
    order = np.sort(x)
    row = np.concatenate(([0], np.cumsum(np.diff(np.log(order)) > _SAME_SIZE)))
    points = Points.of(x, y, row[np.searchsorted(order, x)].astype(np.float64))
    if model.n_rows is not None and model.n_rows < points.n:
        return points.one_a_row()
    return points


def _candidates(points: Points, model: StepModel, dp: int) -> list[int]:
    """Return concurrencies to try: the sweep, and one doubling beyond its ends.

    Bytes are known within the sweep only. Where each row counts once, sizes that were
    measured are left out. A knee is looked for where it may lie, and
    half as far again on either side.
    """
    low, high = float(points.sizes[0]), float(points.sizes[-1])
    if model.kind == "hinge" and model.knee_ci95 is not None:
        low, high = model.knee_ci95[0] / 1.5, model.knee_ci95[1] * 1.5
    elif model.kind != "coverage":
        low, high = low / 2, high * 2
    tried = np.geomspace(max(low, 1.0), max(high, 1.0), _N_CANDIDATES)
    whole = sorted({max(round(c), 1) for c in tried.tolist()})
    if model.n_rows is not None and model.n_rows < model.n_points:
        # A repeat would be no new row.
        near = np.abs(np.log(np.array(whole)[:, None] / points.sizes)).min(axis=1)
        whole = [c for c, off in zip(whole, near, strict=True) if off > _SAME_SIZE]
    return [c * dp for c in whole]


def _with_point(points: Points, model: StepModel, at: float) -> Points:
    y = np.append(points.y, _on_curve(model, np.array([at])))
    return Points.of(np.append(points.x, at), y, np.append(points.asked, at))


def _on_curve(model: StepModel, at: Floats) -> Floats:
    """Return the model's curve, which is drawn within the sweep, and lines beyond."""
    xs, ys = np.array(model.curve).T
    slope = model.slope_ms_per_seq or 0.0
    inside = np.interp(np.log(at), np.log(xs), ys)
    beyond = np.maximum(at - xs[-1], 0.0)
    below = np.minimum(at - xs[0], 0.0) if model.kind == "line" else np.zeros_like(at)
    value: Floats = inside + slope * (beyond + below)
    return value


def _columns(model: StepModel, x: Floats) -> list[Floats]:
    """Return what a straight shape is made of, its level first."""
    ones = np.ones_like(x)
    if model.kind == "constant":
        return [ones]
    if model.kind == "line":
        return [ones, x]
    slope = model.slope_ms_per_seq or 0.0
    read = _on_curve(model, x) - (model.level_ms or 0.0) - slope * x
    return [ones, read, x] if slope else [ones, read]


def _width(
    points: Points, model: StepModel, target: Target, n_first: int
) -> float | None:
    """Return the width of the target's interval, errors as large as those at hand.

    A point on the curve adds nothing to the sum of squares but a degree of freedom:
    the width is scaled so that the scatter stays what it was.
    """
    if model.kind == "hinge":
        found, n_parameters = hinge(points.x, points.y, points.sizes), 3
        if found is None or n_first <= n_parameters:
            return None
        width = _of(found, target)
    else:
        columns = _columns(model, points.x)
        half, n_parameters = (
            linear(np.column_stack(columns), points.y).half,
            len(columns),
        )
        if half is None or n_first <= n_parameters:
            return None
        width = 2 * float(half[0])
    kept = (points.n - n_parameters) / (n_first - n_parameters)
    return width * float(np.sqrt(kept))


def _of(found: Hinge, target: Target) -> float:
    low, high = found.knee_ci if target == "knee" else found.level_ci
    return high - low
