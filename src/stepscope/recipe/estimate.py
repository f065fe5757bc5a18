"""Minutes and money before anything runs: guesses, each stated."""

import math

import msgspec

from stepscope.recipe.records import CellPlan, Engine, LaunchPlan, Plan, Workload

#: Seconds from start to ready. Source: boots seen of vLLM (first of a machine 140 s,
#: later 46 to 90 s), SGLang on a CPU (53 to 60 s), llama.cpp (0.5 to 2 s). Weights
#: from a disk, not counted here, add their size over its bandwidth.
_BOOT_S: dict[Engine, float] = {
    "vllm": 140.0,
    "sglang": 120.0,
    "llamacpp": 15.0,
    "url": 0.0,
    "embedded": 3.0,
}
#: Milliseconds a decode step: a constant, and a part for each sequence in flight. The
#: embedded engine computes on one core, where a batch costs what its rows cost.
_STEP_MS: dict[Engine, tuple[float, float]] = {
    "vllm": (20.0, 0.0),
    "sglang": (20.0, 0.0),
    "llamacpp": (20.0, 2.0),
    "url": (20.0, 0.0),
    "embedded": (2.0, 2.5),
}
#: Prompt tokens a second.
_PREFILL_PER_S: dict[Engine, float] = {
    "vllm": 10_000.0,
    "sglang": 10_000.0,
    "llamacpp": 1_000.0,
    "url": 10_000.0,
    "embedded": 700.0,
}
#: Seconds a cell takes besides its requests: metrics, prompts, files.
_CELL_S = 1.0


class LaunchEstimate(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What one launch would take.

    Attributes:
        launch: Its name.
        boot_s: Seconds to ready.
        load_s: Seconds of warm-ups and cells.
        n_requests: Requests of all its cells.
        output_tokens: Tokens asked for.
        usd: Price of boot and load; None without prices.
        n_blocks: Warm-up blocks that it takes at least.
        most_blocks: Warm-up blocks that it takes at most.
        most_load_s: ``load_s`` if it takes them all.
    """

    launch: str
    boot_s: float
    load_s: float
    n_requests: int
    output_tokens: int
    usd: float | None
    n_blocks: int = 0
    most_blocks: int = 0
    most_load_s: float = 0.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plan would take: a guess from ``assumptions``.

    ``minutes`` and ``usd`` hold the fewest warm-up blocks, ``most_minutes`` and
    ``most_usd`` the most.
    """

    minutes: float
    usd: float | None
    launches: tuple[LaunchEstimate, ...]
    assumptions: tuple[str, ...]
    most_minutes: float = 0.0
    most_usd: float | None = None


def estimate(
    plan: Plan, *, boot_s: float | None = None, step_ms: float | None = None
) -> Estimate:
    """Return the minutes and the money that a plan would take.

    Args:
        plan: What would run.
        boot_s: Seconds to ready where they were measured.
        step_ms: Milliseconds a decode step where they were measured; used at every
            concurrency.

    Source: waves, rounded up, times (prefill of one wave + output tokens x step); of an
    open loop requests over their rate, and one answer; plus boot and one second a cell.
    Assumes: what ``assumptions`` lists. Stalls, compilation during the run and the
    time to stop a server are not in it.
    """
    engine = plan.recipe.engine
    boot = _BOOT_S[engine] if boot_s is None else boot_s
    fixed, each = _STEP_MS[engine] if step_ms is None else (step_ms, 0.0)
    prefill = _PREFILL_PER_S[engine]
    cost = plan.recipe.cost
    launches: list[LaunchEstimate] = []
    for launch in plan.launches:
        took = [
            _cell_s(c, step_ms=(fixed, each), prefill_per_s=prefill)
            for c in launch.cells
        ]
        load_s = sum(took)
        blocks = [t for t, c in zip(took, launch.cells, strict=True) if c.warm_up]
        most = most_blocks(plan, launch)
        work = [c.workload for c in launch.cells]
        hours = (boot + load_s) / 3600
        launches.append(
            LaunchEstimate(
                launch=launch.name,
                boot_s=boot,
                load_s=load_s,
                n_requests=sum(w.n_prompts for w in work),
                output_tokens=sum(w.n_prompts * (w.output_tokens or 0) for w in work),
                usd=None if cost is None else cost.usd_per_hour * hours,
                n_blocks=len(blocks),
                most_blocks=most,
                most_load_s=load_s + (most - len(blocks)) * max(blocks, default=0.0),
            )
        )
    most_minutes = sum(x.boot_s + x.most_load_s for x in launches) / 60
    minutes = sum(x.boot_s + x.load_s for x in launches) / 60
    return Estimate(
        minutes=minutes,
        usd=None if cost is None else cost.usd_per_hour * minutes / 60,
        launches=tuple(launches),
        most_minutes=most_minutes,
        most_usd=None if cost is None else cost.usd_per_hour * most_minutes / 60,
        assumptions=_assumptions(engine, boot_s, step_ms),
    )


def _assumptions(
    engine: Engine, boot_s: float | None, step_ms: float | None
) -> tuple[str, ...]:
    boot = _BOOT_S[engine] if boot_s is None else boot_s
    fixed, each = _STEP_MS[engine] if step_ms is None else (step_ms, 0.0)
    step = f"{fixed:g} ms" + (f" + {each:g} ms a sequence" if each else "")
    return (
        f"a boot takes {boot:g} s ({_origin(boot_s)})",
        f"a decode step takes {step} ({_origin(step_ms)})",
        f"{_PREFILL_PER_S[engine]:g} prompt tokens a second (guessed)",
        f"{_CELL_S:g} s a cell besides its requests (guessed)",
    )


def most_blocks(plan: Plan, launch: LaunchPlan) -> int:
    """Return the warm-up blocks that a launch takes at most.

    Where nothing is measured after them, what is planned is all.
    """
    planned = sum(cell.warm_up for cell in launch.cells)
    if not planned or planned == len(launch.cells):
        return planned
    return max(planned, plan.recipe.warm_up.most_blocks)


def _origin(given: float | None) -> str:
    return "guessed" if given is None else "given"


def _cell_s(
    cell: CellPlan, *, step_ms: tuple[float, float], prefill_per_s: float
) -> float:
    work = cell.workload
    if work.arrival is not None:
        return _open_s(work, step_ms=step_ms) + _CELL_S
    concurrency = work.concurrency or 1
    step_s = (step_ms[0] + step_ms[1] * concurrency) / 1000
    prefill_s = concurrency * (work.input_tokens or 0) / prefill_per_s
    n_waves = math.ceil(work.n_prompts / concurrency)
    return n_waves * (prefill_s + (work.output_tokens or 0) * step_s) + _CELL_S


def _open_s(work: Workload, *, step_ms: tuple[float, float]) -> float:
    """Return the seconds of an open loop: arrivals, then the last answer.

    Recorded arrivals are in a file that is not read here; they count as one a second.
    """
    rate = work.request_rate or sum(work.ramp_rps or (1.0, 1.0)) / 2
    step_s = (step_ms[0] + step_ms[1]) / 1000
    return work.n_prompts / rate + (work.output_tokens or 0) * step_s
