import json
from pathlib import Path

import numpy as np
import pytest

from stepscope.importers.load import load_foreign
from stepscope.run.run import Run

DATA = Path(__file__).parents[2].parent / "shared" / "data"
BASELINE = DATA / "h200x1-qwen3moe-baseline"
S = 10**9


@pytest.fixture(scope="module")
def baseline() -> Run:
    return load_foreign(BASELINE)


def test_the_baseline_is_one_launch_with_all_its_cells(baseline: Run) -> None:
    counts = {cell.name: len(cell.requests) for cell in baseline.cells}
    assert counts == {
        "warm0": 16,
        "warm1": 16,
        "c1_0": 2,
        "c2_0": 4,
        "c4_0": 8,
        "c8_0": 16,
        "c16_0": 32,
        "c32_0": 64,
        "recipe_c32": 100,
        "c64_0": 128,
        "c64_1": 128,
        "c64_2": 128,
        "c128_0": 256,
        "c256_0": 512,
        "c256_1": 512,
        "c256_2": 512,
        "c512_0": 1024,
    }
    (launch,) = baseline.launches
    assert (launch.name, launch.ready) == ("baseline-l0", True)
    assert launch.command[4:6] == ("/models/qwen3moe", "--load-format")
    assert {cell.launch for cell in baseline.cells} == {"baseline-l0"}
    assert (baseline.engine_version, baseline.gpu) == ("0.26.0", "NVIDIA H200")
    assert baseline.model_config is not None
    assert json.loads(baseline.model_config)["model_type"] == "qwen3_moe"
    assert [Path(t.path).name for t in baseline.traces] == [
        "trace_decode_c8.pt.trace.json.gz",
        "trace_decode_c128.pt.trace.json.gz",
    ]
    assert all(Path(trace.path).is_absolute() for trace in baseline.traces)
    assert baseline.findings == ()


def test_one_clock_offset_fits_all_commands_of_the_baseline(baseline: Run) -> None:
    for cell in baseline.cells:
        assert cell.clock_slack_ns == pytest.approx(0.5808e9, abs=1e6)
        first = min(r.sent_at_ns for r in cell.requests)
        last = max(r.last_content_at_ns or 0 for r in cell.requests)
        assert cell.started_at_ns is not None
        assert cell.ended_at_ns is not None
        # The latest that all ends allow, and still allowed by all starts if earlier.
        assert last <= cell.ended_at_ns
        assert first - cell.clock_slack_ns >= cell.started_at_ns
    ends = [
        (cell.ended_at_ns or 0) - max(r.last_content_at_ns or 0 for r in cell.requests)
        for cell in baseline.cells
    ]
    assert min(ends) == 0
    sent = baseline.cells[5].requests[0].sent_at_ns
    # c8_0's first request was sent at 871.935273105 on the client's clock.
    offset = sent - 871_935_273_105
    assert offset / S == pytest.approx(1796004334.073, abs=0.001)
    assert (offset - baseline.cells[0].clock_slack_ns) / S == pytest.approx(
        1796004333.492, abs=0.001
    )


def test_repeats_count_only_equal_workload_points(baseline: Run) -> None:
    repeats = {cell.name: cell.repeat for cell in baseline.cells}
    assert [repeats[f"c64_{n}"] for n in range(3)] == [0, 1, 2]
    assert [repeats[f"c256_{n}"] for n in range(3)] == [0, 1, 2]
    assert repeats["recipe_c32"] == repeats["c32_0"] == repeats["c8_0"] == 0
    assert [c.name for c in baseline.cells if c.warm_up] == ["warm0", "warm1"]


def test_metrics_stand_before_and_after_every_cell(baseline: Run) -> None:
    for cell in baseline.cells:
        before, after = cell.metrics_before, cell.metrics_after
        assert before is not None
        assert after is not None
        name = "vllm:generation_tokens_total"
        (start,) = [v.value for v in before.values if v.name == name]
        (end,) = [v.value for v in after.values if v.name == name]
        assert end - start == sum(r.output_tokens or 0 for r in cell.requests)


def test_telemetry_lies_on_the_same_clock_as_the_requests(baseline: Run) -> None:
    cell = next(c for c in baseline.cells if c.name == "c512_0")
    first = min(r.sent_at_ns for r in cell.requests)
    last = max(r.last_content_at_ns or 0 for r in cell.requests)
    inside = [s for s in baseline.samples.gpu if first <= s.at_ns <= last]
    assert len(inside) > 60
    assert np.mean([s.power_w for s in inside]) > 400
    assert (len(baseline.samples.gpu), len(baseline.samples.host)) == (1214, 1214)


def test_log_lines_are_placed_by_the_load_that_they_tell_of(baseline: Run) -> None:
    (launch,) = baseline.launches
    assert launch.log is not None
    stats = [e for e in launch.log.events if e.kind == "stats"]
    cell = next(c for c in baseline.cells if c.name == "c512_0")
    assert cell.started_at_ns is not None
    assert cell.ended_at_ns is not None
    busy = [
        event
        for event in stats
        if event.at_ns is not None
        and cell.started_at_ns < event.at_ns < cell.ended_at_ns
    ]
    # Only there were more than 256 sequences in the server.
    assert any(event.numbers["n_running"] > 256 for event in busy)
    assert all(event.error_ns == S for event in stats)


def test_counters_of_the_second_run_are_read() -> None:
    run = load_foreign(DATA / "h200x1-qwen3moe-iteration-details" / "import.toml")
    assert len(run.cells) == 5
    with_dram = [s for s in run.samples.gpu if s.dram_bw_pct is not None]
    assert len(with_dram) == len(run.samples.gpu) - 1
    (launch,) = run.launches
    assert launch.log is not None
    iterations = [e for e in launch.log.events if e.kind == "iteration"]
    assert len(iterations) == 2642
    assert all(event.at_ns is not None for event in iterations)


def test_several_paths_are_one_run_with_a_launch_each() -> None:
    run = load_foreign([BASELINE, DATA / "h200x1-qwen3moe-iteration-details"])
    assert [(x.name, x.session) for x in run.launches] == [
        ("baseline-l0", "s0"),
        ("details-l0", "s1"),
    ]
    names = [cell.name for cell in run.cells]
    assert len(set(names)) == len(names) == 22
    assert "details-c16_0" in names
    assert {c.launch for c in run.cells if c.configuration == "details"} == {
        "details-l0"
    }
    instants = [sample.at_ns for sample in run.samples.gpu]
    assert instants == sorted(instants)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("h200x1-boot-no-kv-memory", "No available memory for the cache blocks"),
        ("h200x1-boot-orphan-holds-memory", "is less than desired GPU memory"),
    ],
)
def test_a_boot_that_failed_is_a_run_with_one_launch(folder: str, kind: str) -> None:
    run = load_foreign(DATA / folder)
    (launch,) = run.launches
    assert not launch.ready
    assert launch.failure is not None
    assert (run.cells, run.engine, run.engine_version) == ((), "vllm", "0.26.0")
    assert launch.log is not None
    errors = [event for event in launch.log.events if event.kind == "error"]
    assert any(kind in event.text for event in errors)
    first, last = run.samples.gpu[0].at_ns, run.samples.gpu[-1].at_ns
    assert all(first <= (event.at_ns or 0) <= last for event in errors)
    assert run.model == "/models/qwen3moe"


def test_a_single_result_keeps_its_own_clock() -> None:
    run = load_foreign(BASELINE / "c8_0.json.gz")
    (cell,) = run.cells
    assert run.timeline.kind == "monotonic"
    assert cell.requests[0].sent_at_ns == 871_935_273_105
    assert (cell.name, cell.workload.concurrency) == ("c8_0", 8)
    assert (cell.started_at_ns, cell.clock_slack_ns) == (None, 0)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_folder_of_results_is_a_run_of_cells(engine: str) -> None:
    run = load_foreign(DATA / "engines" / engine / "bench")
    assert all(cell.requests for cell in run.cells)
    assert {cell.workload.concurrency for cell in run.cells} >= {1, 8}
