"""The sentences at the head of the page, where a run has several configurations."""

from typing import Any

from tests.board.test_timelines import STEP_MS, rank, step

from stepscope.analysis.across.records import TracedStep

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def two(bench: Bench, **causes: float) -> tuple[str, ...]:
    """Eager beside a baseline; what its timeline says of its idle time."""
    launches = (bench.launch(), bench.launch(name="eager-l0", configuration="eager"))
    cells = (
        bench.cell(),
        bench.cell("eager-c16-r0", configuration="eager", launch="eager-l0"),
    )
    own = bench.result(name="eager-c16-r0", configuration="eager", launch="eager-l0")
    found: TracedStep = step(rank(causes=causes), configuration="eager")
    board = bench.board(
        bench.run(launches=launches, cells=cells),
        bench.result(),
        own,
        traced=(found,),
    )
    told: tuple[str, ...] = board.sentences
    return told


def test_the_causes_of_every_configuration_are_named(bench: Bench) -> None:
    sentences = two(bench, launch_call=0.75 * STEP_MS)
    assert len(sentences) <= 3
    assert "eager: launching kernels one by one" in sentences[1]
    assert "at least 75.0 % of the step" in sentences[1]


def test_a_configuration_without_a_cause_is_not_silent(bench: Bench) -> None:
    assert "eager: no cause is shown" in two(bench)[1]


def test_one_configuration_is_told_as_before(bench: Bench) -> None:
    assert bench.board().sentences[1].startswith("No cause of the step time is shown.")
