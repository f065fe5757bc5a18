"""A Recipe to a Plan: which servers start, and which cells run on each, in order."""

import fnmatch

import msgspec

from stepscope.errors import RecipeError
from stepscope.recipe.records import (
    CellPlan,
    Configuration,
    LaunchPlan,
    Plan,
    Recipe,
    Workload,
)


def expand(recipe: Recipe) -> Plan:
    """Return the launches and cells of a recipe.

    Warm-ups come first on every launch. Repeats are interleaved: every concurrency
    once, then all again, so that a slow drift does not fall on one point alone. Each
    cell draws its prompts from a seed of its own, so no prompt comes twice.
    """
    launches = [_launch(recipe, c) for c in recipe.configurations]
    return Plan(recipe=recipe, launches=tuple(launches))


def _launch(recipe: Recipe, configuration: Configuration) -> LaunchPlan:
    launch = f"{configuration.name}-l0"
    sweep = recipe.sweep
    cells: list[CellPlan] = []
    warm = recipe.warm_up.concurrency or max(c for c, _ in sweep.concurrency)
    for block in range(recipe.warm_up.blocks):
        cells.append(
            CellPlan(
                name=f"{configuration.name}-warm{block}",
                configuration=configuration.name,
                launch=launch,
                workload=_workload(recipe, warm, n_prompts=warm, seed=len(cells)),
                repeat=block,
                warm_up=True,
            )
        )
    for repeat in range(max(n for _, n in sweep.concurrency)):
        for concurrency, n in sweep.concurrency:
            if repeat >= n:
                continue
            n_prompts = sweep.n_prompts or sweep.waves * concurrency
            cells.append(
                CellPlan(
                    name=f"{configuration.name}-c{concurrency}-r{repeat}",
                    configuration=configuration.name,
                    launch=launch,
                    workload=_workload(
                        recipe, concurrency, n_prompts=n_prompts, seed=len(cells)
                    ),
                    repeat=repeat,
                )
            )
    return LaunchPlan(name=launch, configuration=configuration, cells=tuple(cells))


def _workload(
    recipe: Recipe, concurrency: int, *, n_prompts: int, seed: int
) -> Workload:
    sweep = recipe.sweep
    return Workload(
        concurrency=concurrency,
        n_prompts=n_prompts,
        input_tokens=sweep.input_tokens,
        output_tokens=sweep.output_tokens,
        dataset=sweep.dataset,
        endpoint=sweep.endpoint,
        seed=sweep.seed * 100_003 + seed,
    )


def select(plan: Plan, only: str) -> Plan:
    """Keep what ``only`` names: a configuration, a launch or a cell; globs are fine.

    A cell keeps the warm-ups of its launch.

    Raises:
        RecipeError: Nothing matches; the message lists what there is.
    """
    kept = []
    for launch in plan.launches:
        names = (launch.name, launch.configuration.name)
        if any(fnmatch.fnmatchcase(name, only) for name in names):
            kept.append(launch)
            continue
        cells = [c for c in launch.cells if fnmatch.fnmatchcase(c.name, only)]
        if cells:
            warm = [c for c in launch.cells if c.warm_up and c not in cells]
            kept.append(msgspec.structs.replace(launch, cells=(*warm, *cells)))
    if not kept:
        cells_there = [c.name for launch in plan.launches for c in launch.cells]
        raise RecipeError(
            "--only",
            f'"{only}" names nothing',
            "there are " + ", ".join([x.configuration.name for x in plan.launches]),
            "Cells: " + ", ".join(cells_there),
        )
    return Plan(recipe=plan.recipe, launches=tuple(kept))
