"""Timelines of a run are read once; what can not be read hides nothing else."""

import gzip
import json
from pathlib import Path

import msgspec

from stepscope.importers.timelines import with_timelines
from stepscope.run.run import Launch, Run, Timeline, TraceRef

SHARED = Path(__file__).parents[2].parent / "shared"
C8 = SHARED / "data/h200x1-qwen3moe-baseline/trace_decode_c8.pt.trace.json.gz"


def run_of(*paths: Path) -> Run:
    return Run(
        id="r",
        engine="vllm",
        timeline=Timeline(kind="monotonic"),
        launches=(Launch(name="a-l0", configuration="a"),),
        traces=tuple(
            TraceRef(path=str(p), concurrency=8, rank=i, launch="a-l0")
            for i, p in enumerate(paths)
        ),
    )


def test_a_real_timeline_becomes_the_budget_of_a_step(tmp_path: Path) -> None:
    (budget,) = with_timelines(run_of(C8), tmp_path).step_budgets
    (rank,) = budget.ranks
    parts = rank.compute_ms + rank.communication_ms + rank.memcpy_ms
    assert rank.idle_ms is not None
    assert abs(parts + rank.idle_ms - rank.step_ms) < 1e-9
    assert (budget.concurrency, budget.step_source) == (8, "graph-launches")
    assert [round(rank.step_ms, 3), round(rank.idle_ms, 3)] == [9.228, 0.463]
    assert rank.kernels[0].name == "fused_moe_kernel"
    assert "untraced-period-unknown" not in {f.code for f in budget.findings}


def test_what_was_read_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    kept, copy = tmp_path / "kept", tmp_path / "t.json.gz"
    copy.write_bytes(C8.read_bytes())
    first = with_timelines(run_of(copy), kept).step_budgets
    (entry,) = kept.iterdir()
    told = json.loads(entry.read_bytes())
    told["ranks"][0]["step_ms"]["mean"] = 77.0
    entry.write_bytes(msgspec.json.encode(told))
    again = with_timelines(run_of(copy), kept).step_budgets
    assert again[0].ranks[0].step_ms == 77.0
    copy.write_bytes(gzip.compress(gzip.decompress(copy.read_bytes()), 1))
    assert with_timelines(run_of(copy), kept).step_budgets == first


def test_a_cache_that_is_damaged_or_can_not_be_written_only_costs_time(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    first = with_timelines(run_of(C8), kept).step_budgets
    for entry in kept.iterdir():
        entry.write_bytes(b"{")
    assert with_timelines(run_of(C8), kept).step_budgets == first
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert with_timelines(run_of(C8), in_the_way).step_budgets == first


def test_a_timeline_that_is_missing_or_damaged_is_a_finding(tmp_path: Path) -> None:
    torn = tmp_path / "torn.json.gz"
    torn.write_bytes(C8.read_bytes()[:1000])
    run = with_timelines(run_of(tmp_path / "none.json"), tmp_path / "kept")
    assert run.step_budgets == ()
    assert [f.code for f in run.findings] == ["trace-unreadable"]
    assert run.findings[0].launch == "a-l0"
    run = with_timelines(run_of(torn), tmp_path / "kept")
    assert [f.code for f in run.findings] == ["trace-unreadable"]


def test_a_timeline_of_a_cpu_is_refused_by_the_gate(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
    events = [{**event, "ts": 10.0 * i, "dur": 5.0} for i in range(50)]
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": events}))
    (budget,) = with_timelines(run_of(path), tmp_path / "kept").step_budgets
    assert not budget.usable
    assert budget.ranks == ()
    assert budget.defects == ("no-device-records",)


def test_all_ranks_of_a_capture_are_read_together(tmp_path: Path) -> None:
    ranks = sorted((SHARED / "data/traces/dlrm_8rank_v100_nccl").glob("rank*.json.gz"))
    (budget,) = with_timelines(run_of(*ranks), tmp_path).step_budgets
    assert budget.n_ranks == len(ranks) == 8
    assert budget.ranks == (), "one training step has no period"
