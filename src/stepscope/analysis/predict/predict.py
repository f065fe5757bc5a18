"""A run's step models to concurrencies, devices and layouts that were not measured."""

from collections.abc import Sequence
from dataclasses import replace

from stepscope.analysis.across.records import StepModel
from stepscope.analysis.analyze import physics_of
from stepscope.analysis.floor import refuted, step_bytes_of
from stepscope.analysis.predict.basis import Basis, basis
from stepscope.analysis.predict.elsewhere import Move
from stepscope.analysis.predict.limits import (
    batch_limit,
    kv_limit,
    kv_tokens,
)
from stepscope.analysis.predict.move import Asked, move_of, moved_kv_tokens
from stepscope.analysis.predict.point import Setting, point_of
from stepscope.analysis.predict.records import (
    PredictDocument,
    Prediction,
)
from stepscope.analysis.predict.say import assumptions
from stepscope.analysis.records import Analysis
from stepscope.errors import RecipeError, RefusedError
from stepscope.findings import Finding
from stepscope.run.run import Run

SCHEMA = 1


def predict(run: Run, analysis: Analysis, asked: Asked) -> PredictDocument:
    """Return predictions of every step model that the question names.

    Args:
        run: The run.
        analysis: What was computed from it.
        asked: Concurrencies, configuration, device and layout.

    Raises:
        RecipeError: No such configuration or device, or a layout that the model can
            not take.
        RefusedError: No step model was fitted; none of the concurrencies can be
            predicted; for another device or layout, the model's shape or a device
            is unknown, or the weights do not fit.
    """
    models = [
        m for m in analysis.step_model if asked.configuration in (None, m.configuration)
    ]
    names = dict.fromkeys(c.configuration for c in analysis.cells)
    if asked.configuration is not None and asked.configuration not in names:
        raise RecipeError(
            "--configuration",
            f"no configuration {asked.configuration!r}",
            f"one of {', '.join(names)}",
        )
    if not models:
        raise RefusedError(
            run.id,
            _no_model(analysis),
            "expected a step model, from four concurrencies or more",
            "Measure more concurrencies (stepscope plan says which)",
        )
    move = move_of(run, asked)
    found: list[Finding] = []
    made = []
    for model in models:
        prediction, refused = _predict(run, analysis, model, (asked, move))
        made.append(prediction)
        found += refused
    if not any(p.step_ms is not None for m in made for p in m.points):
        raise RefusedError(run.id, found[0].message, "", found[0].hint)
    return PredictDocument(
        schema=SCHEMA, run=run.id, predictions=tuple(made), findings=tuple(found)
    )


def _no_model(analysis: Analysis) -> str:
    why = [
        f.message
        for f in analysis.findings
        if f.code in ("too-few-sizes", "step-model-poor")
    ]
    return "no step model could be fitted" + (f" ({why[0]})" if why else "")


def _predict(
    run: Run,
    analysis: Analysis,
    model: StepModel,
    question: tuple[Asked, Move | None],
) -> tuple[Prediction, list[Finding]]:
    asked, move = question
    bytes_of, _ = step_bytes_of(run)
    dp = max(run.layout.dp, 1)
    base = basis(model, analysis, dp, physics_of(run, bytes_of))
    if base.errors is None:
        raise RefusedError(
            run.id,
            f"{model.configuration}: {base.points.sizes.size} concurrencies leave"
            " nothing to check a prediction with",
            "four or more",
            "Measure more concurrencies (stepscope plan says which)",
        )
    setting = _setting(run, analysis, base, move)
    points, found = [], _not_moved(analysis, model.configuration)
    for concurrency in asked.concurrencies:
        point, finding = point_of(setting, concurrency)
        points.append(point)
        found += [finding] if finding is not None else []
    growth = [
        g
        for g in (base.errors.per_doubling_up, base.errors.per_doubling_down)
        if g is not None
    ]
    return Prediction(
        configuration=model.configuration,
        session=model.session,
        kind=base.curve.kind,
        step_source=model.step_source or "client TPOT",
        n_points=base.points.n,
        n_sizes=int(base.points.sizes.size),
        measured_from=base.low,
        measured_to=base.high,
        input_tokens=base.input_tokens,
        output_tokens=base.output_tokens,
        error_pct=100 * base.errors.inside,
        error_per_doubling_pct=100 * max(growth) if growth else None,
        gpu=run.gpu if move is None else move.target.gpu.name,
        layout=setting.layout,
        points=tuple(points),
        assumptions=assumptions(run, base, setting.launch, move),
    ), found


def _not_moved(analysis: Analysis, configuration: str) -> list[Finding]:
    """Say where bytes by uniform routing were measured not to be moved."""
    sizes = [
        str(point.concurrency)
        for point in analysis.floor
        if point.configuration == configuration and refuted(point)
    ]
    if not sizes:
        return []
    return [
        Finding(
            code="bytes-not-moved",
            severity="warning",
            message=f"{configuration}: at concurrency {', '.join(sizes)} the DRAM"
            " counter read less than the bytes of experts that are drawn alike: what a"
            " prediction takes from bytes (growth by coverage, other GPUs and layouts)"
            " errs by as much",
            hint="Measure routing; read predictions of measured sizes alone.",
        )
    ]


def _setting(run: Run, analysis: Analysis, base: Basis, move: Move | None) -> Setting:
    launch = next(
        (x for x in run.launches if base.cells and x.name == base.cells[0].launch), None
    )
    layout = run.layout if move is None else move.target.layout
    tokens = kv_tokens(analysis.boot, launch)
    if move is not None:
        tokens = moved_kv_tokens(analysis, launch, tokens, move)
    each = None
    if base.input_tokens is not None and base.output_tokens is not None:
        each = base.input_tokens + base.output_tokens
    at_once = batch_limit(run, launch)
    if at_once is not None and move is not None:
        dp = layout.dp / max(run.layout.dp, 1)
        at_once = replace(at_once, sequences=at_once.sequences * dp)
    limits = (at_once, kv_limit(tokens, max(layout.dp, 1), each, told=move is None))
    return Setting(
        run=run,
        basis=base,
        launch=launch,
        layout=layout,
        move=move,
        limits=tuple(limit for limit in limits if limit is not None),
    )


def concurrencies(text: str) -> Sequence[int] | None:
    """Return the whole numbers of ``3,24,1000``; None where it is no such list."""
    words = [w.strip() for w in text.split(",")]
    good = all(w.isascii() and w.isdigit() and len(w) <= 7 for w in words)
    found = [int(w) for w in words] if good else []
    return found if found and min(found) >= 1 else None
