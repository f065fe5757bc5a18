"""Kernel timelines as evidence: what they support, rule out, and may not say."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepscope.analysis.across.records import FloorPoint, TracedStep
from stepscope.analysis.analyze import analyze
from stepscope.board.judge import judge
from stepscope.board.records import Board, BoardEntry
from stepscope.importers.load import load_foreign
from stepscope.importers.timelines import with_timelines
from stepscope.run.stepbudget import KernelTime, RankBudget

Bench = Any  # tests/board/conftest.py; a conftest can not be imported

DATA = Path(__file__).parents[2].parent / "shared/data"
STEP_MS = 9.9
NO_CAUSES = dict.fromkeys(
    (
        "inside_graph",
        "host_not_launching_yet",
        "graph_launch_call",
        "launch_call",
        "after_launch_returned",
        "no_launch_record",
    ),
    0.0,
)


def rank(step_ms: float = STEP_MS, number: int = 0, **over: Any) -> RankBudget:
    """A rank that idles as ``causes`` say and computes for the rest."""
    causes = {**NO_CAUSES, **over.pop("causes", {})}
    talk = over.get("communication_ms", 0.0)
    idle = sum(causes.values())
    fields: dict[str, Any] = {
        "rank": number,
        "n_periods": 30,
        "step_ms": step_ms,
        "compute_ms": step_ms - idle - talk,
        "communication_ms": 0.0,
        "communication_wait_ms": 0.0,
        "memcpy_ms": 0.0,
        "idle_ms": idle,
        "idle_by_cause": causes,
    }
    return RankBudget(**{**fields, **over})


def step(*ranks: RankBudget, concurrency: int = 16, **over: Any) -> TracedStep:
    fields: dict[str, Any] = {
        "configuration": "base",
        "concurrency": concurrency,
        "launch": "base-trace-l0",
        "cell": None,
        "paths": ("t.json",),
        "usable": True,
        "defects": (),
        "step_kind": "decode",
        "step_source": "graph-launches",
        "traced_step_ms": max(r.step_ms for r in ranks),
        "untraced_step_ms": STEP_MS,
        "untraced_source": "engine step of base-c16-r0",
        "stretch_pct": 0.0,
        "match": "same",
        "n_ranks": len(ranks),
        "ranks": ranks,
    }
    return TracedStep(**{**fields, **over})


CAUSE = {
    "launch": "launch_call",
    "graph-launch": "graph_launch_call",
    "kernel-gaps": "inside_graph",
    "scheduler": "host_not_launching_yet",
}


@pytest.mark.parametrize(("name", "cause"), CAUSE.items())
class TestIdleTime:
    def test_most_of_the_step_supports_its_cause(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        found = step(rank(causes={cause: 0.75 * STEP_MS}))
        entry = bench.entry(name, traced=(found,))
        assert (entry.status, entry.share_of_step_pct) == ("supported", 75.0)
        for other in set(CAUSE) - {name, "launch"}:
            assert bench.entry(other, traced=(found,)).status == "ruled-out"

    def test_half_of_the_step_decides_nothing(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        found = step(rank(causes={cause: 0.5 * STEP_MS}))
        entry = bench.entry(name, traced=(found,))
        assert (entry.status, entry.share_of_step_pct) == ("standing", 50.0)

    def test_a_quarter_of_the_step_is_neither_the_larger_part_nor_nothing(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        found = step(rank(causes={cause: 0.25 * STEP_MS}))
        entry = bench.entry(name, traced=(found,))
        assert (entry.status, entry.share_of_step_pct) == ("standing", 25.0)

    def test_a_step_that_the_profiler_stretched_supports_nothing(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        long = rank(14.0, causes={cause: 11.0})
        found = step(long, match="stretched", stretch_pct=41.0)
        assert bench.entry(name, traced=(found,)).status == "standing"

    def test_a_stretched_step_still_bounds_from_above(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        long = rank(14.0, causes={cause: 1.0})
        found = step(long, match="stretched", stretch_pct=41.0)
        entry = bench.entry(name, traced=(found,))
        assert (entry.status, entry.share_of_step_pct) == ("ruled-out", 10.1)

    def test_idle_time_without_a_launch_record_may_be_anybodys(
        self, bench: Bench, name: str, cause: str
    ) -> None:
        found = step(rank(causes={cause: 0.5, "no_launch_record": 0.5 * STEP_MS}))
        assert bench.entry(name, traced=(found,)).status == "standing"

    @pytest.mark.parametrize(
        "over", [{"usable": False}, {"match": "other-steps"}, {"match": "unknown"}]
    )
    def test_a_timeline_that_is_not_this_step_says_nothing(
        self, bench: Bench, name: str, cause: str, over: dict[str, Any]
    ) -> None:
        found = step(rank(causes={cause: 0.75 * STEP_MS}), **over)
        assert bench.entry(name, traced=(found,)).status == "untestable"


def test_a_cap_of_an_open_loop_is_no_batch(bench: Bench) -> None:
    found = step(rank(causes={"inside_graph": 0.75 * STEP_MS}))
    capped = bench.result(request_rate=2.0)
    assert bench.entry("kernel-gaps", None, capped, traced=(found,)).status == (
        "untestable"
    )


def test_without_graphs_the_host_between_launches_is_not_the_schedulers(
    bench: Bench,
) -> None:
    idle = rank(causes={"host_not_launching_yet": 0.75 * STEP_MS})
    found = step(idle, step_source="annotations")
    assert bench.entry("scheduler", traced=(found,)).status == "standing"
    assert bench.entry("launch", traced=(found,)).status == "standing"


def test_one_rank_of_two_may_hide_a_late_launch_in_a_collective(bench: Bench) -> None:
    talk = rank(communication_ms=0.5 * STEP_MS, communication_wait_ms=None)
    entry = bench.entry(
        "launch", bench.run(n_gpus=2, layout=_tp2()), traced=(step(talk),)
    )
    assert entry.status == "standing"


def _tp2() -> Any:
    from stepscope.recipe.records import Layout

    return Layout(tp=2)


class TestBetweenTimelines:
    def entry(
        self, bench: Bench, low_ms: float, high_ms: float, name: str = "kernel-gaps"
    ) -> BoardEntry:
        steps = (
            step(rank(causes={"inside_graph": low_ms}), concurrency=8),
            step(rank(causes={"inside_graph": high_ms}), concurrency=32),
        )
        entry: BoardEntry = bench.entry(name, traced=steps)
        return entry

    def test_a_toll_that_both_share_bounds_what_lies_between(
        self, bench: Bench
    ) -> None:
        entry = self.entry(bench, 0.4, 0.5)
        assert (entry.status, entry.share_of_step_pct) == ("ruled-out", 10.1)
        assert "interpolated, not measured" in entry.evidence[0].reasoning

    def test_idle_time_that_changes_between_them_says_nothing(
        self, bench: Bench
    ) -> None:
        assert self.entry(bench, 0.2, 0.5).status == "untestable"

    def test_twice_the_idle_time_must_still_be_little(self, bench: Bench) -> None:
        assert self.entry(bench, 2.5, 2.5).status == "untestable"

    def test_nothing_lies_between_timelines_on_one_side(self, bench: Bench) -> None:
        steps = (
            step(rank(causes={"inside_graph": 0.4}), concurrency=4),
            step(rank(causes={"inside_graph": 0.4}), concurrency=8),
        )
        assert bench.entry("kernel-gaps", traced=steps).status == "untestable"


def floor(
    floor_ms: float, concurrency: int = 16, expert_bytes: float | None = None
) -> FloorPoint:
    return FloorPoint(
        configuration="base",
        concurrency=concurrency,
        seqs_per_rank=15.5,
        coverage=None if expert_bytes is None else 0.6,
        bytes_per_rank=4.8e9 * floor_ms,
        floor_ms=floor_ms,
        step_ms=STEP_MS,
        times_floor=None,
        expert_bytes=expert_bytes,
        bandwidth_bytes_per_s=4.8e12,
    )


class TestBandwidth:
    def test_a_busy_timeline_and_the_floor_support_it(self, bench: Bench) -> None:
        entry = bench.entry("bandwidth", traced=(step(rank()),), floor=(floor(7.2),))
        assert (entry.status, entry.share_of_step_pct) == ("supported", 72.7)

    def test_a_floor_below_seven_tenths_does_not(self, bench: Bench) -> None:
        entry = bench.entry("bandwidth", traced=(step(rank()),), floor=(floor(6.8),))
        assert entry.status == "standing"

    def test_a_device_that_idles_for_a_tenth_does_not(self, bench: Bench) -> None:
        idle = step(rank(causes={"inside_graph": 1.1}))
        entry = bench.entry("bandwidth", traced=(idle,), floor=(floor(7.2),))
        assert entry.status == "standing"

    def test_a_stretched_timeline_does_not(self, bench: Bench) -> None:
        found = step(rank(14.0), match="stretched", stretch_pct=41.0)
        entry = bench.entry("bandwidth", traced=(found,), floor=(floor(7.2),))
        assert entry.status == "standing"
        assert any(e.quantity == "device busy, by timeline" for e in entry.evidence)

    def test_time_in_collectives_is_not_time_at_work(self, bench: Bench) -> None:
        found = step(rank(communication_ms=1.5))
        entry = bench.entry("bandwidth", traced=(found,), floor=(floor(7.2),))
        assert entry.status == "standing"

    @pytest.mark.parametrize(
        ("share_of_peak", "status"),
        [(0.85, "supported"), (0.79, "standing"), (1.1, "standing")],
    )
    def test_only_a_rate_that_memory_can_have_replaces_the_data_sheets(
        self, bench: Bench, share_of_peak: float, status: str
    ) -> None:
        """6.2 ms at the data sheet's rate are 63 % of the step, 74 % at 85 % of it."""
        ms = 5.0
        kernels = (
            KernelTime(name="fused_moe_kernel", ms_per_step=ms, count_per_step=96),
        )
        point = floor(6.2, expert_bytes=share_of_peak * 4.8e12 * ms / 1e3)
        found = step(rank(kernels=kernels))
        entry = bench.entry("bandwidth", traced=(found,), floor=(point,))
        assert entry.status == status

    def test_experts_read_faster_than_memory_gives_speak_against_the_floor(
        self, bench: Bench
    ) -> None:
        """Skewed routing: fewer experts are read than coverage counts."""
        kernels = (
            KernelTime(name="fused_moe_kernel", ms_per_step=5.0, count_per_step=96),
        )
        point = floor(7.2, expert_bytes=1.05 * 4.8e12 * 5.0 / 1e3)
        found = step(rank(kernels=kernels))
        entry = bench.entry("bandwidth", traced=(found,), floor=(point,))
        assert entry.status == "standing"
        assert "which no memory gives" in str(entry.evidence)

    def test_kernels_around_the_experts_are_not_their_reading(
        self, bench: Bench
    ) -> None:
        names = ("vllm::moe::topkGating", "triton_red_fused_add_rms_norm_moe_forward_0")
        kernels = tuple(
            KernelTime(name=n, ms_per_step=5.0, count_per_step=96) for n in names
        )
        point = floor(6.2, expert_bytes=0.85 * 4.8e12 * 5.0 / 1e3)
        entry = bench.entry(
            "bandwidth", traced=(step(rank(kernels=kernels)),), floor=(point,)
        )
        assert entry.status == "standing"

    def test_up_to_twice_the_highest_timeline_where_idle_time_is_flat(
        self, bench: Bench
    ) -> None:
        def status(high: int, idle_ms: float = 0.1) -> str:
            steps = (
                step(rank(causes={"inside_graph": 0.1}), concurrency=4),
                step(rank(causes={"inside_graph": idle_ms}), concurrency=high),
            )
            entry = bench.entry("bandwidth", traced=steps, floor=(floor(7.2),))
            return str(entry.status)

        assert status(8) == "supported"
        assert status(7) == "standing"
        assert status(8, idle_ms=0.2) == "standing"

    def test_a_timeline_with_an_idle_device_rules_out_work_on_it(
        self, bench: Bench
    ) -> None:
        idle = step(rank(causes={"host_not_launching_yet": 0.7 * STEP_MS}))
        for name in ("bandwidth", "compute"):
            entry = bench.entry(name, traced=(idle,))
            assert (entry.status, entry.share_of_step_pct) == ("ruled-out", 30.0)


class TestRanks:
    def board(self, bench: Bench, *ranks: RankBudget, **over: Any) -> dict[str, Any]:
        run = bench.run(n_gpus=2, layout=_tp2())
        board: Board = bench.board(run, traced=(step(*ranks, **over),))
        return {e.hypothesis: e for e in board.entries}

    def test_waiting_is_told_from_transfer(self, bench: Bench) -> None:
        talk: dict[str, Any] = {"communication_ms": 7.9, "communication_wait_ms": 7.5}
        found = self.board(bench, rank(**talk), rank(number=1, **talk))
        assert found["rank-wait"].status == "supported"
        assert found["rank-wait"].share_of_step_pct == 75.8
        assert found["communication"].status == "ruled-out"
        assert found["imbalance"].status == "standing"

    def test_a_rank_that_computes_for_a_quarter_longer_is_not_acquitted(
        self, bench: Bench
    ) -> None:
        early = rank(communication_ms=2.6, communication_wait_ms=2.5)
        late = rank(number=1, communication_ms=0.1, communication_wait_ms=0.0)
        found = self.board(
            bench, early, late, straggler_rank=1, straggler_reason="by work: it"
        )
        assert found["imbalance"].status == "standing"
        assert found["imbalance"].share_of_step_pct == 25.3
        assert found["rank-wait"].status == "standing"
        assert found["communication"].status == "ruled-out"

    def test_transfer_is_communication(self, bench: Bench) -> None:
        talk: dict[str, Any] = {"communication_ms": 7.5, "communication_wait_ms": 0.1}
        found = self.board(bench, rank(**talk), rank(number=1, **talk))
        assert found["communication"].status == "supported"
        assert found["rank-wait"].status == "ruled-out"
        assert found["imbalance"].status == "ruled-out"

    def test_ranks_that_can_not_be_matched_bound_communication_only(
        self, bench: Bench
    ) -> None:
        talk: dict[str, Any] = {"communication_ms": 1.0, "communication_wait_ms": None}
        found = self.board(bench, rank(**talk), rank(number=1, **talk))
        assert found["communication"].status == "ruled-out"
        assert found["rank-wait"].status == "untestable"

    def test_one_rank_of_two_is_no_measurement_of_both(self, bench: Bench) -> None:
        found = self.board(bench, rank(communication_ms=0.1))
        assert found["rank-wait"].status == "untestable"
        assert found["communication"].status == "untestable"


@cache
def real(name: str) -> Board:
    """The board of a real sweep with its timelines, read without a lasting cache."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = DATA / f"h200x1-qwen3moe-{name}" / "import.toml"
        run = with_timelines(load_foreign(path), Path(folder))
    return judge(run, analyze(run))


class TestOneH200:
    def test_bandwidth_is_the_cause_from_8_to_256(self) -> None:
        entries = [e for e in real("baseline").entries if e.hypothesis == "bandwidth"]
        told = [
            (e.scope.concurrency_from, e.scope.concurrency_to, e.status)
            for e in entries
        ]
        assert told == [
            (1, 4, "standing"),
            (8, 256, "supported"),
            (512, 512, "untestable"),
        ]
        assert entries[1].share_of_step_pct == 70.2
        quantities = {e.quantity for e in entries[1].evidence}
        assert {"device busy, interpolated", "device busy, extrapolated"} <= quantities
        assert "experts read, by coverage" in real("baseline").sentences[1]

    def test_launching_and_gaps_are_ruled_out_where_timelines_reach(self) -> None:
        for name in CAUSE:
            entries = [e for e in real("baseline").entries if e.hypothesis == name]
            out = [e.scope for e in entries if e.status == "ruled-out"]
            assert [(s.concurrency_from, s.concurrency_to) for s in out] == [(8, 128)]

    def test_counter_and_bytes_stand_side_by_side(self) -> None:
        told = {
            e.quantity: (e.value, e.reasoning)
            for entry in real("iteration-details").entries
            if entry.hypothesis == "bandwidth"
            for e in entry.evidence
            if e.quantity.startswith("bytes of a step over TPOT")
        }
        values = [
            told[f"bytes of a step over TPOT, at concurrency {c}"][0]
            for c in (16, 64, 256)
        ]
        assert values == pytest.approx([67.6, 71.5, 60.0], abs=0.2)
        reasons = [
            told[f"bytes of a step over TPOT, at concurrency {c}"][1]
            for c in (16, 64, 256)
        ]
        assert "67.5 %" in reasons[0]
        assert "agree" in reasons[0]
        assert "72.8 %" in reasons[1]
        assert "68.2 %" in reasons[2]
        assert "prefill" in reasons[2]
