"""One predicted concurrency: step, TPOT, TTFT and throughput with their intervals."""

from dataclasses import dataclass, replace

import numpy as np

from stepscope.analysis.predict.backtest import MOST_DOUBLINGS, doublings_outside
from stepscope.analysis.predict.basis import Basis
from stepscope.analysis.predict.elsewhere import Move, moved_step
from stepscope.analysis.predict.limits import Limit
from stepscope.analysis.predict.records import Interval, PredictedPoint
from stepscope.analysis.predict.say import point_notes
from stepscope.findings import Finding
from stepscope.recipe.records import Layout
from stepscope.run.run import Launch, Run


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


def point_of(
    setting: Setting, concurrency: int
) -> tuple[PredictedPoint, Finding | None]:
    """Return what is predicted at one concurrency; a finding where it is too far."""
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
