"""Figures that a source may state, and what the evidence gives for them.

One place to add a figure: a function and its line in ``QUANTITIES``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stepscope.analysis.across.records import FloorPoint
from stepscope.analysis.across.traces import decode_step_ms
from stepscope.analysis.cell.published import prefill_ms
from stepscope.analysis.records import Analysis, CellResult
from stepscope.errors import StepscopeError
from stepscope.physics.blocks import KvRules
from stepscope.physics.document import FloorDocument, floor_document
from stepscope.physics.hardware import find_gpu
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepOptions
from stepscope.run.published import Claim
from stepscope.run.run import Run
from stepscope.units import gib

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Own:
    """What the evidence gives: an interval, and in words where it comes from."""

    low: float
    high: float
    why: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure: its unit, how far apart two readings of it may lie, and its source.

    ``tolerance`` is a share; rounding of a published figure is inside it.
    """

    unit: str
    tolerance: float
    own: Callable[[Run, Analysis, Claim], Own | None]


def _result(analysis: Analysis, claim: Claim) -> CellResult | None:
    return next(
        (
            cell
            for cell in analysis.cells
            if not cell.warm_up
            and cell.concurrency == claim.concurrency
            and claim.configuration in (None, cell.configuration)
        ),
        None,
    )


def _point(analysis: Analysis, claim: Claim) -> FloorPoint | None:
    return next(
        (
            point
            for point in analysis.floor
            if point.concurrency == claim.concurrency
            and claim.configuration in (None, point.configuration)
        ),
        None,
    )


def _floor_ms(_run: Run, analysis: Analysis, claim: Claim) -> Own | None:
    point = _point(analysis, claim)
    if point is None:
        return None
    return Own(
        point.floor_ms,
        point.floor_ms,
        f"{point.bytes_per_rank / _GB:.2f} GB a rank from the model's shapes, the"
        " experts' scales included and draft layers left out, at the data sheet's"
        " bandwidth; KV of the sequences in flight is in it",
    )


def _document(run: Run) -> FloorDocument | None:
    gpu = find_gpu(run.gpu) if run.gpu else None
    if run.model_config is None or gpu is None:
        return None
    try:
        shape = model_shape(run.model_config)
        chunk = next(
            (
                int(value)
                for launch in run.launches
                if launch.log is not None
                and isinstance(
                    value := launch.log.resolved.get("max_num_batched_tokens"), int
                )
            ),
            KvRules().max_batched_tokens,
        )
        return floor_document(
            shape,
            gpu,
            run.layout,
            ((1.0,), 1),
            StepOptions(),
            KvRules(max_batched_tokens=chunk),
        )
    except StepscopeError:
        return None


def _expert_gib(run: Run, _analysis: Analysis, _claim: Claim) -> Own | None:
    document = _document(run)
    if document is None or document.experts is None:
        return None
    total = gib(document.experts.bytes_total)
    each = document.experts.bytes_each
    return Own(
        total,
        total,
        f"{each:,.0f} bytes an expert with its scales, draft layers' experts left out",
    )


def _dense_gb(run: Run, _analysis: Analysis, _claim: Claim) -> Own | None:
    document = _document(run)
    if document is None:
        return None
    value = document.points[0].dense_bytes / _GB
    parts = sorted(document.dense_parts_bytes.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {size / _GB:.2f}" for name, size in parts)
    return Own(value, value, f"from the shapes, GB: {shown} and smaller parts")


def _kv_bytes(run: Run, _analysis: Analysis, _claim: Claim) -> Own | None:
    document = _document(run)
    if document is None:
        return None
    kv = document.kv
    why = f"a further token takes {kv.bytes_per_token:,.0f} bytes"
    if kv.bytes_per_request_fixed:
        why += (
            f"; a request of the longest context also sets"
            f" {kv.bytes_per_request_fixed / 1e6:,.1f} MB aside, whatever its length."
            " Pool over printed tokens is an average of both, not a cost"
        )
    return Own(kv.bytes_per_token, kv.bytes_per_token, why)


def _occupancy(_run: Run, analysis: Analysis, claim: Claim) -> Own | None:
    cell = _result(analysis, claim)
    if cell is None or cell.occupancy is None:
        return None
    return Own(
        cell.occupancy,
        cell.occupancy,
        f"mean in flight over {cell.concurrency} slots in {cell.waves or 0:.3f} waves",
    )


def _idle_pct(_run: Run, analysis: Analysis, claim: Claim) -> Own | None:
    cell = _result(analysis, claim)
    if cell is None or cell.telemetry is None:
        return None
    telemetry = cell.telemetry
    if telemetry.util_pct_range is not None:
        low, high = telemetry.util_pct_range
        return Own(
            100 - high,
            100 - low,
            "what a mean over a longer window leaves open for the run inside it",
        )
    if telemetry.util_pct is None:
        return None
    idle = 100 - telemetry.util_pct
    return Own(idle, idle, "utilization inside the window")


def _decode_step(_run: Run, analysis: Analysis, claim: Claim) -> Own | None:
    cell = _result(analysis, claim)
    if cell is None or not cell.valid:
        return None
    step = decode_step_ms(cell)
    if step is not None and step[1] != "TPOT":
        return Own(step[0], step[0], f"{step[1]} of {cell.name}")
    tpot, n_ok = cell.tpot_ms.mean, cell.n_requests - cell.n_failed
    part = prefill_ms(cell.ttft_ms.mean, cell.output_tokens, n_ok, cell.concurrency)
    if tpot is None or part is None:
        return None
    return Own(
        tpot - part,
        tpot - part,
        f"TPOT {tpot:.1f} ms less about {part:.1f} ms of other requests' prefill steps",
    )


def _utilization(_run: Run, analysis: Analysis, _claim: Claim) -> Own | None:
    for boot in analysis.boot:
        fixes = boot.verdict.get("fixes")
        for fix in fixes if isinstance(fixes, (list, tuple)) else ():
            flag = fix.get("flag") if isinstance(fix, dict) else None
            value = fix.get("value") if isinstance(fix, dict) else None
            if flag == "--gpu-memory-utilization" and isinstance(value, (int, float)):
                return Own(
                    float(value),
                    float(value),
                    f"from the ledger of {boot.launch}: {fix.get('effect')}",
                )
    return None


QUANTITIES: dict[str, Quantity] = {
    "floor_ms": Quantity("ms", 0.03, _floor_ms),
    "expert_gib": Quantity("GiB", 0.01, _expert_gib),
    "dense_gb": Quantity("GB", 0.03, _dense_gb),
    "kv_bytes_per_token": Quantity("bytes", 0.02, _kv_bytes),
    "occupancy": Quantity("", 0.01, _occupancy),
    "idle_pct": Quantity("%", 0.05, _idle_pct),
    "decode_step_ms": Quantity("ms", 0.05, _decode_step),
    "largest_utilization": Quantity("", 0.005, _utilization),
}
