"""What ``predict --json`` says."""

from typing import Literal

import msgspec

from stepscope.findings import Finding
from stepscope.recipe.records import Layout

Interval = tuple[float, float]


class PredictedPoint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One concurrency; intervals are 95 % and hold the model's own error.

    Attributes:
        concurrency: Requests in flight, over all ranks.
        seqs_per_rank: Sequences in one step of one rank; lower than asked where a
            limit holds requests back.
        step_ms: The model's step time; which one, ``step_source`` of the model says.
        tpot_ms: Time per output token of a request.
        ttft_ms: Mean wait for the first content; None where requests queue.
        output_tokens_per_s: Steady rate of a closed loop that is always full.
        prefill_share_pct: Part of a request that passes before its first content:
            prefill and whatever it waited for.
        measured: True where this concurrency was measured: compare, do not predict.
        extrapolated: True outside the measured sequences per rank.
        doublings_outside: How far outside, in doublings; 0 inside.
        limited_by: ``kv`` or ``batch`` where the server can not hold so many.
        notes: What else bears on this point.
    """

    concurrency: int
    seqs_per_rank: float | None
    step_ms: float | None
    step_ci95_ms: Interval | None
    tpot_ms: float | None
    tpot_ci95_ms: Interval | None
    ttft_ms: float | None
    ttft_ci95_ms: Interval | None
    output_tokens_per_s: float | None
    output_tokens_per_s_ci95: Interval | None
    prefill_share_pct: float | None
    measured: bool
    extrapolated: bool
    doublings_outside: float
    limited_by: Literal["kv", "batch"] | None
    notes: tuple[str, ...]


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one step model says of all asked concurrencies.

    Attributes:
        measured_from: Least sequences per rank that the model was fitted to.
        measured_to: Most.
        error_pct: Standard error of one prediction inside that range, percent: what
            leaving out each measured size and predicting it leaves.
        error_per_doubling_pct: What each doubling outside adds; None: not known.
        gpu: The device asked for.
        assumptions: Everything that was taken for granted.
    """

    configuration: str
    session: str | None
    kind: str
    step_source: str
    n_points: int
    n_sizes: int
    measured_from: float
    measured_to: float
    input_tokens: int | None
    output_tokens: int | None
    error_pct: float
    error_per_doubling_pct: float | None
    gpu: str | None
    layout: Layout
    points: tuple[PredictedPoint, ...]
    assumptions: tuple[str, ...]


class PredictDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The document; nothing in it was measured."""

    schema: int
    run: str
    predictions: tuple[Prediction, ...]
    findings: tuple[Finding, ...]
