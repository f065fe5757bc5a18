"""What would decide a hypothesis is never what the run already holds."""

from typing import Any

import pytest

from stepscope.analysis.across.records import FloorPoint, RepeatGroup
from stepscope.findings import Finding

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
NAME = "base-c16-r0"


def warmed(bench: Bench) -> Any:
    blocks = tuple(
        bench.cell(name=f"base-warm{i}", warm_up=True, requests=()) for i in range(6)
    )
    return bench.run(cells=(*blocks, bench.cell()))


def not_settled() -> Finding:
    return Finding(
        code="warmup-not-converged", severity="warning", message="m", launch="base-l0"
    )


def repeats() -> RepeatGroup:
    return RepeatGroup(
        configuration="base", session="s0", concurrency=16, metric="tpot_ms",
        cells=(NAME, "b", "c"), values=(10.0, 10.0, 10.0), mean=10.0,
        ci95=(9.9, 10.1), cv_pct=1.0,
    )  # fmt: skip


def test_a_run_with_warm_up_blocks_is_not_asked_for_them(bench: Bench) -> None:
    entry = bench.entry("warm-up", warmed(bench), findings=(not_settled(),))
    assert entry.status == "standing"
    assert "6 warm-up blocks" not in (entry.would_decide or "")
    assert "warm_up.max_blocks" in (entry.would_decide or "")
    assert '["16x3"]' in (entry.would_decide or "")


def test_a_cell_with_repeats_is_not_asked_for_them(bench: Bench) -> None:
    entry = bench.entry(
        "warm-up", warmed(bench), findings=(not_settled(),), groups=(repeats(),)
    )
    assert entry.status == "standing"
    assert "repeats" not in (entry.would_decide or "")


def test_a_run_with_counters_is_not_asked_to_sample_them(bench: Bench) -> None:
    counters = bench.telemetry(tensor_pct=3.0, sm_active_pct=85.0)
    entry = bench.entry("compute", None, bench.result(telemetry=counters))
    assert entry.status == "standing"
    assert "GPM" not in (entry.would_decide or "")
    assert "GPM" in (bench.entry("compute").would_decide or "")


def test_the_floor_is_weighed_against_a_step_and_not_against_one_of_its_tokens(
    bench: Bench,
) -> None:
    point = FloorPoint(
        configuration="base", concurrency=16, seqs_per_rank=15.5, coverage=None,
        bytes_per_rank=1e10, floor_ms=8.0, step_ms=20.0, times_floor=2.5,
    )  # fmt: skip
    cell = bench.result(
        engine_step_ms=None,
        tokens_per_step_and_sequence=2.0,
        telemetry=bench.telemetry(dram_bw_pct_median=55.0),
    )
    entry = bench.entry("bandwidth", None, cell, floor=(point,))
    assert entry.status == "standing"
    assert entry.share_of_step_pct == pytest.approx(40.0)
