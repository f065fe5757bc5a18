"""Captures that ``stepscope run`` took itself of vLLM 0.26.0 on H200s.

``h200x2_dp2_ep2``: DeepSeek-V2-Lite shapes, two data-parallel ranks that share their
experts, 64 in flight, torch profiler; random weights send most tokens to the experts
of rank 0. In ``slow`` another program held GPU 1 half of the time. Shortened by fields
that nothing reads. ``h200_nsys_2025``: Qwen3-30B-A3B shapes, 8 in flight, nsys 2025.3.1
(schema 3.20.3), 17 of 116 steps, one followed by the prompts of a new wave, which ran
without a graph.
"""

import gzip
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.timeline.planting import DECODE, real

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import I64, Trace
from stepscope.timeline.device import read_device
from stepscope.timeline.load import load_trace, load_traces
from stepscope.timeline.picture import step_picture
from stepscope.timeline.records import Collective, TraceResult

DATA = Path(__file__).parents[1] / "data" / "timelines"
NSYS = "h200_nsys_2025_decode_c8.sqlite.gz"
#: TPOT of the same load on the same server while nothing was recorded.
NSYS_UNTRACED_MS = 9.55


@cache
def pair(name: str) -> TraceResult:
    files = sorted(DATA.glob(f"h200x2_dp2_ep2_{name}_rank*.json.gz"))
    return analyze_traces(load_traces(files))


def family(found: TraceResult, word: str) -> Collective:
    (one,) = (c for c in found.collectives if word in c.name)
    return one


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nsys") / "timeline.sqlite"
    path.write_bytes(gzip.decompress((DATA / NSYS).read_bytes()))
    return path


def union_ns(spans: list[tuple[int, int]]) -> int:
    total, reach = 0, 0
    for lo, hi in sorted(spans):
        total += max(hi - max(lo, reach), 0)
        reach = max(reach, hi)
    return total


def test_busy_time_of_a_real_nsys_export_is_what_sql_says(export: Path) -> None:
    kinds = ("KERNEL", "MEMCPY", "MEMSET")
    with closing(sqlite3.connect(export)) as db:
        spans = [
            row
            for kind in kinds
            for row in db.execute(f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{kind}")
        ]
    (rank,) = analyze_traces(load_trace(export)).ranks
    lasted = max(hi for _, hi in spans) - min(lo for lo, _ in spans)
    assert rank.n_device_ops == len(spans)
    assert rank.span_ms == pytest.approx(lasted / 1e6, abs=1e-9)
    assert rank.busy_pct == pytest.approx(100 * union_ns(spans) / lasted, abs=1e-9)


def test_a_prompt_that_ran_without_a_graph_is_in_no_decode_step(export: Path) -> None:
    (rank,) = analyze_traces(load_trace(export)).ranks
    assert rank.steps_by_kind == {"decode": 16, "mixed": 1}
    assert (rank.n_layers, rank.kernels_per_layer) == (48, 19)
    assert rank.step_ms is not None
    # With it the mean was 25.7 ms.
    assert rank.step_ms.mean == pytest.approx(NSYS_UNTRACED_MS, rel=0.05)
    assert rank.budget_ms is not None
    assert rank.budget_ms.compute == pytest.approx(9.26, abs=0.01)
    assert rank.closes_to_pct == 0


def test_a_rank_with_the_hotter_experts_is_the_straggler_by_work() -> None:
    found = pair("base")
    experts = [
        next(k.ms_per_step for k in rank.top_kernels if k.name == "fused_moe_kernel")
        for rank in found.ranks
    ]
    assert experts == [pytest.approx(2.149, abs=1e-3), pytest.approx(0.226, abs=1e-3)]
    assert found.straggler_rank == 0
    assert (found.straggler_reason or "").startswith("by work:")
    waits = [r.budget_ms.communication_wait for r in found.ranks if r.budget_ms]
    assert waits == [pytest.approx(0.026, abs=1e-3), pytest.approx(1.992, abs=1e-3)]
    gloo = family(found, "gloo")
    assert gloo.on_host
    assert gloo.per_step == 1
    assert all(rank.closes_to_pct == 0 for rank in found.ranks)


def test_slowing_one_rank_moves_the_waiting_of_the_other() -> None:
    before, after = pair("base"), pair("slow")
    gather = family(before, "AllGather"), family(after, "AllGather")
    # Rank 0 computes longer and hardly ever waits, until GPU 1 is shared.
    assert gather[0].wait_ms_by_rank[0] < 0.03
    assert gather[1].wait_ms_by_rank[0] > 0.6
    attention = [
        {r.rank: k.ms_per_step for r in found.ranks for k in r.top_kernels
         if k.name == "cutlass::device_kernel"}
        for found in (before, after)
    ]  # fmt: skip
    assert attention[0][1] / attention[0][0] == pytest.approx(1, abs=0.02)
    assert attention[1][1] / attention[1][0] > 1.15


def test_a_step_in_which_another_rank_wrote_its_timeline_is_left_out() -> None:
    found = pair("slow")
    assert "stalled-steps" in found.quality.defects
    (said,) = (f.message for f in found.findings if f.code == "stalled-steps")
    assert said.endswith(
        "(1 of 18 steps, up to 2854 ms where the median is 6.79; with them the mean is"
        " 165.1)"
    )
    steps = [rank.step_ms.mean for rank in found.ranks if rank.step_ms is not None]
    # The same load took 6.1 ms a token while nobody traced; with the stall, 165.
    assert all(6.5 < each < 7.2 for each in steps)
    assert all(sum(c.wait_ms_by_rank) < 2 for c in found.collectives)


def stretched(trace: Trace, after: list[int], by_ns: int) -> Trace:
    """Hold the machine up before the given launches of graphs."""
    graphs = np.flatnonzero(trace.calls.is_graph)
    at = trace.calls.start_ns[graphs[after]]

    def moved(stamps: I64) -> I64:
        return stamps + by_ns * np.searchsorted(at, stamps, side="right")

    ops, calls, spans = trace.ops, trace.calls, trace.spans
    return replace(
        trace,
        ops=replace(ops, start_ns=moved(ops.start_ns), end_ns=moved(ops.end_ns)),
        calls=replace(
            calls, start_ns=moved(calls.start_ns), end_ns=moved(calls.end_ns)
        ),
        spans=replace(
            spans, start_ns=moved(spans.start_ns), end_ns=moved(spans.end_ns)
        ),
    )


def test_one_stall_changes_no_figure_of_the_other_steps() -> None:
    clean = analyze_traces([real(DECODE)]).ranks[0]
    held = analyze_traces([stretched(real(DECODE), [7], 900_000_000)])
    (rank,) = held.ranks
    assert rank.n_periods == clean.n_periods - 1
    assert "stalled-steps" in held.quality.defects
    assert rank.step_ms is not None
    assert clean.step_ms is not None
    assert rank.step_ms.mean == pytest.approx(clean.step_ms.mean, rel=0.01)


def test_a_load_with_long_steps_is_not_called_another_load() -> None:
    found = analyze_traces([stretched(real(DECODE), [4, 8], 60_000_000)], 18.4)
    (said,) = (f for f in found.findings if f.code == "profiler-slowdown")
    assert "or its load has such steps as were left out" in said.message
    alone = analyze_traces([real(DECODE)], 18.4)
    (said,) = (f for f in alone.findings if f.code == "profiler-slowdown")
    assert said.message.endswith("not the same cell")


def test_steps_that_are_long_too_often_to_be_the_exception_stay() -> None:
    often = list(range(2, 13, 2))
    found = analyze_traces([stretched(real(DECODE), often, 90_000_000)])
    assert "stalled-steps" not in found.quality.defects
    (rank,) = found.ranks
    assert rank.step_ms is not None
    assert rank.step_ms.mean > 40


def test_branches_of_a_graph_that_take_turns_share_a_lane() -> None:
    trace = load_trace(DATA / "h200x2_dp2_ep2_base_rank0.json.gz")[0]
    device = read_device(trace)
    picture = step_picture(device)
    lanes = [lane for lane in picture.lanes if "stream" in lane.name]
    assert [lane.name for lane in lanes] == [
        "stream 336", "52 streams, 17 to 410", "stream 21",
    ]  # fmt: skip
    shared = sorted((m.start_us, m.end_us) for m in lanes[1].marks)
    apart = [b[0] - a[1] for a, b in pairwise(shared)]
    # Within a stream programmatic dependent launch overlaps by a few microseconds.
    assert min(apart) > -10
    talk = next(lane for lane in picture.lanes if lane.name == "collectives")
    drawn = sum(mark.n for lane in (*lanes, talk) for mark in lane.marks)
    # One operation of the step before reaches into this one.
    assert drawn - picture.n_ops in (0, 1)


def test_a_branch_beside_the_layer_does_not_hide_that_it_repeats() -> None:
    for rank in pair("base").ranks:
        layer = rank.layer
        assert layer is not None
        # DeepSeek-V2-Lite: 27 layers, the first without experts.
        assert (layer.n_layers, layer.kernels_per_layer) == (27, 31)
        beside = [k for k in layer.kernels if k.beside]
        # The shared experts: two products of matrices around an activation.
        assert len(beside) == 3
        assert all(k.gap_before_us_mean is None for k in beside)
        assert layer.n_seen == 26 * rank.n_periods
