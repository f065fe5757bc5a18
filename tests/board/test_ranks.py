"""What several ranks do to each other: whose fault a wait is, and waits on the host."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.board.test_timelines import STEP_MS, rank, step
from tests.timeline.pair import Plan, traces

from stepscope.board.records import BoardEntry
from stepscope.importers.timelines import budget_of
from stepscope.recipe.records import Layout
from stepscope.run.run import TraceRef
from stepscope.run.stepbudget import RankBudget, StepBudget
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.load import load_traces

Bench = Any  # tests/board/conftest.py; a conftest can not be imported


def entries(bench: Bench, *ranks: RankBudget, **over: Any) -> dict[str, BoardEntry]:
    run = bench.run(n_gpus=2, layout=Layout(tp=2))
    traced = step(*ranks, **over)
    cell = bench.result(engine_step_ms=traced.untraced_step_ms)
    board = bench.board(run, cell, traced=(traced,))
    return {e.hypothesis: e for e in board.entries}


class TestWhoseFault:
    def told(self, bench: Bench, reason: str) -> BoardEntry:
        early = rank(communication_ms=2.6, communication_wait_ms=2.5)
        late = rank(number=1, communication_ms=0.1, communication_wait_ms=0.0)
        found = entries(bench, early, late, straggler_rank=1, straggler_reason=reason)
        return found["imbalance"]

    @pytest.mark.parametrize("reason", ["by work: it", "by start and work: it"])
    def test_work_of_a_rank_that_is_late_by_work_is_imbalance(
        self, bench: Bench, reason: str
    ) -> None:
        entry = self.told(bench, reason)
        assert (entry.status, entry.share_of_step_pct) == ("standing", 25.3)

    @pytest.mark.parametrize(
        "reason",
        [
            "by start: the others wait for it, it computes +2.400",
            "by transfer: it",
            "arrives last: the others wait; by work or by start is not known",
        ],
    )
    def test_work_of_a_rank_that_is_late_for_another_reason_is_none(
        self, bench: Bench, reason: str
    ) -> None:
        entry = self.told(bench, reason)
        assert entry.evidence[0].value == 0.0
        assert reason in entry.evidence[0].reasoning


class TestWaitingOnTheHost:
    def found(self, bench: Bench, **host: Any) -> dict[str, BoardEntry]:
        idle = rank(causes={"host_not_launching_yet": 0.75 * STEP_MS}, **host)
        other = rank(
            number=1, causes={"host_not_launching_yet": 0.1 * STEP_MS}, host_wait_ms=0.0
        )
        return entries(bench, idle, other)

    def test_idle_time_that_may_be_a_wait_does_not_convict_the_loop(
        self, bench: Bench
    ) -> None:
        assert self.found(bench)["scheduler"].status == "supported"
        found = self.found(bench, host_wait_ms=0.5 * STEP_MS)
        assert found["scheduler"].status == "standing"
        assert found["scheduler"].share_of_step_pct == 25.0
        assert (
            "collectives of the processors" in found["scheduler"].evidence[0].reasoning
        )

    def test_it_is_not_ruled_out_as_waiting_either(self, bench: Bench) -> None:
        assert self.found(bench)["rank-wait"].status == "ruled-out"
        found = self.found(bench, host_wait_ms=0.5 * STEP_MS)
        for name in ("rank-wait", "imbalance"):
            assert found[name].status == "standing"

    def test_a_wait_that_no_idle_device_leaves_room_for_costs_nothing(
        self, bench: Bench
    ) -> None:
        busy = rank(host_wait_ms=0.8 * STEP_MS)
        found = entries(bench, busy, rank(number=1, host_wait_ms=0.0))
        assert found["rank-wait"].status == "ruled-out"
        assert found["rank-wait"].share_of_step_pct == 0.0

    def test_a_transfer_between_hosts_is_no_proof_against_communication(
        self, bench: Bench
    ) -> None:
        found = self.found(bench, host_transfer_ms=0.5 * STEP_MS)
        assert found["communication"].status == "standing"
        assert found["scheduler"].status == "standing"


@cache
def played(late_us: float) -> StepBudget:
    """Two ranks with an all-reduce on the host, to which rank 1 comes late."""
    plan = Plan(host_us=lambda r, _k: 900.0 + late_us * r)
    refs = [TraceRef(path=f"{r}", rank=r, launch="base-l0") for r in (0, 1)]
    return budget_of(analyze_traces(traces(plan)), refs)


def test_a_rank_that_waits_in_gloo_is_read_from_its_timeline() -> None:
    early, late = played(4000.0).ranks
    assert early.host_wait_ms == pytest.approx(4.0, rel=0.1)
    assert late.host_wait_ms == pytest.approx(0.0, abs=0.1)
    assert early.host_transfer_ms == pytest.approx(0.12, rel=0.3)


def test_the_loop_that_is_convicted_is_that_of_the_late_rank(bench: Bench) -> None:
    budget = played(20_000.0)
    took = max(r.step_ms for r in budget.ranks)
    found = entries(bench, *budget.ranks, untraced_step_ms=took, traced_step_ms=took)
    (item, *_) = found["scheduler"].evidence
    assert found["scheduler"].status == "supported"
    assert "of rank 1" in item.reasoning
    assert found["rank-wait"].status == "standing"
    assert "collectives of the processors" in found["rank-wait"].evidence[0].reasoning


CAPTURES = Path(__file__).parents[1] / "data" / "timelines"


@cache
def captured(name: str) -> StepBudget:
    """A decode on two H200s that share their experts; ``stepscope run`` took it."""
    files = sorted(CAPTURES.glob(f"h200x2_dp2_ep2_{name}_rank*.json.gz"))
    refs = [
        TraceRef(path=str(p), rank=i, launch="base-l0") for i, p in enumerate(files)
    ]
    return budget_of(analyze_traces(load_traces(files)), refs)


def judged(
    bench: Bench, budget: StepBudget, untraced_ms: float
) -> dict[str, BoardEntry]:
    return entries(
        bench,
        *budget.ranks,
        untraced_step_ms=untraced_ms,
        straggler_rank=budget.straggler_rank,
        straggler_reason=budget.straggler_reason,
    )


@pytest.mark.parametrize(
    ("name", "untraced_ms", "pct"), [("base", 6.86, 25.4), ("slow", 6.08, 10.8)]
)
def test_uneven_experts_on_real_ranks_are_a_part_of_the_step_and_not_most(
    bench: Bench, name: str, untraced_ms: float, pct: float
) -> None:
    budget = captured(name)
    found = judged(bench, budget, untraced_ms)
    assert {found[n].status for n in ("rank-wait", "imbalance")} == {"standing"}
    assert found["imbalance"].share_of_step_pct == pct
    assert found["communication"].status == "ruled-out"


class TestWhatToRunNext:
    def test_without_timelines_of_all_ranks_these(self, bench: Bench) -> None:
        found = entries(bench, rank(), n_ranks=1)
        assert "One timeline of every rank" in (found["imbalance"].would_decide or "")

    def test_with_them_a_change_and_never_the_same_again(self, bench: Bench) -> None:
        found = judged(bench, captured("base"), 6.86)
        for name in ("rank-wait", "imbalance"):
            text = found[name].would_decide or ""
            assert "One timeline of every rank" not in text
            assert text.startswith("The same load with")

    def test_with_stretched_ones_others(self, bench: Bench) -> None:
        wait = rank(communication_ms=2.6, communication_wait_ms=2.5)
        found = entries(
            bench, wait, rank(number=1), match="stretched", stretch_pct=45.0
        )
        assert "does not lengthen" in (found["rank-wait"].would_decide or "")
