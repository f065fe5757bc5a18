"""Real traces with one defect planted: each is named, and no wrong figure is left."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.timeline.planting import (
    DECODE,
    PI0,
    TRACES,
    real,
    replay_of_ops,
    shifted_host,
    without,
)

from stepscope.errors import ArchiveError
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Trace
from stepscope.timeline.kineto import load_kineto
from stepscope.timeline.load import load_trace
from stepscope.timeline.records import Rank, TraceResult

BOTH = pytest.mark.parametrize("name", [DECODE, PI0])


def no_idle_figure(found: TraceResult) -> bool:
    return not found.quality.usable and all(
        rank.busy_pct is None
        and rank.step_busy_pct is None
        and rank.idle_ms is None
        and (rank.budget_ms is None or rank.budget_ms.idle is None)
        and rank.gaps_below_1us_ms is None
        and rank.closes_to_pct is None
        and not rank.top_gaps
        and not rank.gap_histogram
        and (rank.layer is None or rank.layer.gap_us_per_layer is None)
        for rank in found.ranks
    )


def one(found: TraceResult) -> Rank:
    (rank,) = found.ranks
    return rank


@BOTH
def test_an_untouched_trace_has_none_of_the_planted_defects(name: str) -> None:
    found = analyze_traces([real(name)])
    assert set(found.quality.defects) <= {"stream-overlap"}
    assert one(found).closes_to_pct == 0


def random_ops(trace: Trace) -> Trace:
    some = np.random.default_rng(7).random(len(trace.ops)) < 0.01
    return without(trace, some)


def a_run_in_one_replay(trace: Trace) -> Trace:
    mine = np.flatnonzero(replay_of_ops(trace) == 5)
    return without(trace, mine[len(mine) // 3 : len(mine) // 2])


def one_node_in_one_replay(trace: Trace) -> Trace:
    return without(trace, np.flatnonzero(replay_of_ops(trace) == 5)[40:41])


def a_whole_replay(trace: Trace) -> Trace:
    return without(trace, replay_of_ops(trace) == 5)


def a_block_of_all_kinds(trace: Trace) -> Trace:
    n = len(trace.ops)
    return without(trace, np.arange(n // 2, n // 2 + n // 15))


def eager_kernels(trace: Trace) -> Trace:
    eager = np.flatnonzero((replay_of_ops(trace) < 0) & (trace.ops.kind == 0))
    return without(trace, eager[len(eager) // 2 :: 9])


@BOTH
@pytest.mark.parametrize(
    "lose",
    [
        random_ops,
        a_run_in_one_replay,
        one_node_in_one_replay,
        a_whole_replay,
        a_block_of_all_kinds,
        eager_kernels,
    ],
)
def test_lost_records_leave_no_idle_figure(
    name: str, lose: Callable[[Trace], Trace]
) -> None:
    found = analyze_traces([lose(real(name))])
    assert "records-dropped" in found.quality.defects
    assert no_idle_figure(found)


def test_lost_kernels_of_an_eager_trace_are_missed_by_their_launches() -> None:
    trace = real("b200_vllm_eager_prefill_rank0of8.json.gz")
    found = analyze_traces([without(trace, np.arange(300, 310))])
    assert "records-dropped" in found.quality.defects
    assert no_idle_figure(found)


def test_stamps_of_zero_leave_no_idle_figure() -> None:
    text = gzip.decompress((TRACES / PI0).read_bytes())
    kernel = re.compile(
        rb'("cat": "kernel".*?"ts": )[\d.]+(, "dur": )[\d.]+', re.DOTALL
    )
    zeroed = kernel.sub(rb"\g<1>0\g<2>0", text, count=3)
    assert zeroed != text
    found = analyze_traces(read(zeroed))
    assert "records-dropped" in found.quality.defects
    assert no_idle_figure(found)


def read(text: bytes) -> list[Trace]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(text)
        return load_trace(path)


@pytest.mark.parametrize("annotated", [True, False])
def test_kernels_flushed_late_leave_no_idle_figure(*, annotated: bool) -> None:
    trace = real(DECODE)
    replay = replay_of_ops(trace)
    gone = np.zeros(len(trace.ops), dtype=np.bool_)
    for i in range(1, 12):
        gone[np.flatnonzero(replay == i)[17:]] = True
    if not annotated:
        trace = replace(trace, spans=trace.spans.take(np.zeros(0, dtype=np.int64)))
    found = analyze_traces([without(trace, gone)])
    assert "late-flush" in found.quality.defects
    assert no_idle_figure(found)


def test_a_window_that_cuts_the_first_and_last_step_leaves_those_out() -> None:
    trace = real(DECODE)
    replay = replay_of_ops(trace)
    first, last = np.flatnonzero(replay == 0), np.flatnonzero(replay == 13)
    gone = np.zeros(len(trace.ops), dtype=np.bool_)
    gone[: first[400]] = True
    gone[last[500] :] = True
    found = analyze_traces([without(trace, gone)])
    assert "edge-steps-cut" in found.quality.defects
    assert found.quality.usable
    rank, whole = one(found), one(analyze_traces([trace]))
    assert rank.n_periods == 12
    assert rank.step_ms is not None
    assert whole.step_ms is not None
    assert rank.step_ms.median == pytest.approx(whole.step_ms.median, rel=0.02)
    assert rank.closes_to_pct == 0


def test_a_step_that_waits_for_work_cut_away_leaves_no_idle_figure() -> None:
    trace = real(PI0)
    first = np.flatnonzero(replay_of_ops(trace) == 0)
    # Launched in time, run 30 ms later behind work that is not in the file.
    late = trace.ops.start_ns >= trace.ops.start_ns[first[0]]
    ops = replace(
        trace.ops,
        start_ns=trace.ops.start_ns + late * 30_000_000,
        end_ns=trace.ops.end_ns + late * 30_000_000,
    )
    found = analyze_traces([replace(trace, ops=ops)])
    assert "step-cut" in found.quality.defects
    assert no_idle_figure(found)


@pytest.mark.parametrize(
    "name",
    [
        DECODE,
        PI0,
        "b200_vllm_eager_prefill_rank0of8.json.gz",
        "h100_qwen_eager.json.gz",
        "nsys_2xh100_train/before.sqlite",
    ],
)
@pytest.mark.parametrize("by_us", [-3000, -40, 40, 3000])
def test_a_device_clock_that_is_off_either_way_leaves_no_causes(
    name: str, by_us: int
) -> None:
    trace = real(name)
    ops = replace(
        trace.ops,
        start_ns=trace.ops.start_ns + by_us * 1000,
        end_ns=trace.ops.end_ns + by_us * 1000,
    )
    found = analyze_traces([replace(trace, ops=ops)])
    assert "host-clock-skew" in found.quality.defects
    assert all(gap.host is None for gap in one(found).top_gaps)
    idle = one(found).idle_ms
    assert idle is None or idle.host_not_launching_yet is None
    assert "host-clock-skew" not in analyze_traces([trace]).quality.defects


def test_a_single_replay_that_lost_records_says_that_it_can_not_tell() -> None:
    trace = real("mi350_hipgraph_pi0_stitched.json.gz")
    found = analyze_traces([without(trace, np.arange(700, 760))])
    assert "one-replay" in {f.code for f in found.findings}
    assert "one-replay" not in {f.code for f in analyze_traces([real(PI0)]).findings}


@BOTH
@pytest.mark.parametrize("by_us", [-3000, 60, 3000])
def test_a_host_clock_that_is_off_leaves_device_time_and_no_causes(
    name: str, by_us: int
) -> None:
    trace = real(name)
    found = analyze_traces([shifted_host(trace, by_us * 1000)])
    assert "host-clock-skew" in found.quality.defects
    assert found.quality.usable
    rank, truth = one(found), one(analyze_traces([trace]))
    assert rank.budget_ms == truth.budget_ms
    assert rank.idle_ms is not None
    assert truth.idle_ms is not None
    assert rank.idle_ms.inside_graph == truth.idle_ms.inside_graph
    assert rank.idle_ms.host_not_launching_yet is None
    assert rank.idle_ms.graph_launch_call is None
    assert rank.idle_ms.launch_call is None
    assert rank.idle_ms.after_launch_returned is None
    assert all(gap.host is None for gap in rank.top_gaps)


def test_a_rank_whose_clock_is_off_is_aligned_by_the_ends_of_collectives() -> None:
    names = [f"dlrm_8rank_v100_nccl/rank{i}.json.gz" for i in range(8)]
    straight = [real(name) for name in names]
    truth = analyze_traces(straight)
    off = shifted_host(straight[3], 8_000_000)
    ops = replace(
        off.ops,
        start_ns=off.ops.start_ns + 8_000_000,
        end_ns=off.ops.end_ns + 8_000_000,
    )
    found = analyze_traces([*straight[:3], replace(off, ops=ops), *straight[4:]])
    assert "clock-offset" in found.quality.defects
    assert found.straggler_rank == truth.straggler_rank == 7
    waits = [sum(sum(c.wait_ms_by_rank) for c in r.collectives) for r in (found, truth)]
    assert waits[0] == pytest.approx(waits[1], rel=0.01)


@BOTH
def test_stamps_of_whole_microseconds_hide_short_gaps_and_say_how_much_is_open(
    name: str,
) -> None:
    trace = real(name)
    ops = replace(
        trace.ops,
        start_ns=trace.ops.start_ns // 1000 * 1000,
        end_ns=trace.ops.end_ns // 1000 * 1000,
    )
    found = analyze_traces([replace(trace, ops=ops, resolution_ns=1000)])
    assert "microsecond-resolution" in found.quality.defects
    rank, truth = one(found), one(analyze_traces([trace]))
    assert rank.gaps_below_1us_ms is None
    assert rank.idle_uncertainty_ms is not None
    assert rank.budget_ms is not None
    assert truth.budget_ms is not None
    off = abs((rank.budget_ms.idle or 0) - (truth.budget_ms.idle or 0))
    assert 0 < off <= rank.idle_uncertainty_ms


def test_whole_microseconds_are_seen_in_the_starts_alone() -> None:
    text = gzip.decompress((TRACES / PI0).read_bytes())
    rounded = re.sub(rb'("ts": \d+)\.\d+', rb"\1", text)
    assert read(rounded)[0].resolution_ns == 1000
    assert read(text)[0].resolution_ns == 1


def test_records_that_stand_twice_are_counted_once() -> None:
    text = gzip.decompress((TRACES / PI0).read_bytes())
    document = json.loads(text)
    events = document["traceEvents"]
    document["traceEvents"] = events + events[2000:6000]
    found = analyze_traces(read(json.dumps(document).encode()))
    truth = analyze_traces([real(PI0)])
    assert "duplicate-records" in found.quality.defects
    assert found.quality.usable
    assert one(found).budget_ms == one(truth).budget_ms
    assert one(found).idle_ms == one(truth).idle_ms
    assert one(found).n_device_ops == one(truth).n_device_ops


@pytest.mark.parametrize("form", [lambda b: b, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("share", [0.3, 0.77, 0.9999])
def test_a_file_cut_in_mid_record_is_refused(
    share: float, form: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    text = gzip.decompress((TRACES / PI0).read_bytes())
    end = text.rindex(b'"ph": "X"')
    path = tmp_path / "t.json"
    path.write_bytes(form(text[: round(end * share)]))
    with pytest.raises(ArchiveError, match="cut short"):
        load_kineto(path)
    whole = gzip.compress(text)
    path.write_bytes(whole[: round(len(whole) * share)])
    with pytest.raises(ArchiveError):
        load_kineto(path)


def test_two_processes_on_one_device_leave_no_idle_figure() -> None:
    trace = real(PI0)
    process = trace.calls.process.copy()
    process[len(process) // 2 :] += 1
    calls = replace(trace.calls, process=process)
    found = analyze_traces([replace(trace, calls=calls)])
    assert "mixed-processes" in found.quality.defects
    assert no_idle_figure(found)


def test_two_processes_with_the_same_ids_leave_no_idle_figure() -> None:
    document = json.loads(gzip.decompress((TRACES / PI0).read_bytes()))
    events = document["traceEvents"]
    other = [{**e, "pid": 77} if e.get("cat") == "cuda_runtime" else e for e in events]
    other = [{**e, "ts": e["ts"] + 40_000} for e in other if "ts" in e]
    document["traceEvents"] = events + other
    found = analyze_traces(read(json.dumps(document).encode()))
    assert "mixed-processes" in found.quality.defects
    assert no_idle_figure(found)


def test_a_merged_file_that_names_its_processes_is_taken_apart() -> None:
    document = json.loads(gzip.decompress((TRACES / PI0).read_bytes()))
    events = document["traceEvents"]
    document["traceEvents"] = [
        {**e, "pid": f"[TP{rank:02d}] {e.get('pid', 0)}"}
        for rank in (0, 1)
        for e in events
    ]
    found = analyze_traces(read(json.dumps(document).encode()))
    truth = one(analyze_traces([real(PI0)]))
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert all(rank.budget_ms is not None for rank in found.ranks)
    assert all(rank.idle_ms == truth.idle_ms for rank in found.ranks)


def test_a_duration_that_overflows_is_cut_at_the_next_start() -> None:
    trace = real(PI0)
    end = trace.ops.end_ns.copy()
    long = np.flatnonzero(replay_of_ops(trace) == 4)[[20, 90]]
    end[long] += 3_000_000
    found = analyze_traces([replace(trace, ops=replace(trace.ops, end_ns=end))])
    assert "duration-overflow" in found.quality.defects
    rank, truth = one(found), one(analyze_traces([trace]))
    assert rank.step_busy_pct == pytest.approx(truth.step_busy_pct, abs=0.05)


def test_gaps_that_were_stitched_have_no_cause() -> None:
    trace = real(DECODE)
    replay = replay_of_ops(trace)
    end = trace.ops.end_ns.copy()
    inner = (replay[1:] >= 0) & (replay[1:] == replay[:-1])
    end[:-1][inner] = trace.ops.start_ns[1:][inner]
    found = analyze_traces([replace(trace, ops=replace(trace.ops, end_ns=end))])
    assert "stitched-timestamps" in found.quality.defects
    rank = one(found)
    assert rank.idle_ms is not None
    assert rank.idle_ms.inside_graph is None
    assert not rank.top_gaps
    assert rank.layer is not None
    assert rank.layer.gap_us_per_layer is None


@pytest.mark.parametrize(
    ("untraced_ms", "named"), [(9.0, False), (8.1, False), (7.9, True), (12.0, True)]
)
def test_a_traced_step_far_from_the_untraced_one_says_nothing_of_the_host(
    untraced_ms: float, *, named: bool
) -> None:
    found = analyze_traces([real(DECODE)], untraced_step_ms=untraced_ms)
    assert ("profiler-slowdown" in found.quality.defects) is named
    assert found.slowdown_pct == pytest.approx(100 * (9.228 / untraced_ms - 1), abs=0.1)
    idle = one(found).idle_ms
    assert idle is not None
    assert (idle.host_not_launching_yet is None) is named
    assert idle.inside_graph is not None


def test_kernels_of_another_graph_size_are_no_loss() -> None:
    trace = real(PI0)
    found = analyze_traces([trace])
    # One graph of 1,608 nodes stands beside ten of 327.
    assert "records-dropped" not in found.quality.defects
