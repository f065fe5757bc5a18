import json
from pathlib import Path
from typing import Any

from stepscope.importers.load import load_foreign
from stepscope.importers.open import open_any
from stepscope.importers.save import import_to

SHARED = Path(__file__).parents[2].parent / "shared"
RESULT = SHARED / "data" / "engines" / "vllm" / "bench" / "c8.json"


def summary_only(**changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(RESULT.read_text())
    for key in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors"):
        raw.pop(key, None)
    return raw | changes


def write(path: Path, what: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(what))


def sweep(root: Path) -> Path:
    """A sweep of two servers: one with two loads, one that failed twice over."""
    top = root / "results" / "20261130_010203"
    small = top / "SERVE--max_num_seqs=32-BENCH--max_concurrency=4"
    for number in (0, 1, 10):
        raw = summary_only(max_concurrency=4, run_number=number, max_num_seqs=32)
        write(small / f"run={number}.json", raw)
    write(small / "warmup.json", summary_only(max_concurrency=4, num_prompts=2))
    write(small / "summary.json", [summary_only()] * 3)
    large = top / "SERVE--max_num_seqs=32-BENCH--max_concurrency=8"
    (large).mkdir()
    (large / "run=0.json").write_text(RESULT.read_text())
    failure = {
        "run_number": 1,
        "error_type": "CalledProcessError",
        "error": "Command died",
        "serve_overrides": {},
        "bench_overrides": {},
    }
    write(large / "run=0.failure.json", failure)
    write(large / "run=1.failure.json", failure)
    write(
        top / "SERVE--max_num_seqs=9999-failure.json",
        {"error_type": "TimeoutError", "error": "not ready", "serve_overrides": {}},
    )
    (top / "summary.csv").write_text("x\n")
    return root


def test_a_sweep_folder_is_read_at_each_of_its_levels(tmp_path: Path) -> None:
    sweep(tmp_path)
    top = tmp_path / "results" / "20261130_010203"
    names = {tuple(c.name for c in load_foreign(p).cells) for p in (tmp_path, top)}
    assert names == {
        (
            "max_num_seqs=32-max_concurrency=4-run0",
            "max_num_seqs=32-max_concurrency=4-run1",
            "max_num_seqs=32-max_concurrency=4-run10",
            "max_num_seqs=32-max_concurrency=4-warmup",
            "max_num_seqs=32-max_concurrency=8-run0",
            "max_num_seqs=32-max_concurrency=8-run1",
        )
    }


def test_runs_are_repeats_and_failures_are_cells_and_launches(tmp_path: Path) -> None:
    run = load_foreign(sweep(tmp_path))
    cells = {cell.name.removeprefix("max_num_seqs=32-"): cell for cell in run.cells}
    four = [cells[f"max_concurrency=4-run{n}"] for n in (0, 1, 10)]
    assert [cell.repeat for cell in four] == [0, 1, 2]
    assert all(cell.summary is not None and not cell.requests for cell in four)
    assert cells["max_concurrency=4-warmup"].warm_up
    assert cells["max_concurrency=8-run0"].requests
    failed = cells["max_concurrency=8-run1"]
    assert (failed.status, failed.failure) == (
        "failed",
        "CalledProcessError: Command died",
    )
    launches = {launch.configuration: launch for launch in run.launches}
    assert launches["max_num_seqs=32"].ready
    assert not launches["max_num_seqs=9999"].ready
    assert launches["max_num_seqs=9999"].failure == "TimeoutError: not ready"
    assert {f.code for f in run.findings} == {"no-request-details"}


def test_a_summary_alone_still_gives_its_runs(tmp_path: Path) -> None:
    folder = sweep(tmp_path) / "results" / "20261130_010203"
    small = folder / "SERVE--max_num_seqs=32-BENCH--max_concurrency=4"
    for path in small.glob("run=*.json"):
        path.unlink()
    run = load_foreign(folder)
    assert sum("max_concurrency=4-run" in cell.name for cell in run.cells) == 3


def test_two_experiments_in_one_folder_keep_their_cells_apart(tmp_path: Path) -> None:
    name = "SERVE--a=1-BENCH--b=2"
    for experiment in ("first", "second"):
        write(tmp_path / "results" / experiment / name / "run=0.json", summary_only())
    run = load_foreign(tmp_path / "results")
    assert [cell.name for cell in run.cells] == ["a=1-b=2-run0", "a=1-b=2-2-run0"]


def test_a_saved_sweep_opens_again(tmp_path: Path) -> None:
    source = sweep(tmp_path / "in")
    out = import_to(source, tmp_path / "run")
    read, opened = load_foreign(source), open_any(out)
    assert [c.summary for c in opened.cells] == [c.summary for c in read.cells]
    assert [c.requests for c in opened.cells] == [c.requests for c in read.cells]
    assert {c.status for c in opened.cells} == {"done", "failed"}


def test_sglangs_jsonl_is_a_cell_a_line(tmp_path: Path) -> None:
    rows = []
    for concurrency in (1, 8):
        raw = summary_only(
            backend="sglang", max_concurrency=concurrency, mean_e2e_latency_ms=9.0
        )
        raw.pop("failed")
        raw.pop("num_prompts")
        rows.append(json.dumps(raw))
    path = tmp_path / "out.jsonl"
    path.write_text("\n".join(rows) + "\n")
    run = load_foreign(path)
    assert run.engine == "sglang"
    assert [c.workload.concurrency for c in run.cells] == [1, 8]
    assert all(
        c.summary is not None and c.summary.stats["e2el_ms"]["mean"] == 9.0
        for c in run.cells
    )
    assert "failed-requests" in {finding.code for finding in run.findings}


def test_answers_of_another_length_are_no_repeats(tmp_path: Path) -> None:
    """One folder of results at one concurrency and two lengths of answers."""
    for length in (16, 128):
        for number in (0, 1):
            raw = summary_only(total_output_tokens=length * summary_only()["completed"])
            write(tmp_path / f"o{length}-{number}.json", raw)
    cells = load_foreign(tmp_path).cells
    asked = [(c.workload.output_tokens, c.repeat) for c in cells]
    assert asked == [(16, 0), (16, 1), (128, 0), (128, 1)]


def test_a_result_with_requests_and_one_without_are_one_point(tmp_path: Path) -> None:
    write(tmp_path / "a.json", summary_only())
    (tmp_path / "b.json").write_text(RESULT.read_text())
    a, b = load_foreign(tmp_path).cells
    assert a.workload == b.workload
    assert (a.workload.input_tokens, a.workload.output_tokens) == (64, 64)
    assert (a.repeat, b.repeat) == (0, 1)


def test_lengths_that_differ_from_request_to_request_are_not_one(
    tmp_path: Path,
) -> None:
    raw = json.loads(RESULT.read_text())
    raw["output_lens"][0] -= 1
    raw["itls"][0].pop()
    write(tmp_path / "a.json", raw)
    (cell,) = load_foreign(tmp_path).cells
    assert cell.workload.output_tokens is None


def test_the_tenth_file_of_a_folder_comes_after_the_ninth(tmp_path: Path) -> None:
    """A first repeat is judged as the first: names must not shuffle them."""
    for number in (1, 2, 10):
        write(tmp_path / f"run-{number}.json", summary_only(duration=10.0 + number))
    cells = load_foreign(tmp_path).cells
    assert [c.name for c in cells] == ["run-1", "run-2", "run-10"]
    assert [c.repeat for c in cells] == [0, 1, 2]
