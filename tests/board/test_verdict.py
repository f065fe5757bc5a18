"""The sentences at the head of the page, where a run has several configurations."""

from typing import Any

from tests.board.test_post import post
from tests.board.test_timelines import STEP_MS, rank, step

from stepscope.analysis.across.records import TracedStep
from stepscope.analysis.boot.records import BootResult

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


def test_one_that_did_not_boot_is_named_with_its_cause(bench: Bench) -> None:
    launches = (
        bench.launch(),
        bench.launch(name="b-l0", configuration="b", ready=False),
    )
    boot = BootResult(
        launch="b-l0",
        ready=False,
        seconds_to_ready=None,
        phases=(),
        ledger={},
        verdict={"cause": "no-kv-memory", "why": "nothing was left"},
    )
    sentences = bench.board(bench.run(launches=launches), boot=(boot,)).sentences
    assert "b: the server did not boot (no-kv-memory)." in sentences[1]


def test_load_driven_for_timelines_names_them_too(bench: Bench) -> None:
    cells = [
        bench.result(name=f"{c}-t", configuration=c, warm_up=True, capture="untraced")
        for c in ("base", "eager")
    ]
    found = step(rank(causes={"launch_call": 0.75 * STEP_MS}), configuration="eager")
    sentences = bench.board(None, *cells, traced=(found,)).sentences
    assert "eager: launching kernels one by one" in sentences[1]


def test_one_configuration_is_told_as_before(bench: Bench) -> None:
    assert bench.board().sentences[1].startswith("No cause of the step time is shown.")


def test_configurations_that_say_the_same_are_told_together() -> None:
    told = " ".join(post().verdict)
    assert "engram-on-gpu, max-model-len-4096, full-decode-only: no cause is" in told


def test_a_frontend_is_not_ruled_out_where_a_void_load_may_be_its_doing(
    bench: Bench,
) -> None:
    """As in the recorded sweep: sound up to 256 in flight, a gap of 14 % at 512."""
    cells = (bench.cell(), bench.cell("base-c512-r0", concurrency=512))
    lost = bench.result(
        name="base-c512-r0",
        concurrency=512,
        valid=False,
        void_reasons=("client-bound",),
        client_tpot_error_pct=14.0,
    )
    board = bench.board(bench.run(cells=cells), bench.result(), lost)
    told = " ".join(board.sentences)
    assert "frontend" not in told.split("Ruled out: ")[1].split(".")[0]
    assert "frontend" in told.split("Open: ")[1].split(".")[0]
    alone = " ".join(bench.board(bench.run(), bench.result()).sentences)
    assert "frontend" in alone.split("Ruled out: ")[1].split(".")[0]
