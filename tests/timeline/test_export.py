"""Exported steps, pictures, kept columns and files side by side."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.timeline.opened import opened
from tests.timeline.planting import DECODE, PI0, SWEEP, TRACES, real, shifted_host
from tests.timeline.test_budget_laws import a_rank

from stepscope.errors import ArchiveError, RefusedError
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.cache import entry_of
from stepscope.timeline.choose import chosen_steps
from stepscope.timeline.device import Device, read_device
from stepscope.timeline.load import load_trace, load_traces
from stepscope.timeline.perfetto import perfetto
from stepscope.timeline.picture import step_picture
from stepscope.timeline.records import TraceResult


def trace_file(name: str) -> Path:
    return (SWEEP if name == DECODE else TRACES) / name


def only(device: Device, n: int) -> Device:
    """Keep the periods that an export of ``n`` steps holds."""
    index = chosen_steps(device, n)
    return replace(device, start=device.start[index], end=device.end[index])


def exported(devices: list[Device], n: int, tmp_path: Path) -> TraceResult:
    path = tmp_path / "steps.json.gz"
    path.write_bytes(perfetto(devices, n))
    return analyze_traces(load_trace(path))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", [DECODE, PI0])
def test_exported_steps_have_the_budget_that_they_had(
    name: str, n: int, tmp_path: Path
) -> None:
    from stepscope.timeline.rank import rank_record

    device = read_device(real(name))
    truth = rank_record(0, 0, only(device, n), None, usable=True, host_sound=True)
    found = exported([device], n, tmp_path).ranks[0]
    assert found.n_periods == n
    assert found.step_kind == device.kind
    assert found.step_ms == truth.step_ms
    assert found.budget_ms == truth.budget_ms
    assert found.idle_ms == truth.idle_ms
    assert found.kernels_per_step == truth.kernels_per_step


def test_the_operation_that_closes_an_export_takes_no_step_from_it(
    tmp_path: Path,
) -> None:
    # It is the first node of a replay that is not in the file, of a kernel that comes
    # again later in the graph.
    rank = a_rank([])
    found = exported([read_device(rank)], 3, tmp_path)
    assert found.ranks[0].n_periods == 3
    assert "edge-steps-cut" not in found.quality.defects


def test_an_export_of_ranks_keeps_who_waits_for_whom(tmp_path: Path) -> None:
    ranks = [a_rank([], late, i) for i, late in enumerate((0, 9_000, 2_000))]
    truth = analyze_traces(ranks)
    found = exported([read_device(t) for t in ranks], 4, tmp_path)
    assert [r.rank for r in found.ranks] == [0, 1, 2]
    assert [r.budget_ms for r in found.ranks] == [r.budget_ms for r in truth.ranks]
    assert found.straggler_rank == truth.straggler_rank == 1


def test_an_export_is_small_and_holds_nothing_but_the_steps() -> None:
    device = read_device(real(DECODE))
    data = perfetto([device])
    assert len(data) < 40_000
    events = json.loads(gzip.decompress(data))["traceEvents"]
    kinds = {event.get("cat") for event in events}
    assert kinds == {
        None, "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "ac2g",
        "cuda_driver", "user_annotation", "gpu_user_annotation",
    } - {"cuda_driver"}  # fmt: skip
    # Every arrow that begins ends.
    starts = sorted(e["id"] for e in events if e["ph"] == "s")
    assert starts == sorted(e["id"] for e in events if e["ph"] == "f")
    assert data == perfetto([device])


#: One operation in 24 begins before the last of its stream ends; two threads launch;
#: two ranks of one file.
OVERLAPS = "b200_vllm_eager_prefill_rank0of8.json.gz"
THREADS = "v100_epoch_ns_timestamps.json.gz"
TWO = "nsys_2xh100_train/before.sqlite"


@pytest.mark.parametrize("name", [DECODE, PI0, OVERLAPS, THREADS, TWO])
def test_perfetto_keeps_every_slice_and_draws_every_arrow(name: str) -> None:
    devices = [read_device(t) for t in load_traces([trace_file(name)])]
    data = perfetto(devices, 3)
    events = json.loads(gzip.decompress(data))["traceEvents"]
    found = opened(data)
    assert found.lost == []
    slices = [s for row in found.rows.values() for s in row]
    assert len(slices) == sum(e["ph"] == "X" for e in events)
    assert len(found.arrows) == sum(e["ph"] == "s" for e in events) > 0
    for call, op in found.arrows:
        assert call["cat"] == "cuda_runtime"
        assert op["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        assert call["args"]["correlation"] == op["args"]["correlation"]
        assert str(call["pid"])[:8] == str(op["pid"])[:8] or len(devices) == 1
    for rank in {str(e["pid"])[:8] for e in events}:
        mine = [e["ts"] for e in events if str(e["pid"])[:8] == rank and "ts" in e]
        assert len(devices) == 1 or mine == sorted(mine)
    # A row's number is its own in the file and no process id.
    numbers = {e["tid"]: e["pid"] for e in events if "tid" in e}
    assert all(numbers[e["tid"]] == e["pid"] for e in events if "tid" in e)
    assert not {0, *numbers.values()} & set(numbers)
    for (_, row), its in found.rows.items():
        if not row.startswith("thread"):
            assert all(depth == 0 for _, _, depth, _ in its), row


def test_operations_that_overlap_on_one_stream_lie_beneath_each_other() -> None:
    device = read_device(real(OVERLAPS))
    rows = opened(perfetto([device], 3)).rows
    assert list(rows) == [
        ("[rank 0] GPU", "steps"),
        ("[rank 0] GPU", "stream 7"),
        ("[rank 0] GPU", "stream 7, overlapping"),
        ("[rank 0] host", "thread 0"),
    ]
    aside = rows["[rank 0] GPU", "stream 7, overlapping"]
    assert len(aside) == 6
    for start, _, _, op in aside:
        assert op["args"]["stream"] == 7
        assert any(a < start < b for a, b, _, _ in rows["[rank 0] GPU", "stream 7"])


def test_an_operation_within_another_of_its_stream_is_no_part_of_it() -> None:
    # Within another, of the same start, and twice none at all at one instant.
    extra = [(2_100, 300, 7, 0), (4_010, 700, 7, 0), (45_000, 0, 7, 0),
             (45_000, 0, 7, 0)]  # fmt: skip
    found = opened(perfetto([read_device(a_rank(extra))], 2))
    assert found.lost == []
    rows = {row: its for (of, row), its in found.rows.items() if "GPU" in of}
    assert {depth for its in rows.values() for _, _, depth, _ in its} == {0}
    lengths = [b - a for a, b, _, _ in rows["stream 7, overlapping"]]
    assert lengths == [300, 700, 0] * 2


def test_an_export_has_the_stamps_of_the_trace_to_the_nanosecond() -> None:
    device = read_device(real(DECODE))
    chosen = chosen_steps(device, 3)
    lo, hi = int(device.start[chosen[0]]), int(device.end[chosen[-1]])
    ops = device.trace.ops
    inside = np.flatnonzero((ops.start_ns <= hi) & (ops.end_ns > lo))
    data = perfetto([device], 3)
    base = json.loads(gzip.decompress(data))["baseTimeNanoseconds"]
    rows = opened(data).rows
    found = sorted(
        (base + start, base + end)
        for (_, row), its in rows.items()
        if row.startswith("stream")
        for start, end, _, _ in its
    )
    pairs = zip(ops.start_ns[inside].tolist(), ops.end_ns[inside].tolist(), strict=True)
    assert found == sorted(pairs)
    marks = [(base + a, base + b) for a, b, _, _ in rows["[rank 0] GPU", "steps"]]
    assert marks == [(int(device.start[i]), int(device.end[i])) for i in chosen]


def test_each_thread_of_the_host_has_a_row_of_its_own() -> None:
    device = read_device(real(THREADS))
    rows = opened(perfetto([device], 3)).rows
    host = {name: its for (of, name), its in rows.items() if of == "[rank 0] host"}
    assert list(host) == ["thread 0", "thread 1"]
    calls = device.trace.calls
    for name, its in host.items():
        mine = set(calls.start_ns[calls.thread == int(name[-1])].tolist())
        launched = [e for _, _, _, e in its if e["cat"] == "cuda_runtime"]
        assert launched
        assert len(launched) <= len(mine)
    assert {s[3]["name"] for s in host["thread 1"]} >= {"ProfilerStep#103"}
    assert "ProfilerStep#103" not in {s[3]["name"] for s in host["thread 0"]}


def test_ranks_are_named_and_the_gpus_come_first() -> None:
    ranks = [read_device(a_rank([], 0, i)) for i in (0, 1, 10)]
    shown = dict.fromkeys(of for of, _ in opened(perfetto(ranks, 2)).rows)
    assert list(shown) == [
        "[rank 0] GPU", "[rank 1] GPU", "[rank 10] GPU",
        "[rank 0] host", "[rank 1] host", "[rank 10] host",
    ]  # fmt: skip


def test_two_traces_that_say_they_are_one_rank_stay_two(tmp_path: Path) -> None:
    twice = [read_device(a_rank([], late, 3)) for late in (0, 5_000)]
    path = tmp_path / "steps.json.gz"
    path.write_bytes(perfetto(twice, 2))
    back = load_trace(path)
    assert [t.rank for t in back] == [3, 3]
    assert [len(t.ops) for t in back] == [41, 41]
    assert "[rank 3, trace 2] GPU" in {of for of, _ in opened(path.read_bytes()).rows}


def test_no_arrow_runs_back_in_time() -> None:
    # Perfetto reads in order of time: an arrow's end before its begin belongs to none.
    device = read_device(shifted_host(real(PI0), 5_000_000))
    found = opened(perfetto([device], 2))
    assert found.lost == []
    assert all(call["ts"] <= op["ts"] for call, op in found.arrows)


def test_host_ranges_that_do_not_nest_are_kept() -> None:
    trace = a_rank([], 0)
    spans = replace(
        trace.spans,
        start_ns=np.array([90_000, 105_000, 105_000]),
        end_ns=np.array([150_000, 180_000, 106_000]),
        name=np.array([0, 0, 0]),
        thread=np.array([5, 5, 5]),
        is_annotation=np.array([True, True, True]),
    )
    found = opened(perfetto([read_device(replace(trace, spans=spans))], 3))
    assert found.lost == []
    host = {row: its for (_, row), its in found.rows.items() if "thread 5" in row}
    assert {row: [(b - a, depth) for a, b, depth, _ in its]
            for row, its in host.items()} == {
        "thread 5": [(60_000, 0), (1_000, 1)],
        "thread 5, overlapping": [(75_000, 0)],
    }  # fmt: skip


def test_a_trace_without_steps_can_not_be_exported() -> None:
    device = read_device(real("mi300x_graph_underrecorded.json.gz"))
    with pytest.raises(RefusedError, match="no whole step"):
        perfetto([device])


def test_a_picture_holds_all_busy_time_in_few_marks() -> None:
    device = read_device(real(DECODE))
    picture = step_picture(device)
    lanes = {lane.name: lane.marks for lane in picture.lanes}
    assert {"annotations", "API calls", "layers", "stream 7"} <= set(lanes)
    assert sum(mark.n for mark in lanes["stream 7"]) > 900
    assert len(lanes["stream 7"]) < 400
    for name in ("stream 7", "API calls"):
        ends = [mark.end_us for mark in lanes[name]]
        starts = [mark.start_us for mark in lanes[name]]
        assert starts == sorted(starts)
        assert all(a <= b for a, b in zip(starts, ends, strict=True))
    found = analyze_traces([device.trace]).ranks[0]
    assert found.step_busy_pct is not None
    busy = sum(m.busy_us for n in lanes if n.startswith("stream") for m in lanes[n])
    assert busy / picture.length_us == pytest.approx(
        found.step_busy_pct / 100, abs=0.01
    )


def test_the_layers_of_a_real_model_are_one_row() -> None:
    rank = analyze_traces([real(DECODE)]).ranks[0]
    layer = rank.layer
    assert layer is not None
    # Qwen3-30B-A3B has 48; the last lacks the norm that is fused into the next.
    assert (layer.n_layers, layer.kernels_per_layer, layer.n_seen) == (48, 19, 47 * 13)
    assert layer.ms_per_layer is not None
    assert rank.step_ms is not None
    assert 0.9 < 48 * layer.ms_per_layer / rank.step_ms.mean < 1
    names = [kernel.name for kernel in layer.kernels]
    assert names.count("fused_moe_kernel") == 2
    parts = [(k.us_mean or 0) + (k.gap_before_us_mean or 0) for k in layer.kernels]
    # Programmatic launches overlap by a little.
    assert sum(parts) / 1e3 == pytest.approx(layer.ms_per_layer, rel=0.01)


def test_what_the_host_did_in_a_long_gap_is_named() -> None:
    gaps = analyze_traces([real(PI0)]).ranks[0].top_gaps
    assert gaps[0].us_mean > 200
    assert any("cudaGraphLaunch" in (gap.host or "") for gap in gaps)


def test_kept_columns_are_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress((TRACES / PI0).read_bytes()))
    first = load_trace(path, tmp_path / "cache")
    entry = entry_of(path, tmp_path / "cache")
    assert entry is not None
    assert entry.exists()
    again = load_trace(path, tmp_path / "cache")
    assert analyze_traces(again) == analyze_traces(first)
    assert [p.name for p in tmp_path.iterdir()] in (
        ["t.json", "cache"],
        ["cache", "t.json"],
    )
    # The content names the entry: the old columns of a changed file are not its own.
    path.write_bytes(path.read_bytes()[:-200_000])
    with pytest.raises(ArchiveError):
        load_trace(path, tmp_path / "cache")


def test_a_damaged_entry_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress((TRACES / PI0).read_bytes()))
    truth = load_trace(path, tmp_path)
    entry = entry_of(path, tmp_path)
    assert entry is not None
    whole = entry.read_bytes()
    for damage in (whole[:1000], b"", whole[:-9] + b"\0" * 9, b"no zip at all"):
        entry.write_bytes(damage)
        assert len(load_trace(path, tmp_path)[0].ops) == len(truth[0].ops)
        assert entry.read_bytes() == whole


def test_small_files_and_folders_that_can_not_be_written_are_no_reason_to_fail(
    tmp_path: Path,
) -> None:
    assert entry_of(SWEEP / DECODE, tmp_path) is None
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress((TRACES / PI0).read_bytes()))
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert load_trace(path, blocked)


def test_files_side_by_side_are_the_same_in_order_of_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [TRACES / f"dlrm_8rank_v100_nccl/rank{i}.json.gz" for i in (3, 0)]
    alone = load_traces(paths)
    assert [trace.rank for trace in alone] == [0, 3]
    large = []
    for i in (1, 0):
        path = tmp_path / f"rank{i}.json"
        path.write_bytes(
            gzip.decompress((TRACES / PI0).read_bytes()) + b" " * (3 << 20)
        )
        large.append(path)
    found = load_traces(large, n_processes=2)
    assert [trace.rank for trace in found] == [0, 1]
    assert np.array_equal(found[0].ops.start_ns, real(PI0).ops.start_ns)


@pytest.mark.parametrize(
    ("what", "share"), [("gloo:all_reduce", 100), ("scheduler: schedule", 48)]
)
def test_what_the_host_did_in_a_gap_is_named_by_its_annotation(
    what: str, share: int
) -> None:
    # Operators within an annotation are named beside it; within a collective they
    # are not what takes the time.
    trace = real(PI0)
    device = read_device(trace)
    inside = np.flatnonzero(device.gaps.start_ns >= device.start[0])
    # The gap in which the host launched nothing for longest.
    worst = inside[np.argmax(device.gaps.parts_ns[inside, 1])]
    lo, hi = int(device.gaps.start_ns[worst]), int(device.gaps.end_ns[worst])
    spans = replace(
        trace.spans,
        start_ns=np.append(trace.spans.start_ns, lo),
        end_ns=np.append(trace.spans.end_ns, hi),
        name=np.append(trace.spans.name, len(trace.names)),
        thread=np.append(trace.spans.thread, 99),
        is_annotation=np.append(trace.spans.is_annotation, True),
    )
    planted = replace(trace, names=(*trace.names, what), spans=spans)
    gaps = analyze_traces([planted]).ranks[0].top_gaps
    assert any((gap.host or "").startswith(f"{what} ({share} %)") for gap in gaps)
