"""A run's step models to concurrencies, devices and layouts that were not measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepscope.analysis.analyze import physics_of
from stepscope.analysis.floor import step_bytes_of
from stepscope.analysis.predict.backtest import MOST_DOUBLINGS, doublings_outside
from stepscope.analysis.predict.basis import Basis, basis
from stepscope.analysis.predict.elsewhere import Move, moved_step
from stepscope.analysis.predict.limits import (
    Limit,
    batch_limit,
    kv_limit,
    kv_tokens,
)
from stepscope.analysis.predict.move import Asked, move_of, moved_kv_tokens
from stepscope.analysis.predict.records import (
    Interval,
    PredictDocument,
    PredictedPoint,
    Prediction,
)
from stepscope.analysis.predict.say import assumptions, point_notes
from stepscope.analysis.records import Analysis, StepModel
from stepscope.errors import RefusedError
from stepscope.findings import Finding
from stepscope.recipe.records import Layout
from stepscope.run.run import Launch, Run

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What a prediction is made from and for."""

    run: Run
    basis: Basis
    launch: Launch | None
    layout: Layout
    move: Move | None
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A predicted figure: middle, and half its 95 % interval in logs, down and up."""

    middle: float
    down: float
    up: float

    def ci(self) -> Interval:
        """Return the interval."""
        return (
            self.middle * float(np.exp(-self.down)),
            self.middle * float(np.exp(self.up)),
        )

    def times(self, factor: float) -> "Value":
        """Return the same, scaled."""
        return replace(self, middle=self.middle * factor)


def predict(run: Run, analysis: Analysis, asked: Asked) -> PredictDocument:
    """Return predictions of every step model that the question names.

    Args:
        run: The run.
        analysis: What was computed from it.
        asked: Concurrencies, configuration, device and layout.

    Raises:
        RefusedError: No step model was fitted; none of the concurrencies can be
            predicted; for another device or layout, the model's shape or a device
            is unknown, or the weights do not fit.
    """
    models = [
        m for m in analysis.step_model if asked.configuration in (None, m.configuration)
    ]
    if not models:
        raise RefusedError(
            run.id,
            _no_model(analysis, asked.configuration),
            "a step model, from four concurrencies or more",
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


def _no_model(analysis: Analysis, configuration: str | None) -> str:
    if configuration is not None and not any(
        c.configuration == configuration for c in analysis.cells
    ):
        names = dict.fromkeys(c.configuration for c in analysis.cells)
        return f"no configuration {configuration!r}; there are {', '.join(names)}"
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
    points, found = [], []
    for concurrency in asked.concurrencies:
        point, finding = _point(setting, concurrency)
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


def _point(setting: Setting, concurrency: int) -> tuple[PredictedPoint, Finding | None]:
    base = setting.basis
    dp = max(setting.layout.dp, 1)
    held = min([float(concurrency), *(limit.sequences for limit in setting.limits)])
    limit = next((lim for lim in setting.limits if lim.sequences == held), None)
    if held == concurrency:
        limit = None
    x = held / dp
    far = doublings_outside(base.low, base.high, x)
    assert base.errors is not None
    half = base.errors.half(base.low, base.high, x)
    if half is None:
        return _unknown(concurrency, far), _too_far(setting, concurrency, far)
    step = _step(setting, x, half)
    tpot = step.times(base.tpot_over_step(x))
    ttft = None if limit is not None else _ttft(setting, x)
    rate, share = _rate(setting, held, tpot, _ttft(setting, x))
    notes = point_notes(setting.launch, x, concurrency, limit)
    return PredictedPoint(
        concurrency=concurrency,
        seqs_per_rank=x,
        step_ms=step.middle,
        step_ci95_ms=step.ci(),
        tpot_ms=tpot.middle,
        tpot_ci95_ms=tpot.ci(),
        ttft_ms=None if ttft is None else ttft.middle,
        ttft_ci95_ms=None if ttft is None else ttft.ci(),
        output_tokens_per_s=None if rate is None else rate.middle,
        output_tokens_per_s_ci95=None if rate is None else rate.ci(),
        prefill_share_pct=share,
        measured=setting.move is None
        and any(c.concurrency == concurrency for c in base.cells),
        extrapolated=far > 0,
        doublings_outside=far,
        limited_by=None if limit is None else limit.kind,
        notes=notes,
    ), None


def _step(setting: Setting, x: float, half: float) -> Value:
    if setting.move is None:
        return Value(setting.basis.step_ms(x), half, half)
    there = moved_step(setting.basis, setting.move, x)
    return Value(
        there.middle,
        float(np.hypot(half, np.log(there.middle / there.low))),
        float(np.hypot(half, np.log(there.high / there.middle))),
    )


def _ttft(setting: Setting, x: float) -> Value | None:
    """Return the mean TTFT; elsewhere between staying and shrinking with arithmetic."""
    base = setting.basis
    if base.waits is None or base.errors is None:
        return None
    middle, sd = base.waits.at(x * max(setting.run.layout.dp, 1))
    half = base.errors.quantile * sd
    if setting.move is None:
        return Value(middle, half, half)
    reach = abs(float(np.log(setting.move.gains))) / 2
    half = float(np.hypot(half, reach))
    return Value(middle / float(np.sqrt(setting.move.gains)), half, half)


def _rate(
    setting: Setting, held: float, tpot: Value, ttft: Value | None
) -> tuple[Value | None, float | None]:
    """Return tokens per second of a full closed loop, and TTFT's share of a request.

    Formula: C x n / (TTFT + (n - 1) x TPOT), n output tokens; relative errors of
        both terms in quadrature, by their shares.
    """
    n = setting.basis.output_tokens
    if n is None or ttft is None:
        return None, None
    whole = ttft.middle + (n - 1) * tpot.middle
    share = ttft.middle / whole
    down = float(np.hypot(share * ttft.up, (1 - share) * tpot.up))
    up = float(np.hypot(share * ttft.down, (1 - share) * tpot.down))
    return Value(1e3 * held * n / whole, down, up), 100 * share


def _unknown(concurrency: int, far: float) -> PredictedPoint:
    return PredictedPoint(
        concurrency=concurrency,
        seqs_per_rank=None,
        step_ms=None,
        step_ci95_ms=None,
        tpot_ms=None,
        tpot_ci95_ms=None,
        ttft_ms=None,
        ttft_ci95_ms=None,
        output_tokens_per_s=None,
        output_tokens_per_s_ci95=None,
        prefill_share_pct=None,
        measured=False,
        extrapolated=True,
        doublings_outside=far,
        limited_by=None,
        notes=(),
    )


def _too_far(setting: Setting, concurrency: int, far: float) -> Finding:
    base = setting.basis
    why = (
        f"{far:.1f} doublings outside what was measured; at most {MOST_DOUBLINGS:g}"
        if far > MOST_DOUBLINGS
        else "outside what was measured, and too few sizes to check how errors grow"
    )
    return Finding(
        code="too-far",
        severity="warning",
        message=f"{base.model.configuration}: concurrency {concurrency} is {why}"
        f" (measured: {base.low:.3g} to {base.high:.3g} sequences a rank)",
        hint=f"Measure nearer to it, such as concurrency {concurrency} itself.",
    )


def concurrencies(text: str) -> Sequence[int] | None:
    """Return the whole numbers of ``3,24,1000``; None where it is no such list."""
    words = [w.strip() for w in text.split(",")]
    good = all(w.isascii() and w.isdigit() and len(w) <= 7 for w in words)
    found = [int(w) for w in words] if good else []
    return found if found and min(found) >= 1 else None
