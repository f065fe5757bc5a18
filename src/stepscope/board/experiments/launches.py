"""An experiment's needs as launches of the run that it joins."""

import msgspec

from stepscope.board.planning.draft import Draft, Patch
from stepscope.recipe.expand import expand
from stepscope.recipe.records import (
    Configuration,
    LaunchPlan,
    Plan,
    Recipe,
    Tracing,
)


def launches_of(recipe: Recipe, draft: Draft, change: str, number: int) -> Plan:
    """Return the launches of a draft, under names that are new to the run.

    Cells have the prompts, the warm-up and the repeats of the baseline's own, and each
    configuration as many launches as the recipe gives it.

    Args:
        recipe: What was measured.
        draft: What the experiment needs: new configurations, or timelines.
        change: Names the new configurations: ``baseline-graphs``.
        number: Of the experiment: ``baseline-graphs-x0``.
    """
    base = recipe.configurations[0]
    asked = dict(recipe.sweep.concurrency)
    sweep = msgspec.structs.replace(
        recipe.sweep,
        concurrency=tuple((c, asked.get(c, 1)) for c in sorted(draft.repeats)),
        request_rate=(),
    )
    found: list[LaunchPlan] = []
    for patch in draft.patches:
        name = f"{base.name}-{change}"
        taken = {c.name for c in recipe.configurations}
        name = name if name not in taken else f"{name}-experiment"
        alone = msgspec.structs.replace(
            recipe,
            configurations=(_patched(base, patch, name),),
            sweep=sweep,
            tracing=None,
        )
        started = expand(alone).launches
        found += [_renamed(x, name, number, i) for i, x in enumerate(started)]
    traced = recipe
    if draft.traces:
        tracing = msgspec.structs.replace(
            recipe.tracing or Tracing(concurrency=()),
            concurrency=tuple(sorted(draft.traces)),
            configurations=(base.name,),
        )
        traced = msgspec.structs.replace(recipe, tracing=tracing)
        found += [
            _renamed(x, f"{base.name}-trace", number, 0)
            for x in expand(traced).launches
            if x.traced
        ]
    return Plan(recipe=traced, launches=tuple(found))


def _patched(base: Configuration, patch: Patch, name: str) -> Configuration:
    return Configuration(
        name=name,
        flags={**base.flags, **patch.flags},
        environment=base.environment,
        cpus=base.cpus if patch.cpus is None else patch.cpus,
    )


def _renamed(launch: LaunchPlan, stem: str, number: int, i: int) -> LaunchPlan:
    name = f"{stem}-x{number}" if i == 0 else f"{stem}-x{number}-{i}"
    # Warm-ups of one configuration share a stem: the run may have these already.
    cells = tuple(
        msgspec.structs.replace(
            c, launch=name, name=c.name if c.wanted else f"{c.name}-x{number}"
        )
        for c in launch.cells
    )
    return msgspec.structs.replace(launch, name=name, cells=cells)
