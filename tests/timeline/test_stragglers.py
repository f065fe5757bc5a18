"""Ranks that share experts, played out in time: who is waited for, and why."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.timeline.pair import GLOO, NOTE, Plan, traces
from tests.timeline.solo import Solo

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.load import load_traces
from stepscope.timeline.perfetto import perfetto_of
from stepscope.timeline.records import Collective, Rank, TraceResult

SLOW_EXPERTS = Plan(experts=lambda r, _k: 1 + 0.3 * r)
LATE_LAUNCH = Plan(launch_us=lambda r, _k: 500 + 700 * r)


@cache
def found(plan: Plan) -> TraceResult:
    return analyze_traces(traces(plan))


def waits(plan: Plan) -> list[float]:
    budgets = [rank.budget_ms for rank in found(plan).ranks]
    return [b.communication_wait or 0.0 for b in budgets if b is not None]


def family(plan: Plan, word: str) -> Collective:
    (match,) = [c for c in found(plan).collectives if word in c.name]
    return match


@pytest.mark.parametrize(
    ("plan", "late", "why"),
    [
        (SLOW_EXPERTS, 1, "by work: the others wait 0.41"),
        (Plan(experts=lambda r, _k: 1.3 - 0.3 * r), 0, "by work: the others wait 0.41"),
        (LATE_LAUNCH, 1, "by start: the others wait 0.64"),
        (Plan(host_us=lambda r, _k: 900 + 1000 * r), 1, "by start: the others wait 1."),
        (Plan(tail_us=lambda r, _k: 1000 * (1 - r)), 0, "by work: the others wait 0.9"),
        (
            Plan(
                launch_us=lambda r, _k: 500 + 300 * r,
                experts=lambda r, _k: 1 + 0.2 * r,
            ),
            1,
            "by start and work: the others wait 0.5",
        ),
        (
            Plan(n_ranks=4, experts=lambda r, _k: 1 + 0.3 * (r == 2)),
            2,
            "by work: the others wait 0.39",
        ),
        (
            Plan(launch_us=lambda r, k: 500 + 20_000 * (r == 0 and k == 9) + 100 * r),
            1,
            "by start: the others wait 0.",
        ),
    ],
    ids=[
        "experts", "experts of 0", "launch", "host", "sampling", "both", "four",
        "beside a stall of 0",
    ],
)  # fmt: skip
def test_the_rank_that_is_late_is_named_with_its_cause(
    plan: Plan, late: int, why: str
) -> None:
    assert found(plan).straggler_rank == late
    assert (found(plan).straggler_reason or "").startswith(why)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(), "no rank causes most"),
        (Plan(gloo=False, host_us=lambda _r, _k: 300.0), "ranks wait"),
        (Plan(transfer_us=80.0), "no rank causes most"),
        (
            Plan(
                attention=lambda r, _k: 1.6 - 0.6 * r, experts=lambda r, _k: 1 + 0.3 * r
            ),
            "ms a step by who is late: rank 0 0.34",
        ),
        (Plan(host_us=lambda r, k: 900 + 1000 * ((k + r) % 2)), "no rank causes most"),
        (
            Plan(launch_us=lambda r, k: 500 + 8_000 * (r == 0 and k == 9) + 100 * r),
            "in 1 of 24 steps",
        ),
        (
            Plan(launch_us=lambda r, k: 500 + 20_000 * (r == 0 and k == 9)),
            "no rank causes most",
        ),
        (
            Plan(
                experts=lambda r, _k: 1 + 0.006 * r,
                tail_us=lambda r, k: 12_000 * (r == 1 and k == 10),
                seed=4,
            ),
            "1 % of a step or more in 2 of 24 steps",
        ),
        (
            Plan(
                gloo=False,
                n_steps=3,
                host_us=lambda r, k: 900 + 300_000 * (r == 1 and k == 1),
            ),
            "in 1 of 3 steps",
        ),
    ],
    ids=[
        "balanced", "no gloo", "slow links", "in turn", "by step", "one long step",
        "one stall", "one event of a rank that is hardly late", "a stall in three",
    ],
)  # fmt: skip
def test_no_rank_is_named_where_none_is_late_as_a_rule(plan: Plan, why: str) -> None:
    assert found(plan).straggler_rank is None
    assert why in (found(plan).straggler_reason or "")


@pytest.mark.parametrize("off_us", [5_000, 30, 8, -8, -30, -5_000, 4_870, -10_300])
def test_a_clock_that_is_off_names_no_rank_that_is_not_late(off_us: float) -> None:
    clocks = (float(off_us), 0.0)
    balanced = analyze_traces(traces(Plan(offset_us=clocks)))
    assert balanced.straggler_rank is None
    work = analyze_traces(
        traces(Plan(experts=lambda r, _k: 1 + 0.3 * r, offset_us=clocks))
    )
    assert work.straggler_rank == 1
    assert (work.straggler_reason or "").startswith("by work")
    assert ("clock-offset" in work.quality.defects) is (abs(off_us) > 8)


@pytest.mark.parametrize("off_us", [5_000, 30, -4_870])
def test_waiting_is_the_same_on_clocks_that_differ(off_us: float) -> None:
    moved = Plan(experts=SLOW_EXPERTS.experts, offset_us=(off_us, 0.0))
    assert waits(moved) == pytest.approx(waits(SLOW_EXPERTS), abs=0.02)
    assert family(moved, GLOO).wait_ms_by_rank == pytest.approx(
        family(SLOW_EXPERTS, GLOO).wait_ms_by_rank, abs=0.01
    )


def test_a_small_offset_says_how_much_of_waiting_is_open() -> None:
    moved = Plan(offset_us=(8.0, 0.0))
    (said,) = [f for f in found(moved).findings if f.code == "waiting-open"]
    assert "0.1" in said.message
    assert not [f for f in found(LATE_LAUNCH).findings if f.code == "waiting-open"]


@pytest.mark.parametrize("n", [1, 4])
def test_a_broadcast_whose_root_leaves_early_spoils_no_other_collective(
    n: int,
) -> None:
    rooted = Plan(rooted=n, launch_us=LATE_LAUNCH.launch_us)
    assert found(rooted).straggler_rank == 1
    assert {c.name for c in found(rooted).collectives} == {
        GLOO,
        "ncclDevKernel_AllGather_RING_LL",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    }
    (said,) = [f for f in found(rooted).findings if f.code == "no-meeting"]
    assert "Broadcast" in said.message


def test_a_rank_whose_trace_begins_later_has_the_same_waiting() -> None:
    later = Plan(experts=SLOW_EXPERTS.experts, first=(0, 2))
    assert waits(later) == pytest.approx(waits(SLOW_EXPERTS), abs=0.01)
    assert found(later).straggler_rank == 1
    assert family(later, "ReduceScatter").per_step == 10


def test_waiting_on_the_host_is_waiting_and_no_part_of_communication() -> None:
    host = Plan(host_us=lambda r, _k: 900 + 1000 * r)
    assert family(host, GLOO).on_host
    assert family(host, GLOO).wait_ms_by_rank == pytest.approx((1.0, 0.0), abs=0.02)
    assert family(host, GLOO).last_by_rank == (0, 24)
    assert waits(host) == pytest.approx([0.02, 0.02], abs=0.01)
    rank = found(host).ranks[0]
    assert (rank.top_gaps[0].host or "").startswith("gloo:all_reduce (7")


@pytest.mark.parametrize("plan", [SLOW_EXPERTS, LATE_LAUNCH], ids=["work", "launch"])
def test_each_rank_closes_and_waits_for_what_was_planned(plan: Plan) -> None:
    first, second = found(plan).ranks
    for rank in (first, second):
        parts = rank.budget_ms
        assert rank.closes_to_pct == 0
        assert parts is not None
        assert parts.communication_transfer == pytest.approx(0.225, abs=0.005)
        assert _sum(rank) == pytest.approx(rank.step_ms.mean if rank.step_ms else 0)
    late = 0.63 if plan is LATE_LAUNCH else 0.388
    assert waits(plan) == pytest.approx([late + 0.015, 0.015], abs=0.01)


def _sum(rank: Rank) -> float:
    b = rank.budget_ms
    assert b is not None
    return b.compute + b.communication + b.memcpy + (b.idle or 0.0)


def test_a_host_that_runs_ahead_and_is_late_costs_nothing_while_devices_work() -> None:
    hidden = Plan(ahead=True, host_us=lambda r, _k: 500 + 500 * r)
    assert family(hidden, GLOO).wait_ms_by_rank == pytest.approx((0.5, 0.0), abs=0.02)
    assert found(hidden).straggler_rank is None
    work = Plan(
        ahead=True, host_us=lambda _r, _k: 700.0, experts=lambda r, _k: 1 + 0.3 * r
    )
    assert found(work).straggler_rank == 1
    assert (found(work).straggler_reason or "").startswith("by work")


def test_a_late_host_that_runs_ahead_is_named_without_a_cause() -> None:
    late = Plan(ahead=True, host_us=lambda r, _k: 700 + 1500 * r)
    assert found(late).straggler_rank == 1
    assert "by work or by start is not known" in (found(late).straggler_reason or "")


STALLED = {
    "host": Plan(host_us=lambda r, k: 900 + 300_000 * ((r, k) == (1, 10))),
    "device": Plan(tail_us=lambda r, k: 300_000.0 * ((r, k) == (0, 10))),
    "attention": Plan(attention=lambda r, k: 1 + 100 * ((r, k) == (0, 10))),
    "first": Plan(host_us=lambda r, k: 900 + 300_000 * ((r, k) == (0, 1))),
    "last": Plan(host_us=lambda r, k: 900 + 300_000 * ((r, k) == (0, 23))),
    "clocks": Plan(
        host_us=lambda r, k: 900 + 300_000 * ((r, k) == (0, 10)),
        offset_us=(0.0, 5_000.0),
    ),
}


@pytest.mark.parametrize("name", STALLED)
def test_a_stall_leaves_out_one_step_and_changes_no_other(name: str) -> None:
    plan = STALLED[name]
    held, clean = found(plan), found(Plan(offset_us=plan.offset_us))
    assert held.straggler_rank is None
    assert "stalled-steps" in held.quality.defects
    for c in held.collectives:
        # A trace of 24 steps has 23 periods, and the collectives of 24 steps.
        assert c.n_matched == 23 * (1 if c.on_host else 10)
        assert max(c.wait_ms_by_rank) < 0.03
    for rank, usual in zip(held.ranks, clean.ranks, strict=True):
        assert rank.n_periods == usual.n_periods - 1 == 22
        assert rank.closes_to_pct == 0
        assert rank.budget_ms is not None
        assert usual.budget_ms is not None
        assert _sum(rank) == pytest.approx(_sum(usual), rel=0.002)
        assert rank.budget_ms.communication_wait == pytest.approx(
            usual.budget_ms.communication_wait, abs=0.004
        )


def test_an_export_around_a_stall_holds_no_waiting_of_it(tmp_path: Path) -> None:
    ranks = traces(STALLED["clocks"])
    path = tmp_path / "steps.json.gz"
    path.write_bytes(perfetto_of(ranks, 21))
    kept, usual = analyze_traces(load_traces([path])), found(STALLED["clocks"])
    assert kept.straggler_rank is None
    assert family(STALLED["clocks"], GLOO).wait_ms_by_rank[1] < 0.02
    for c in kept.collectives:
        assert max(c.wait_ms_by_rank) < 0.03
    for rank, same in zip(kept.ranks, usual.ranks, strict=True):
        assert rank.n_periods == 21
        assert _sum(rank) == pytest.approx(_sum(same), rel=0.002)


def test_waiting_in_the_last_step_for_a_rank_that_stalled_is_left_out() -> None:
    plan = Plan(
        n_ranks=3,
        n_steps=8,
        gloo=False,
        host_us=lambda r, k: 900 + 300_000 * ((r, k) == (0, 7)),
    )
    assert found(plan).straggler_rank is None
    assert "stalled-steps" in found(plan).quality.defects
    for c in found(plan).collectives:
        assert c.n_matched == 60
        assert max(c.wait_ms_by_rank) < 0.1


def test_stalls_of_ranks_in_turn_hide_no_straggler() -> None:
    plan = Plan(
        experts=SLOW_EXPERTS.experts,
        host_us=lambda r, k: 900 + 300_000 * ((r, k) in {(0, 8), (1, 15)}),
    )
    assert found(plan).straggler_rank == 1
    said = found(plan).straggler_reason or ""
    assert said.startswith("by work: the others wait 0.41")
    assert "idles +0.0" in said


@pytest.mark.parametrize("n_layers", [10, 20])
def test_a_stage_of_a_pipeline_is_no_straggler(n_layers: int) -> None:
    first, second = Solo(), Solo()
    word = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    for _ in range(12):
        first.host = max(first.host, second.host)
        first.graph(10)
        second.host = max(second.host, first.host - 300)
        arrived = []
        for stage in (first, second):
            launch = stage.call("cudaLaunchKernel", 5.0)
            arrived.append((max(stage.device + 1, stage.host), launch))
        done = max(at for at, _ in arrived) + 15
        for stage, (at, launch) in zip((first, second), arrived, strict=True):
            stage.op(word, at, done - at, launch)
            stage.device = done
        second.graph(n_layers)
        second.eager(3)
        first.end_step()
        second.end_step()
    stages = analyze_traces([first.trace(), second.trace()])
    assert stages.straggler_rank is None
    assert "stages of a pipeline" in (stages.straggler_reason or "")
    (handed,) = stages.collectives
    assert handed.per_step == 1
    assert handed.wait_ms_by_rank[0] == 0


@pytest.mark.parametrize("n_long", [6, 9])
def test_all_ranks_leave_out_the_same_steps_or_none(n_long: int) -> None:
    plan = Plan(
        n_ranks=8,
        n_layers=4,
        host_us=lambda r, k: 900 + 300_000 * (r == k % 8 and 2 < k < 3 + n_long),
        offset_us=tuple(700.0 * r for r in range(8)),
        first=(0, 1, 2, 0, 1, 2, 0, 1),
    )
    steps = [rank.step_ms.mean for rank in found(plan).ranks if rank.step_ms]
    assert len(steps) == 8
    # Ranks that begin later hold fewer steps, of which the long ones are more.
    assert max(steps) < 1.2 * min(steps)
    assert (max(steps) < 5) is (n_long == 6)


@pytest.mark.parametrize("off_us", [0.0, 5_000.0])
def test_decode_steps_that_wait_for_the_prompt_of_another_rank_are_told(
    off_us: float,
) -> None:
    plan = Plan(
        tail_us=lambda r, k: 9_000.0 * (r == 0 and k % 3 == 1), offset_us=(0.0, off_us)
    )
    first, second = traces(plan)
    mixed = "execute_context_1(512)_generation_8(8)"
    notes = first.spans.name.copy()
    notes[np.flatnonzero(notes == first.names.index(NOTE))[1::3]] = len(first.names)
    first = replace(
        first,
        names=(*first.names, mixed),
        spans=replace(first.spans, name=notes),
    )
    result = analyze_traces([first, second])
    assert [rank.steps_by_kind for rank in result.ranks] == [
        {"decode": 16, "mixed": 8}, {"decode": 24}
    ]  # fmt: skip
    (said,) = (f.message for f in result.findings if f.code == "held-up-by-prompts")
    assert said.startswith("rank 1: 8 of 23 decode steps")
    assert said.endswith("without these the mean is 3.9 ms")
    clean = analyze_traces(traces(Plan()))
    assert "held-up-by-prompts" not in {f.code for f in clean.findings}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (STALLED["host"], "the others wait 295.4 ms for rank 1, of 299.3 ms"),
        (STALLED["device"], "the others wait 300 ms for rank 0, of 3"),
        (STALLED["clocks"], "for rank 0, of 3"),
        (
            Plan(host_us=lambda r, k: 900 + 40_000 * (r == 1 and k % 6 == 1)),
            "the others wait 161 ms for rank 1, of 176.6 ms",
        ),
        (
            Plan(host_us=lambda r, k: 900 + 40_000 * (k in {3 + 7 * r, 4 + 7 * r})),
            "for no one rank",
        ),
        (
            Plan(host_us=lambda _r, k: 900 + 300_000 * (k == 10), gloo=False),
            "held up all",
        ),
    ],
    ids=["host", "device", "clocks", "often", "each", "all"],
)
def test_who_held_the_others_up_in_stalled_steps_is_told(plan: Plan, said: str) -> None:
    (told,) = (f.message for f in found(plan).findings if f.code == "stalled-by")
    assert said in told
    assert "stalled-by" not in {f.code for f in found(Plan()).findings}
