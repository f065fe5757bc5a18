"""A real pair on one H200: graphs against eager, one launch of each."""

import gzip
from functools import cache
from pathlib import Path

import msgspec
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.board.judge import judge
from stepscope.board.records import Board, BoardEntry
from stepscope.run.run import Run

DATA = Path(__file__).parents[2] / "data" / "experiments" / "eager-h200.run.gz"


@cache
def board() -> Board:
    run = msgspec.msgpack.decode(gzip.decompress(DATA.read_bytes()), type=Run)
    return judge(run, analyze(run))


def entries(hypothesis: str, configuration: str) -> list[BoardEntry]:
    return [
        e
        for e in board().entries
        if (e.hypothesis, e.scope.configuration) == (hypothesis, configuration)
    ]


def test_the_pair_is_found_with_its_figures() -> None:
    (one,) = board().experiments
    assert (one.change, one.light, one.heavy) == ("graphs", "baseline", "eager")
    assert [
        (m.concurrency, round(m.light_ms, 2), round(m.heavy_ms, 1), m.outcome)
        for m in one.moved
    ] == [(8, 9.06, 56.7, "longer"), (64, 18.13, 63.4, "longer")]
    assert all(m.ci95_pct is None for m in one.moved)


def test_eager_is_convicted_of_launching_with_its_share_at_both_sizes() -> None:
    (found,) = entries("launch", "eager")
    assert found.status == "supported"
    shares = [
        e.value for e in found.evidence if e.quantity == "step that graphs take away"
    ]
    assert shares == pytest.approx([71.4, 84.0], abs=0.1)
    assert found.share_of_step_pct == pytest.approx(71.4, abs=0.1)
    text = " ".join(e.reasoning for e in found.evidence)
    assert "torch.compile" in text
    assert "a kernel was resident for" in text


def test_the_scheduler_is_not_convicted_beside_it() -> None:
    (found,) = entries("scheduler", "eager")
    assert (found.status, found.share_of_step_pct) == ("ruled-out", 28.6)


def test_the_baseline_is_convicted_of_nothing_by_it() -> None:
    for hypothesis in ("launch", "scheduler", "graph-launch", "kernel-gaps"):
        statuses = {e.status for e in entries(hypothesis, "baseline")}
        assert statuses <= {"standing", "untestable"}
