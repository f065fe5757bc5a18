"""Step time over sequences per rank: constant, line, hinge, or bytes that grow."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from stepscope.analysis.across.curves import (
    FALLS,
    LEAST_SIZES,
    BytesAt,
    Curve,
    Points,
    coverage,
    plain,
)
from stepscope.analysis.across.fits import aicc, better
from stepscope.analysis.across.points import (
    Shape,
    in_step,
    readable,
    shape_of,
    tokens_a_step,
    whole_waves,
)
from stepscope.analysis.across.records import StepModel
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

_N_CURVE = 60
#: A model that leaves more describes nothing.
_POOR_PCT = 10.0
#: "It does not depend on the batch" needs points that agree this well.
_CONSTANT_PCT = 5.0

#: Step times, best first: what they are called and how to take them from a cell.
SOURCES: dict[str, Callable[[CellResult], float | None]] = {
    "engine step": lambda cell: cell.engine_step_ms,
    "server TPOT": lambda cell: _of_step(cell, cell.server_tpot_ms),
    "client TPOT": lambda cell: _of_step(cell, cell.tpot_ms.mean),
}


def _of_step(cell: CellResult, tpot_ms: float | None) -> float | None:
    """Return the step that a token time comes to: drafts give a step several tokens."""
    return None if tpot_ms is None else tpot_ms * tokens_a_step(cell)


@dataclass(frozen=True, slots=True)
class Bytes:
    """What physics says of the model: bytes per step and the data sheet's bandwidth."""

    at: BytesAt
    peak_bytes_per_s: float | None


#: The same for cells of one shape of requests; None where their context is unknown.
BytesOf = Callable[[Sequence[CellResult]], Bytes | None]


def step_ms(cell: CellResult) -> float | None:
    """Return the step time of a cell: the engine's own, else TPOT as the server saw it.

    TPOT is the step time only when no prefill shares the steps.
    """
    values = (take(cell) for take in SOURCES.values())
    return next((value for value in values if value is not None), None)


def step_source(cells: Sequence[CellResult]) -> str:
    """Return the best step time that all cells have, so that none are mixed."""
    for name, take in SOURCES.items():
        if all(take(cell) is not None for cell in cells):
            return name
    return "client TPOT"


def step_models(
    cells: Sequence[CellResult],
    dp: int,
    physics: BytesOf | None,
    leave_out: frozenset[str] = frozenset(),
) -> tuple[tuple[StepModel, ...], list[Finding]]:
    """Fit each configuration of each session that has three sizes or more.

    Left out: void, unfinished and warm-up cells, first runs that stand apart, cells
    with a stall after their first content, and cells with an incomplete last wave
    where there are others. A cell with an odd TTFT stays: the wait for the first
    token is no part of TPOT.

    Args:
        cells: All cells.
        dp: Data-parallel ranks.
        physics: For a mixture of experts whose shape is known; otherwise None.
        leave_out: Names of further cells to leave out.
    """
    rows: dict[tuple[str, str, Shape], list[CellResult]] = defaultdict(list)
    for cell in readable(cells):
        if cell.name not in leave_out and step_ms(cell) and cell.concurrency:
            key = (cell.configuration, cell.session, shape_of(cell))
            rows[key].append(cell)
    models, findings = [], []
    for (configuration, session, _), members in rows.items():
        whole = [c for c in members if whole_waves(c)]
        used = whole if len({c.concurrency for c in whole}) >= 3 else members
        model, found = _model(
            configuration, used, dp, None if physics is None else physics(used)
        )
        findings += found
        if model is not None:
            names = tuple(c.name for c in used)
            models.append(msgspec.structs.replace(model, session=session, cells=names))
    return tuple(models), findings


def points_of(cells: Sequence[CellResult], source: str, dp: int) -> Points:
    """Return step time over sequences per rank in it; cells without it left out."""
    known = [
        (c, took) for c in cells if (took := SOURCES[source](c)) is not None and took
    ]
    asked = [c.concurrency or 1 for c, _ in known]
    held = [in_step(c) for c, _ in known]
    return Points.of(
        np.array(held, np.float64) / dp,
        np.array([took for _, took in known], np.float64),
        np.array(asked, np.float64),
    )


def _model(
    configuration: str, cells: Sequence[CellResult], dp: int, physics: Bytes | None
) -> tuple[StepModel | None, list[Finding]]:
    source = step_source(cells)
    points = points_of(cells, source, dp)
    if points.sizes.size < 3:
        return None, [
            Finding(
                code="too-few-sizes",
                severity="info",
                message=f"{configuration}: concurrencies with a step time:"
                f" {points.sizes.size}; a step model needs three, a knee five",
                hint="Measure more concurrencies of this configuration.",
            )
        ]
    chosen = best_curve(points, physics)
    residual = _residual_pct(points, chosen)
    if chosen.kind == "constant" and residual > _CONSTANT_PCT:
        return None, [
            Finding(
                code="step-model-poor",
                severity="warning",
                message=f"{configuration}: from {points.n} points neither a slope nor"
                f" its absence can be shown (a constant leaves {residual:.0f} %"
                f"{_falling(chosen)}): no step model",
                hint="Measure more concurrencies, three repeats each.",
            )
        ]
    found = []
    if residual > _POOR_PCT:
        found.append(
            Finding(
                code="step-model-poor",
                severity="warning",
                message=f"{configuration}: the best shape, a {chosen.kind}, leaves"
                f" {residual:.0f} % of the step time: its level is no toll",
                hint="Give the model's config.json, so that bytes can be counted; look"
                " for a stall or a change of kernel between two sizes.",
            )
        )
    return _record(configuration, source, points, chosen), found


def _falling(curve: Curve) -> str:
    """Return what a step that falls as the batch grows means; empty: it does not."""
    if FALLS not in curve.rejected:
        return ""
    return (
        "; the step falls as the batch grows, which no batch does by itself, so"
        " something else changed from cell to cell: warm-up, clocks, neighbours"
    )


def best_curve(
    points: Points, physics: Bytes | None, *, least_sizes: int = LEAST_SIZES
) -> Curve:
    """Return the shape that the points support best, with the reasons for it.

    Each row counts once where even the best shape misses rows by more than their
    repeats differ; ``Curve.n`` says how many points it was fitted to. With
    ``least_sizes`` bytes may be fitted: four where a shape is checked that more
    sizes have shown.
    """
    best = _best(points, physics, least_sizes)
    if points.rows_deviate(best.sse, best.n_parameters):
        return _best(points.one_a_row(), physics, least_sizes)
    return best


def _best(points: Points, physics: Bytes | None, least_sizes: int) -> Curve:
    simple = plain(points)
    if physics is None:
        return simple
    grown = coverage(
        points, physics.at, physics.peak_bytes_per_s, least_sizes=least_sizes
    )
    if isinstance(grown, str):
        return _with(simple, grown)
    n = points.n
    if _grew(grown, simple, n):
        left = 100 * float(np.sqrt(simple.sse / n))
        return _with(grown, *simple.rejected, f"{simple.kind}: it leaves {left:.1f} %")
    left = 100 * float(np.sqrt(grown.sse / n))
    return _with(simple, f"coverage: it leaves {left:.1f} %")


def _grew(grown: Curve, simple: Curve, n: int) -> bool:
    """Return True when the bytes explain the steps better than the plain shape.

    By Akaike's criterion, since a hinge does not nest in it. Where the points are too
    few for that (three terms at five sizes), by the F-test against a constant or a
    line, which do: toll and slope are terms of both.
    """
    criterion = aicc(grown.sse, n, grown.n_parameters)
    if np.isfinite(criterion):
        return criterion < aicc(simple.sse, n, simple.n_parameters)
    nested = simple.kind in ("constant", "line")
    return nested and better(
        simple.sse, grown.sse, n, simple.n_parameters, grown.n_parameters
    )


def _with(curve: Curve, *reasons: str) -> Curve:
    return replace(curve, rejected=(*curve.rejected, *reasons))


def _record(configuration: str, source: str, points: Points, curve: Curve) -> StepModel:
    grid = np.geomspace(float(points.x.min()), float(points.x.max()), _N_CURVE)
    residual = _residual_pct(points, curve)
    return StepModel(
        configuration=configuration,
        kind=curve.kind,
        n_points=points.n,
        level_ms=curve.level,
        level_ci95_ms=curve.level_ci,
        slope_ms_per_seq=curve.slope,
        slope_ci95=curve.slope_ci,
        knee_seqs_per_rank=curve.knee,
        knee_ci95=curve.knee_ci,
        asymptote_ms=curve.asymptote,
        asymptote_ci95_ms=curve.asymptote_ci,
        toll_share=_toll_share(points, curve) if residual <= _POOR_PCT else {},
        residual_pct=residual,
        bandwidth_bytes_per_s=curve.bandwidth,
        bandwidth_ci95=curve.bandwidth_ci,
        points=tuple(zip(points.x.tolist(), points.y.tolist(), strict=True)),
        curve=tuple(zip(grid.tolist(), curve.at(grid).tolist(), strict=True)),
        rejected=curve.rejected,
        step_source=source,
        n_rows=curve.n,
    )


def _residual_pct(points: Points, curve: Curve) -> float:
    """Return the root mean square of what all points are off, percent."""
    fitted = curve.at(points.x)
    return float(100 * np.sqrt(np.mean(((points.y - fitted) / fitted) ** 2)))


def _toll_share(points: Points, curve: Curve) -> dict[str, float]:
    """Return the level's share of the fitted step at each concurrency, percent."""
    shares = {}
    for asked in np.unique(points.asked).tolist():
        x = np.array([points.x[points.asked == asked].mean()])
        share = 100 * curve.level / float(curve.at(x)[0])
        shares[f"{asked:g}"] = min(max(share, 0.0), 100.0)
    return shares
