"""Before and after: what an experiment that `explain` ran did to the board."""

import gzip
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepscope.analysis.analyze import analyze
from stepscope.board.judge import judge
from stepscope.board.records import Chosen
from stepscope.recipe.records import Experiment
from stepscope.run.run import Launch, Run

DATA = Path(__file__).parents[2] / "data" / "experiments" / "eager-h200.run.gz"

ASKED = Experiment(
    number=0,
    change="graphs",
    title="the same cells with graphs",
    against="eager",
    splits=("launch", "scheduler"),
    minutes=3.0,
)


def real() -> Run:
    return msgspec.msgpack.decode(gzip.decompress(DATA.read_bytes()), type=Run)


def chosen(run: Run) -> Chosen:
    (one,) = judge(run, analyze(run)).experiments
    assert one.chosen is not None
    return one.chosen


def marked(run: Run, name: str, why: Experiment) -> tuple[Launch, ...]:
    return tuple(
        replace(x, experiment=why) if x.name == name else x for x in run.launches
    )


def test_it_tells_statuses_before_and_after_and_what_it_took() -> None:
    run = real()
    got = chosen(replace(run, launches=marked(run, "baseline-l0", ASKED)))
    assert {(t.hypothesis, t.status) for t in got.before} == {
        ("launch", "standing"),
        ("scheduler", "standing"),
    }
    assert {(t.hypothesis, t.status) for t in got.after} == {
        ("launch", "supported"),
        ("scheduler", "ruled-out"),
    }
    assert got.eliminated == ("scheduler at concurrency 8 to 64",)
    assert got.supported == ("launch at concurrency 8 to 64",)
    assert got.failure is None
    assert got.minutes is not None
    assert got.usd is not None
    assert abs(got.usd - 3.5 * got.minutes / 60) < 1e-9


def test_an_experiment_that_did_not_boot_is_told_with_its_failure() -> None:
    run = real()
    failed = Launch(
        name="eager-cpus-x0",
        configuration="eager-cpus",
        failure="it exited with 1",
        experiment=replace(ASKED, change="cpus"),
    )
    run = replace(run, launches=(*run.launches, failed))
    board = judge(run, analyze(run))
    (told,) = [e.chosen for e in board.experiments if e.chosen is not None]
    assert told.failure == "it exited with 1"
    assert told.before == told.after
    assert (told.eliminated, told.minutes) == ((), None)


def test_pairs_that_the_recipe_had_were_chosen_by_nobody() -> None:
    (one,) = judge(real(), analyze(real())).experiments
    assert one.chosen is None
