"""Going on with a run that was cut short."""

import threading

import pytest
from tests.session.scripted_session import RECIPE, ScriptedSite, World, broken_off

from stepscope.archive.hold import held
from stepscope.archive.reader import open_run
from stepscope.errors import RecipeError, SessionError
from stepscope.load.spec import LoadResult, LoadSpec


@pytest.fixture
def cut(world: World) -> World:
    """Return a later session on a run that was stopped in its third cell."""

    def asked(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> LoadResult:
        world.halt.ask()
        assert stop.wait(10)
        return broken_off(site)

    world.site.drives["baseline-c2-r0"] = asked
    world.run()
    return world.again()


def test_finished_cells_are_kept_and_the_interrupted_one_is_measured(
    cut: World,
) -> None:
    before = {c.name: c for c in open_run(cut.out).cells}
    outcome = cut.run(resume=True)
    drives = [e for e in cut.site.events if e.startswith("drive")]
    assert drives == [
        "drive baseline-warm0-resume1",
        "drive baseline-c2-r0",
        "drive other-warm0",
        "drive other-c1-r0",
        "drive other-c2-r0",
    ]
    run = open_run(cut.out)
    after = {c.name: c for c in run.cells}
    assert (
        after["baseline-c1-r0"].started_at_ns == before["baseline-c1-r0"].started_at_ns
    )
    assert {c.status for c in run.cells} == {"done"}
    assert outcome.n_measured == 4
    assert run.complete


def test_a_resumed_launch_has_a_name_and_a_log_of_its_own(cut: World) -> None:
    cut.run(resume=True)
    run = open_run(cut.out)
    assert [x.name for x in run.launches] == [
        "baseline-l0",
        "baseline-l0-resume1",
        "other-l0",
    ]
    cell = next(c for c in run.cells if c.name == "baseline-c2-r0")
    assert cell.launch == "baseline-l0-resume1"
    assert {x.session for x in run.launches} == {"s0"}


def test_resuming_a_finished_run_measures_nothing_and_is_content(
    world: World,
) -> None:
    world.run()
    later = world.again()
    outcome = later.run(resume=True)
    assert not any(e.startswith("drive") for e in later.site.events)
    assert outcome.n_measured == 4
    assert open_run(world.out).complete


def test_another_recipe_is_refused_and_the_difference_named(cut: World) -> None:
    with pytest.raises(RecipeError) as caught:
        cut.run(RECIPE.replace("output_tokens = 4", "output_tokens = 5"), resume=True)
    assert "`output_tokens = 4` became `output_tokens = 5`" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_comment_is_no_difference(cut: World) -> None:
    outcome = cut.run("# a remark\n" + RECIPE, resume=True)
    assert outcome.n_measured == 4


def test_a_clock_that_was_restarted_is_refused(cut: World) -> None:
    cut.clock._unix_offset_ns += 3_600_000_000_000
    with pytest.raises(SessionError) as caught:
        cut.run(resume=True)
    assert "3600 s" in str(caught.value)


def test_there_must_be_a_run_to_go_on_with(world: World) -> None:
    with pytest.raises(RecipeError, match="no run is here"):
        world.run(resume=True)


def test_a_folder_that_holds_something_is_refused_without_resume(
    world: World,
) -> None:
    world.run()
    with pytest.raises(RecipeError, match="already holds a run"):
        world.again().run()


def test_a_run_that_is_still_being_written_is_left_alone(cut: World) -> None:
    before = sorted(p for p in cut.out.rglob("*"))
    with held(cut.out), pytest.raises(RecipeError, match="is writing this run"):
        cut.run(resume=True)
    assert sorted(p for p in cut.out.rglob("*")) == before
    assert not cut.site.events
    assert cut.run(resume=True).n_measured == 4


def test_a_session_holds_its_run_from_the_start_and_lets_it_go(world: World) -> None:
    seen = []

    def looking(
        site: ScriptedSite, spec: LoadSpec, stop: threading.Event
    ) -> LoadResult:
        with pytest.raises(RecipeError, match="is writing this run"), held(world.out):
            pass
        seen.append(spec)
        return broken_off(site)

    world.site.drives["baseline-c1-r0"] = looking
    world.run()
    assert seen
    with held(world.out):
        pass
