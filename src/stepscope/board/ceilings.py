"""What each resource would allow by itself: where the next limit waits.

One place to add a ceiling: a function and its line in ``CEILINGS``. A ceiling is an
upper bound under an assumption that it names; it convicts nothing. Beside a cause that
is supported it says how far lifting that cause could get.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from stepscope.analysis.across.points import tokens_a_step
from stepscope.analysis.floor import context_of
from stepscope.board.claims import number
from stepscope.board.records import BoardEntry, Ceiling
from stepscope.board.view import CellView
from stepscope.errors import StepscopeError
from stepscope.physics.blocks import KvRules
from stepscope.physics.document import Point, floor_document
from stepscope.physics.hardware import find_gpu
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import StepOptions
from stepscope.recipe.records import Layout

_MS_PER_S = 1e3
#: A process that uses less of a core says too little of where its limit lies.
_LEAST_CPU_PCT = 5.0


def _in_flight(view: CellView) -> float | None:
    result = view.result
    if result is None or not result.concurrency:
        return None
    return result.mean_in_flight or result.concurrency * min(result.occupancy or 1, 1)


def _point(view: CellView) -> Point | None:
    """Return the roofs of the view's batch; None where model or GPU is unknown."""
    held, result, run = _in_flight(view), view.result, view.run
    context = None if result is None else context_of([result])
    if held is None or context is None or run.model_config is None or not run.gpu:
        return None
    if view.doubts:
        # Roofs of another model or device are no bounds.
        return None
    return _roofs(run.model_config, run.gpu, run.layout, held, round(context))


@lru_cache(maxsize=256)
def _roofs(
    config: str, gpu_name: str, layout: Layout, held: float, context: int
) -> Point | None:
    gpu = find_gpu(gpu_name)
    if gpu is None:
        return None
    try:
        document = floor_document(
            model_shape(config),
            gpu,
            layout,
            ((held,), context),
            StepOptions(),
            KvRules(),
        )
    except StepscopeError:
        return None
    return document.points[0]


def _step_ceiling(
    view: CellView,
    hypothesis: str,
    step_ms: float | None,
    basis: str,
    tokens: float = 1.0,
) -> Ceiling | None:
    """Return the ceiling of steps this long that give each sequence ``tokens``."""
    held = _in_flight(view)
    if step_ms is None or step_ms <= 0 or held is None:
        return None
    return _ceiling(view, hypothesis, tokens * held / step_ms * _MS_PER_S, basis)


def _ceiling(
    view: CellView, hypothesis: str, tokens_per_s: float, basis: str
) -> Ceiling | None:
    result = view.result
    if result is None or not result.output_tokens_per_s or not result.concurrency:
        return None
    return Ceiling(
        configuration=result.configuration,
        concurrency=result.concurrency,
        hypothesis=hypothesis,
        output_tokens_per_s=tokens_per_s,
        times_measured=tokens_per_s / result.output_tokens_per_s,
        basis=basis,
    )


def _bandwidth(view: CellView) -> Ceiling | None:
    point, result = _point(view), view.result
    if point is None or result is None:
        return None
    # One pass over the weights serves every token that a step gives; arithmetic and
    # collectives grow with the tokens, so for them one each is the upper bound.
    return _step_ceiling(
        view,
        "bandwidth",
        point.floor_ms,
        f"steps of {number(point.floor_ms)} ms, the bytes alone at the data sheet's"
        " bandwidth, and no prefill",
        tokens_a_step(result),
    )


def _compute(view: CellView) -> Ceiling | None:
    point = _point(view)
    if point is None:
        return None
    return _step_ceiling(
        view,
        "compute",
        point.compute_ms,
        f"steps of {number(point.compute_ms)} ms, the multiplications of decode alone"
        " at the data sheet's peak",
    )


def _communication(view: CellView) -> Ceiling | None:
    point = _point(view)
    if point is None or not point.communication_ms:
        return None
    return _step_ceiling(
        view,
        "communication",
        point.communication_ms,
        f"steps of {number(point.communication_ms)} ms, the collectives' bytes alone",
    )


def _frontend(view: CellView) -> Ceiling | None:
    return _one_thread(view, "frontend", "api-server")


def _client(view: CellView) -> Ceiling | None:
    cell, result = view.cell, view.result
    health = cell.client if cell is not None else None
    if health is None or result is None:
        return None
    # The loop leaves out what the kernel does for its process, and the processor what
    # another process held the core for.
    busy = max(health.busy_pct or 0.0, health.cpu_pct_max or 0.0)
    if busy < _LEAST_CPU_PCT:
        return None
    rate = (result.output_tokens_per_s or 0.0) * 100 / busy
    return _ceiling(
        view,
        "client",
        rate,
        f"the client's busiest process took {number(busy)} % of a core; more processes"
        " raise it",
    )


def _one_thread(view: CellView, hypothesis: str, role: str) -> Ceiling | None:
    result = view.result
    telemetry = result.telemetry if result is not None else None
    if telemetry is None or result is None:
        return None
    busy = telemetry.busiest_thread_cpu_pct.get(role)
    if busy is None or busy < _LEAST_CPU_PCT:
        return None
    rate = (result.output_tokens_per_s or 0.0) * 100 / busy
    return _ceiling(
        view,
        hypothesis,
        rate,
        f"the busiest thread of the {role} process used {number(busy)} % of a core;"
        " taken as proportional to tokens/s",
    )


CEILINGS: tuple[Callable[[CellView], Ceiling | None], ...] = (
    _bandwidth,
    _compute,
    _communication,
    _frontend,
    _client,
)


def ceilings(views: Sequence[CellView]) -> tuple[Ceiling, ...]:
    """Return the ceilings at each configuration and concurrency, lowest first.

    Of several valid cells at one point the one of middle throughput speaks: a first
    repeat may have been cold.
    """
    rows: dict[tuple[str, int], list[tuple[float, CellView]]] = {}
    for view in views:
        result = view.result
        if result is not None and result.valid and result.concurrency:
            rate = result.output_tokens_per_s or 0.0
            place = (result.configuration, result.concurrency)
            rows.setdefault(place, []).append((rate, view))
    found: list[Ceiling] = []
    for row in rows.values():
        _, view = sorted(row, key=lambda pair: pair[0])[len(row) // 2]
        here = [c for rule in CEILINGS if (c := rule(view)) is not None]
        found += sorted(here, key=lambda c: c.output_tokens_per_s)
    return tuple(found)


def next_ceiling(entry: BoardEntry, found: Sequence[Ceiling]) -> str | None:
    """Return what would limit next where an entry's cause was lifted.

    A limit, not a promise: what lifting the cause gives may end far below it.
    Speaks at the highest concurrency of the entry's scope, of resources other than
    the entry's own.
    """
    high = entry.scope.concurrency_to
    # What a clock limit takes is bounded by the drop of the clock: no other ceiling
    # comes into its reach.
    if entry.status != "supported" or high is None or entry.hypothesis == "power":
        return None
    others = [
        c
        for c in found
        if (c.configuration, c.concurrency) == (entry.scope.configuration, high)
        and c.hypothesis != entry.hypothesis
        and c.times_measured > 1
    ]
    if not others:
        return None
    nearest = min(others, key=lambda c: c.output_tokens_per_s)
    return (
        "However much lifting it gave, the lowest other ceiling that is known at"
        f" concurrency {high} is {nearest.hypothesis}:"
        f" {number(nearest.output_tokens_per_s)} output tokens/s,"
        f" {number(nearest.times_measured)} times what was measured ({nearest.basis})."
    )
