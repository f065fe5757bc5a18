"""Real traces against the reference answers beside them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Trace
from stepscope.timeline.gaps import CAUSES, find_gaps
from stepscope.timeline.intervals import length, union
from stepscope.timeline.load import load_trace
from stepscope.timeline.records import TraceResult

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
TRACES = SHARED / "traces"
SWEEP = SHARED / "h200x1-qwen3moe-baseline"
ANSWERS: dict[str, Any] = json.loads((TRACES / "reference_answers.json").read_text())


def single_files() -> Iterator[str]:
    for name, answer in ANSWERS.items():
        if "devices" in answer:
            yield name


def traces(*names: str) -> list[Trace]:
    found = [t for name in names for t in load_trace(TRACES / name)]
    return sorted(found, key=lambda t: t.rank or 0)


def result(*names: str) -> TraceResult:
    return analyze_traces(traces(*names))


@pytest.mark.parametrize("name", list(single_files()))
def test_busy_and_idle_time_are_the_reference(name: str) -> None:
    for trace, answer in zip(
        traces(name), ANSWERS[name]["devices"].values(), strict=True
    ):
        busy = length(union(trace.ops.start_ns, trace.ops.end_ns)) / 1e3
        span = (int(trace.ops.end_ns.max()) - int(trace.ops.start_ns[0])) / 1e3
        assert len(trace.ops) == answer["n_gpu_ops"]
        # The reference takes stamps as float64: 0.25 us apart since an epoch.
        assert busy == pytest.approx(answer["busy_union_us"], abs=0.01)
        assert span - busy == pytest.approx(answer["idle_us"], abs=0.06)


# Two ranks of one nsys file share correlation ids; the reference joins them wrongly.
@pytest.mark.parametrize("name", [n for n in single_files() if "2xh100" not in n])
def test_idle_time_has_the_causes_of_the_reference(name: str) -> None:
    for trace, answer in zip(
        traces(name), ANSWERS[name]["devices"].values(), strict=True
    ):
        gaps = find_gaps(trace)
        for cause, total in zip(CAUSES, gaps.parts_ns.sum(axis=0) / 1e3, strict=True):
            expected = answer["gap_causes"].get(cause, [0, 0.0])[1]
            # Sums of thousands of float64 epoch stamps drift by microseconds.
            assert total == pytest.approx(expected, abs=3.0), cause


def test_ten_decode_steps_of_a_real_graph_close_to_the_nanosecond() -> None:
    rank = result("h200_cudagraph_pi0_10steps.json.gz").ranks[0]
    assert (rank.n_steps, rank.n_periods, rank.step_source) == (
        10,
        9,
        "graph-launches",
    )
    assert rank.closes_to_pct == 0
    assert rank.step_ms is not None
    assert rank.step_ms.mean == pytest.approx(1.911, abs=5e-4)
    assert rank.budget_ms is not None
    assert rank.budget_ms.idle == pytest.approx(0.874, abs=5e-4)
    assert rank.idle_ms is not None
    assert rank.idle_ms.inside_graph == pytest.approx(0.1611, abs=1e-4)
    assert rank.idle_ms.host_not_launching_yet == pytest.approx(0.2544, abs=1e-4)
    assert rank.idle_ms.graph_launch_call == pytest.approx(0.4177, abs=1e-4)


def test_vllm_decode_steps_on_an_h200() -> None:
    rank = analyze_traces(load_trace(SWEEP / "trace_decode_c8.pt.trace.json.gz")).ranks[
        0
    ]
    assert (rank.n_steps, rank.step_kind, rank.n_device_ops) == (14, "decode", 13258)
    assert rank.busy_pct == pytest.approx(92.4, abs=0.05)
    assert rank.gaps_below_1us_ms == pytest.approx(5.3, abs=0.05)
    assert rank.n_layers is not None
    top = rank.top_kernels[0]
    assert top.name == "fused_moe_kernel"
    assert top.total_ms == pytest.approx(80.29, abs=0.01)
    wide = analyze_traces(load_trace(SWEEP / "trace_decode_c128.pt.trace.json.gz"))
    assert wide.ranks[0].busy_pct == pytest.approx(96.0, abs=0.05)


def test_most_collective_time_of_eight_ranks_is_waiting_for_the_last() -> None:
    names = [f"dlrm_8rank_v100_nccl/rank{i}.json.gz" for i in range(8)]
    found = result(*names)
    answer = ANSWERS["dlrm_8rank_v100_nccl/_skew"]
    waited = sum(sum(c.wait_ms_by_rank) for c in found.collectives)
    assert waited * 1e3 == pytest.approx(answer["sum_wait_all_ranks_us"])
    assert sum(c.last_by_rank[7] for c in found.collectives) == 5
    assert found.straggler_rank == 7
    # The rank that everybody waits for is the least busy: spread shows nothing.
    assert found.ranks[7].busy_pct == min(r.busy_pct or 0.0 for r in found.ranks)


@pytest.mark.parametrize(
    ("names", "defect", "usable"),
    [
        (("nsys_rtx3060_graph_granularity.sqlite",), "graph-granularity", False),
        (("mi300x_graph_underrecorded.json.gz",), "records-dropped", False),
        (("mi300x_sglang_decode_hipgraph.json.gz",), "step-cut", False),
        (("mi300x_vllm_decode_full_hipgraph.json.gz",), "stitched-timestamps", True),
        (("mi350_hipgraph_pi0_stitched.json.gz",), "stitched-timestamps", True),
        (("b200_vllm_eager_prefill_rank0of8.json.gz",), "stream-overlap", True),
        (("h100_qwen_eager.json.gz",), "unlinked-operations", True),
        (("mi300x_pi0_rocprofv3_no_host.json.gz",), "no-host-records", True),
        (("dlrm_8rank_v100_nccl/rank0.json.gz",), "microsecond-resolution", True),
        (
            ("hta_a100_2of128/rank0.json.gz", "hta_a100_2of128/rank1.json.gz"),
            "unequal-ranks",
            True,
        ),
    ],
)
def test_a_trace_that_lies_is_named(
    names: tuple[str, ...], defect: str, usable: bool
) -> None:
    found = result(*names)
    assert defect in found.quality.defects
    assert found.quality.usable is usable
    if not usable:
        for rank in found.ranks:
            assert rank.idle_ms is None
            assert rank.busy_pct is None
            assert rank.budget_ms is None or rank.budget_ms.idle is None
            assert not rank.top_gaps


def test_ranks_that_can_not_be_matched_have_no_waiting() -> None:
    found = result("hta_a100_2of128/rank0.json.gz", "hta_a100_2of128/rank1.json.gz")
    assert not found.collectives
    assert found.straggler_rank is None
