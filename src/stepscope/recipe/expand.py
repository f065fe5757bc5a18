"""A Recipe to a Plan: which servers start, and which cells run on each, in order."""

import fnmatch
from typing import Literal, get_args

import msgspec

from stepscope.errors import RecipeError
from stepscope.recipe.points import closed_loop, points_of, warm_up_of
from stepscope.recipe.records import (
    Capture,
    CellPlan,
    Configuration,
    LaunchPlan,
    Plan,
    Recipe,
    Workload,
)

#: Seeds of measured cells begin here, above those of warm-ups.
_REPEAT_SEEDS = 1_000_000
#: Above every repeat that a recipe can ask for (100 launches of 100 repeats).
_TRACE_REPEAT = 10_001

Order = Literal["abba", "interleaved", "sequential"]
ORDERS: tuple[Order, ...] = get_args(Order)


def expand(recipe: Recipe, order: Order = "abba") -> Plan:
    """Return the launches and cells of a recipe.

    Launches for traces come last: nothing that is measured shares a server with a
    profiler.

    Args:
        recipe: What to run.
        order: How configurations share the time. ``abba``: there and back (A B, B A),
            so that a slow drift of the machine falls on all of them alike and the
            baseline is the first and the last of the launches; ``interleaved``: A B,
            A B; ``sequential``: all launches of one after all of another, where a
            drift can not be told from a difference.
    """
    launches = [_launch(recipe, c, i) for i, c in _turns(recipe, order)]
    launches += [
        _trace_launch(recipe, c) for c in recipe.configurations if _traced(recipe, c)
    ]
    return Plan(recipe=recipe, launches=tuple(launches))


def _turns(recipe: Recipe, order: Order) -> list[tuple[int, Configuration]]:
    """Return launch numbers and configurations in the order in which they start."""
    configurations, n = recipe.configurations, recipe.n_launches
    if order == "sequential":
        return [(i, c) for c in configurations for i in range(n)]
    turns: list[tuple[int, Configuration]] = []
    for i in range(n):
        # Of an odd number of rounds the last goes back as well: A B, B A, B A.
        back = order == "abba" and (i % 2 == 1 or (i > 0 and i == n - 1))
        turns += [(i, c) for c in (configurations[::-1] if back else configurations)]
    return turns


def select(plan: Plan, only: str) -> Plan:
    """Keep what ``only`` names: configurations, launches or cells; globs are fine.

    A cell keeps the warm-ups of its launch, which come before it.

    Raises:
        RecipeError: Nothing matches; the message lists what there is.
    """
    kept: list[LaunchPlan] = []
    for launch in plan.launches:
        names = (launch.name, launch.configuration.name)
        if any(fnmatch.fnmatchcase(name, only) for name in names):
            kept.append(launch)
            continue
        chosen = {c.name for c in launch.cells if fnmatch.fnmatchcase(c.name, only)}
        if chosen:
            wanted = any(c.name in chosen and c.wanted for c in launch.cells)
            cells = tuple(
                c
                for c in launch.cells
                if c.name in chosen or (wanted and c.warm_up and not c.wanted)
            )
            kept.append(msgspec.structs.replace(launch, cells=cells))
    if not kept:
        configurations = dict.fromkeys(x.configuration.name for x in plan.launches)
        raise RecipeError(
            "--only",
            f'nothing is called "{only}"',
            "there are the configurations " + ", ".join(configurations),
            "Launches: "
            + ", ".join(x.name for x in plan.launches)
            + ". Cells: "
            + ", ".join(c.name for x in plan.launches for c in x.cells),
        )
    return msgspec.structs.replace(plan, launches=tuple(kept))


def _launch(recipe: Recipe, configuration: Configuration, i: int) -> LaunchPlan:
    """Return launch ``i`` of a configuration: warm-ups, then rounds of cells.

    A round measures every point once, from low to high and then from high to low, so
    that what drifts during a launch does not fall on one point alone.
    """
    name = f"{configuration.name}-l{i}"
    cells = _warm_ups(recipe, configuration, name, i)
    points = points_of(recipe.sweep)
    for n_round in range(max(point.n_repeats for point in points)):
        there = n_round % 2 == 0
        for point in points if there else points[::-1]:
            if n_round >= point.n_repeats:
                continue
            repeat = i * point.n_repeats + n_round
            seed = (repeat + 1) * _REPEAT_SEEDS + point.seed
            cells.append(
                CellPlan(
                    name=f"{configuration.name}-{point.label}-r{repeat}",
                    configuration=configuration.name,
                    launch=name,
                    workload=_seeded(recipe, point.workload, seed),
                    repeat=repeat,
                )
            )
    return LaunchPlan(name=name, configuration=configuration, cells=tuple(cells))


def _traced(recipe: Recipe, configuration: Configuration) -> bool:
    asked = recipe.tracing
    return asked is not None and (
        not asked.configurations or configuration.name in asked.configurations
    )


def _trace_launch(recipe: Recipe, configuration: Configuration) -> LaunchPlan:
    """Return the launch on which a configuration is traced.

    The same loads come untraced first: a profiler that ran once may stay attached.
    """
    assert recipe.tracing is not None
    name = f"{configuration.name}-trace-l0"
    cells = _warm_ups(recipe, configuration, name, recipe.n_launches)
    captures: tuple[tuple[Capture, str], ...] = (
        ("untraced", "untraced"),
        ("traced", "trace"),
    )
    for number, (capture, ending) in enumerate(captures):
        for concurrency in recipe.tracing.concurrency:
            seed = (_TRACE_REPEAT + number) * _REPEAT_SEEDS + concurrency
            workload = _seeded(recipe, closed_loop(recipe.sweep, concurrency), seed)
            cells.append(
                CellPlan(
                    name=f"{configuration.name}-c{concurrency}-{ending}",
                    configuration=configuration.name,
                    launch=name,
                    workload=workload,
                    repeat=0,
                    warm_up=True,
                    capture=capture,
                )
            )
    return LaunchPlan(
        name=name, configuration=configuration, cells=tuple(cells), traced=True
    )


def _warm_ups(
    recipe: Recipe, configuration: Configuration, launch: str, i: int
) -> list[CellPlan]:
    warm_up = recipe.warm_up
    workload = warm_up_of(recipe)
    return [
        CellPlan(
            name=f"{configuration.name}-warm{block}",
            configuration=configuration.name,
            launch=launch,
            workload=_seeded(recipe, workload, block),
            repeat=block,
            warm_up=True,
        )
        # Blocks that are added until it has settled number on from these.
        for block in range(
            i * warm_up.most_blocks, i * warm_up.most_blocks + warm_up.blocks
        )
    ]


def _seeded(recipe: Recipe, workload: Workload, seed: int) -> Workload:
    """Return a workload point with a seed of its own.

    So a repeat finds nothing in a prefix cache; the same cell of two configurations
    has the same prompts.
    """
    return msgspec.structs.replace(workload, seed=recipe.sweep.seed + seed)
