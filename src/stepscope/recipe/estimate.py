"""Minutes and money before anything runs. Guesses, and they say so."""

import msgspec

from stepscope.recipe.records import LaunchPlan, Plan

#: Seconds from start to ready, a guess by engine. Source: boots seen on one H200
#: (vLLM 46 to 140 s), on CPU (SGLang 53 to 60 s) and of llama.cpp (0.5 to 2 s).
_BOOT_S = {
    "vllm": 120.0,
    "sglang": 120.0,
    "llamacpp": 10.0,
    "url": 0.0,
    "embedded": 2.0,
}
#: Milliseconds a decode step, a guess where nothing was measured.
_STEP_MS = 20.0
_CELL_OVERHEAD_S = 2.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plan would take. ``usd`` is None without prices."""

    minutes: float
    usd: float | None
    minutes_by_launch: dict[str, float]
    assumptions: tuple[str, ...]


def estimate(plan: Plan) -> Estimate:
    """Return the minutes and the money that a plan would take.

    Source: waves x output tokens x an assumed step, plus an assumed boot.
    """
    by_launch = {x.name: _minutes(plan, x) for x in plan.launches}
    minutes = sum(by_launch.values())
    cost = plan.recipe.cost
    return Estimate(
        minutes=minutes,
        usd=None if cost is None else cost.usd_per_hour * minutes / 60,
        minutes_by_launch=by_launch,
        assumptions=(
            f"a boot of {_BOOT_S[plan.recipe.engine]:.0f} s",
            f"a decode step of {_STEP_MS:.0f} ms at every concurrency",
            f"{_CELL_OVERHEAD_S:.0f} s a cell besides",
        ),
    )


def _minutes(plan: Plan, launch: LaunchPlan) -> float:
    seconds = _BOOT_S[plan.recipe.engine]
    for cell in launch.cells:
        work = cell.workload
        waves = work.n_prompts / (work.concurrency or 1)
        step_s = waves * (work.output_tokens or 0) * _STEP_MS / 1000
        seconds += step_s + _CELL_OVERHEAD_S
    return seconds / 60
