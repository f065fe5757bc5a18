"""The byte floor beside the measured steps."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from stepscope.analysis.across.points import (
    in_step,
    readable_or_untraced,
    tokens_a_step,
    whole_waves,
)
from stepscope.analysis.across.records import FloorPoint
from stepscope.analysis.across.stepmodel import SOURCES, step_source
from stepscope.analysis.cell.telemetry import MIN_SAMPLES
from stepscope.analysis.records import CellResult
from stepscope.errors import StepscopeError
from stepscope.findings import Finding
from stepscope.physics.hardware import find_gpu
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepBytes, StepOptions, step_bytes
from stepscope.run.run import Run

#: Traffic by counter over that of the floor: below it bytes that the floor counts were
#: not moved. Measured on an H200: 1.00, 1.02 and 1.14.
LEAST_MOVED = 0.9
#: A counter above its own peak is another's or broken.
_WHOLE_PCT = 100.5
#: Bytes of one step from sequences in flight over all ranks, and tokens of context.
StepAt = Callable[[float, float], StepBytes]


def step_bytes_of(run: Run) -> tuple[StepAt | None, list[Finding]]:
    """Return bytes per step of the run's model.

    Returns:
        A function of batch and context; None where the model is unknown or not
        understood, with a finding that says why.
    """
    if run.model_config is None:
        return None, []
    options = StepOptions(kv_dtype=kv_dtype_of(run))
    try:
        shape = model_shape(run.model_config)
        step_bytes(shape, run.layout, 1, 1, options)
    except StepscopeError as error:
        return None, [
            Finding(
                code="floor-unknown",
                severity="info",
                message=f"no byte floor: {error}",
            )
        ]

    def at(batch: float, context: float) -> StepBytes:
        return step_bytes(shape, run.layout, batch, context, options)

    return at, []


def kv_dtype_of(run: Run) -> str:
    """Return the KV type that the server resolved; ``auto`` where none is told."""
    logs = [launch.log for launch in run.launches if launch.log is not None]
    found = next((log.resolved.get("kv_cache_dtype") for log in logs), None)
    return found if isinstance(found, str) else "auto"


def context_of(cells: Sequence[CellResult]) -> float | None:
    """Return the tokens of a sequence in mid-answer: prompt and half of the answer.

    As asked; where nobody says what was asked, as counted. None where neither is
    known.
    """
    found = []
    for cell in cells:
        n_ok = cell.n_requests - cell.n_failed
        prompt = _each(cell.asked_input_tokens, cell.input_tokens, n_ok)
        answer = _each(cell.asked_output_tokens, cell.output_tokens, n_ok)
        if prompt is not None and answer is not None:
            found.append(prompt + answer / 2)
    return float(np.mean(found)) if found else None


def _each(asked: int | None, counted: int | None, n: int) -> float | None:
    if asked is not None:
        return float(asked)
    return counted / n if counted is not None and n > 0 else None


def floor_points(
    cells: Sequence[CellResult],
    run: Run,
    at: StepAt | None,
    leave_out: frozenset[str] = frozenset(),
) -> tuple[FloorPoint, ...]:
    """Return for each measured concurrency the least milliseconds a step could take.

    Assumes: the data sheet's memory bandwidth, which no kernel reaches, so that the
        floor is low; experts drawn uniformly. Step times are means over repeats.

    Args:
        cells: All cells; those that can support nothing are left out.
        run: Names the GPU.
        at: From ``step_bytes_of``.
        leave_out: Names of further cells to leave out where others repeat them.
    """
    gpu = find_gpu(run.gpu) if run.gpu else None
    if at is None or gpu is None:
        return ()
    rows: dict[str, list[CellResult]] = defaultdict(list)
    for cell in readable_or_untraced(cells):
        if cell.concurrency:
            rows[cell.configuration].append(cell)
    found = []
    for members in rows.values():
        source = step_source(members)
        for concurrency in sorted({c.concurrency or 0 for c in members}):
            here = [c for c in members if c.concurrency == concurrency]
            here = [c for c in here if whole_waves(c)] or here
            here = [c for c in here if c.name not in leave_out] or here
            point = _point(here, at, source, gpu.bandwidth_bytes_per_s)
            if point is not None:
                found.append(point)
    return tuple(found)


def refuted(point: FloorPoint) -> bool:
    """Return whether the DRAM counter read less than the floor says was needed.

    Then the floor is none: experts are not drawn alike, or shapes or types of weights
    are not as taken.
    """
    if point.needed_pct is None or point.read_pct is None:
        return False
    return point.read_pct < LEAST_MOVED * point.needed_pct


def _read_pct(cell: CellResult) -> float | None:
    """Return the DRAM counter where it can be one, percent of its peak."""
    seen = cell.telemetry
    if seen is None or (seen.n_samples_in_window or 0) < MIN_SAMPLES:
        return None
    known = [v for v in (seen.dram_bw_pct, seen.dram_bw_pct_median) if v is not None]
    most = max(known, default=0.0)
    return most if 0 < most <= _WHOLE_PCT else None


def _needed_pct(cell: CellResult, rank_ms: float) -> float | None:
    """Return the floor's share of a cell's whole time if all its steps were full.

    Args:
        cell: The cell.
        rank_ms: Time that one rank's bytes of a step take at the data sheet's rate.
    """
    rate = cell.output_tokens_per_s
    if not rate or not cell.concurrency:
        return None
    steps_per_s = rate / (cell.concurrency * tokens_a_step(cell))
    return rank_ms * steps_per_s / 10


def _point(
    cells: Sequence[CellResult], at: StepAt, source: str, bandwidth: float
) -> FloorPoint | None:
    """Return the point of some repeats; None where context or batch is unknown."""
    context = context_of(cells)
    slots = cells[0].concurrency
    if context is None or slots is None:
        return None
    held = [in_step(c) for c in cells]
    step = at(float(np.mean(held)), context)
    least_ms = 1e3 * step.path_bytes / bandwidth
    took = [value for c in cells if (value := SOURCES[source](c)) is not None]
    step_ms = float(np.mean(took)) if took else None
    rank_ms = 1e3 * step.bytes_per_rank / bandwidth
    beside = [
        (needed, read)
        for c in cells
        if (needed := _needed_pct(c, rank_ms)) is not None
        and (read := _read_pct(c)) is not None
    ]
    return FloorPoint(
        configuration=cells[0].configuration,
        concurrency=slots,
        seqs_per_rank=step.seqs_per_rank,
        coverage=step.coverage,
        bytes_per_rank=step.bytes_per_rank,
        floor_ms=least_ms,
        step_ms=step_ms,
        times_floor=None if step_ms is None else step_ms / least_ms,
        expert_bytes=step.expert_bytes,
        bandwidth_bytes_per_s=bandwidth,
        needed_pct=float(np.mean([n for n, _ in beside])) if beside else None,
        read_pct=float(np.mean([r for _, r in beside])) if beside else None,
    )
