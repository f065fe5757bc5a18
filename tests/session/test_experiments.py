"""Launches that are added to a run that has been measured."""

import msgspec
from tests.session.scripted_session import RECIPE, World

from stepscope.archive.reader import open_run
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Experiment, Plan
from stepscope.session.execute import Order, execute_at

WHY = Experiment(
    number=0,
    change="cpus",
    title="the server on half of its processors",
    against="baseline",
    splits=("compute",),
    minutes=1.0,
)


def added() -> Plan:
    """Return a launch of a configuration that the recipe does not name."""
    recipe = load_recipe(RECIPE, "recipe.toml")
    own = recipe.configurations[0]
    other = msgspec.structs.replace(own, name="baseline-cpus", cpus="0")
    alone = msgspec.structs.replace(recipe, configurations=(other,))
    (launch,) = expand(alone).launches
    cells = tuple(
        msgspec.structs.replace(c, launch="baseline-cpus-x0") for c in launch.cells
    )
    launch = msgspec.structs.replace(
        launch, name="baseline-cpus-x0", cells=cells, experiment=WHY
    )
    return Plan(recipe=recipe, launches=(launch,))


def test_they_join_the_run_and_its_session_and_change_nothing_measured(
    world: World,
) -> None:
    world.run()
    before = open_run(world.out)
    later = world.again()
    order = Order(added(), RECIPE, later.out, resume=True)
    outcome = execute_at(later.site, order, later.clock, later.notes, later.halt)
    assert outcome.failures == ()
    run = open_run(world.out)
    assert run.launches[: len(before.launches)] == before.launches
    assert run.cells[: len(before.cells)] == before.cells
    new = run.launches[-1]
    assert (new.name, new.session, new.cpus) == ("baseline-cpus-x0", "s0", "0")
    assert new.experiment == WHY
    names = [c.name for c in run.cells if c.launch == new.name]
    assert names == [
        "baseline-cpus-warm0",
        "baseline-cpus-c1-r0",
        "baseline-cpus-c2-r0",
    ]
    assert run.complete
    assert all(x.experiment is None for x in before.launches)
