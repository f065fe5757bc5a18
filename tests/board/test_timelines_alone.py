"""A run of timelines alone: the load that was driven untraced is what is judged."""

from typing import Any

from stepscope.analysis.across.records import TracedStep
from stepscope.run.run import TraceRef
from stepscope.run.stepbudget import RankBudget

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def traced() -> TracedStep:
    rank = RankBudget(
        rank=0, n_periods=30, step_ms=10.0, compute_ms=9.5, communication_ms=0.0,
        communication_wait_ms=None, memcpy_ms=0.0, idle_ms=0.5,
        idle_by_cause={
            "inside_graph": 0.4, "host_not_launching_yet": 0.0,
            "graph_launch_call": 0.0, "launch_call": 0.0,
            "after_launch_returned": 0.1, "no_launch_record": 0.0,
        },
    )  # fmt: skip
    return TracedStep(
        configuration="base", concurrency=16, launch="base-l0", cell="base-traced",
        paths=("t.json",), usable=True, defects=(), step_kind="decode",
        step_source="graph-launches", traced_step_ms=10.0, untraced_step_ms=9.9,
        untraced_source="engine step of base-c16-r0", stretch_pct=1.0, match="same",
        n_ranks=1, ranks=(rank,),
    )  # fmt: skip


def test_its_timeline_is_read_and_not_asked_for(bench: Bench) -> None:
    driven = bench.result(warm_up=True, capture="untraced")
    board = bench.board(None, driven, traced=(traced(),))
    (gaps,) = [e for e in board.entries if e.hypothesis == "kernel-gaps"]
    assert gaps.status == "ruled-out"
    assert gaps.scope.concurrency_from == 16
    assert not [e for e in board.entries if "Nothing of this" in (e.would_decide or "")]
    assert "driven while nobody traced" in board.sentences[0]


def test_every_load_that_was_driven_is_named(bench: Bench) -> None:
    driven = [
        bench.result(name=name, concurrency=c, warm_up=True, capture="untraced")
        for name, c in (("base-c8-untraced", 8), ("base-c16-untraced", 16))
    ]
    said = bench.board(None, *driven).sentences[0]
    assert "(base-c8-untraced, base-c16-untraced)" in said


def test_beside_measured_cells_it_is_left_out(bench: Bench) -> None:
    driven = bench.result(name="t", concurrency=8, warm_up=True, capture="untraced")
    board = bench.board(None, bench.result(), driven, traced=(traced(),))
    assert {e.scope.concurrency_from for e in board.entries} == {16}


def test_the_timeline_of_another_configuration_is_not_named(bench: Bench) -> None:
    launches = (bench.launch(), bench.launch(name="b-l0", configuration="b"))
    traces = (
        TraceRef(path="t/b.gz", concurrency=16, launch="b-l0"),
        TraceRef(path="t/base.gz", concurrency=16, launch="base-l0"),
    )
    board = bench.board(bench.run(launches=launches, traces=traces))
    (launch,) = [
        e
        for e in board.entries
        if (e.hypothesis, e.scope.configuration) == ("launch", "base")
    ]
    assert "stepscope trace t/base.gz" in (launch.would_decide or "")
