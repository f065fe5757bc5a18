"""The byte floor beside the measured steps."""

from collections.abc import Callable, Sequence

from stepscope.analysis.across.groups import readable
from stepscope.analysis.across.stepmodel import step_ms
from stepscope.analysis.records import CellResult, FloorPoint
from stepscope.errors import StepscopeError
from stepscope.findings import Finding
from stepscope.physics.hardware import find_gpu
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepBytes, step_bytes
from stepscope.run.run import Run

StepAt = Callable[[float], StepBytes]


def step_bytes_of(run: Run) -> tuple[StepAt | None, list[Finding]]:
    """Return bytes per step of the run's model over sequences in flight.

    Returns:
        A function of the batch over all ranks; None where the model is unknown or not
        understood, with a finding that says why.
    """
    if run.model_config is None:
        return None, []
    context = _context(run)
    if context is None:
        return None, []
    try:
        shape = model_shape(run.model_config)
        step_bytes(shape, run.layout, 1, context)
    except StepscopeError as error:
        return None, [
            Finding(
                code="floor-unknown",
                severity="info",
                message=f"no byte floor: {error}",
            )
        ]
    return lambda batch: step_bytes(shape, run.layout, batch, context), []


def _context(run: Run) -> int | None:
    """Mean tokens of a sequence in mid-answer: the prompt and half of the answer."""
    for cell in run.cells:
        work = cell.workload
        if not cell.warm_up and work.input_tokens and work.output_tokens:
            return work.input_tokens + work.output_tokens // 2
    return None


def floor_points(
    cells: Sequence[CellResult], run: Run, at: StepAt | None
) -> tuple[FloorPoint, ...]:
    """Return for each measured concurrency the least milliseconds a step could take.

    Assumes: the data sheet's memory bandwidth, which no kernel reaches, so that the
        floor is low; experts drawn uniformly.
    """
    gpu = find_gpu(run.gpu) if run.gpu else None
    if at is None or gpu is None:
        return ()
    found = []
    seen: set[tuple[str, int]] = set()
    for cell in sorted(readable(cells), key=lambda c: c.concurrency or 0):
        if not cell.concurrency or (cell.configuration, cell.concurrency) in seen:
            continue
        seen.add((cell.configuration, cell.concurrency))
        batch = cell.concurrency * min(cell.occupancy or 1.0, 1.0)
        step = at(batch)
        least_ms = 1e3 * step.path_bytes / gpu.bandwidth_bytes_per_s
        took = step_ms(cell)
        found.append(
            FloorPoint(
                configuration=cell.configuration,
                concurrency=cell.concurrency,
                seqs_per_rank=step.seqs_per_rank,
                coverage=step.coverage,
                bytes_per_rank=step.bytes_per_rank,
                floor_ms=least_ms,
                step_ms=took,
                times_floor=None if took is None else took / least_ms,
            )
        )
    return tuple(found)
