import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.archive.cells import requests_of
from stepscope.archive.manifest import verify
from stepscope.archive.reader import open_run
from stepscope.archive.writer import RunWriter
from stepscope.errors import ArchiveError, RecipeError
from stepscope.run.run import Launch

GOLDEN = Path(__file__).parents[1] / "data" / "runs" / "format1"


def load_writing() -> Any:
    path = Path(__file__).with_name("writing.py")
    spec = importlib.util.spec_from_file_location("archive_writing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["archive_writing"] = module
    spec.loader.exec_module(module)
    return module


writing = load_writing()


def finished(path: Path) -> RunWriter:
    writer = RunWriter.create(path, writing.RUN)
    writing.put_everything(writer)
    writing.write_cell(writer, "a-c1-r0", 9)
    writer.close(complete=True)
    return writer


def test_what_was_put_is_what_is_opened(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    writing.put_everything(writer)
    rows = writing.write_cell(writer, "a-c1-r0", 9)
    running = open_run(tmp_path / "r")
    writer.close(complete=True)
    run = open_run(tmp_path / "r")
    assert not running.complete
    assert run.complete
    assert run.cells[0].requests == rows == running.cells[0].requests
    assert run.cells[0].status == "done"
    assert (run.recipe_text, run.model_config) == ('name = "r"\n', "{}")
    assert run.samples.gpu[0].memory_used_bytes == 2**40
    assert run.samples.host[0].cpu_busy_ns == 9
    assert run.samples.process[0].pid == 4
    assert run.samples.metrics[0].values[0].labels == {"b": "c"}
    assert run.launches[0].log is not None
    assert run.launches[0].log_path == "launches/a-l0/server.log"
    assert [finding.code for finding in run.findings] == ["no-repeats"]


def test_the_golden_of_format_1_opens(tmp_path: Path) -> None:
    run = open_run(GOLDEN)
    assert run.complete
    assert [(c.name, len(c.requests)) for c in run.cells] == [("c1_0", 2), ("c2_0", 4)]
    assert sum(r.output_tokens or 0 for c in run.cells for r in c.requests) == 6 * 256
    assert (len(run.samples.gpu), len(run.samples.host)) == (56, 56)
    assert (len(run.samples.process), len(run.samples.metrics)) == (1, 1)
    assert [f.code for f in run.findings] == ["no-repeats"]
    launch = run.launches[0]
    assert launch.ready
    assert launch.log is not None
    assert launch.log.version == "0.26.0"
    assert next(e.at_ns for e in launch.log.events) == 1796005157_000_000_000
    before, after = run.cells[0].metrics_before, run.cells[0].metrics_after
    assert before is not None
    assert after is not None
    assert len(before.values) == len(after.values) > 400


def test_every_file_is_in_the_manifest_with_its_hash(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    on_disk = {
        path.relative_to(tmp_path / "r").as_posix()
        for path in (tmp_path / "r").rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert set(manifest["files"]) == on_disk
    assert manifest["format"] == 1
    for name, entry in manifest["files"].items():
        data = (tmp_path / "r" / name).read_bytes()
        assert entry == {
            "n_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    assert verify(tmp_path / "r") == len(on_disk)


def test_a_flipped_bit_in_any_file_is_told_by_the_files_name(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    files = [p for p in (tmp_path / "r").rglob("*") if p.is_file()]
    checked = 0
    for path in files:
        data = path.read_bytes()
        if not data or path.name == "manifest.json":
            continue
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        with pytest.raises(ArchiveError) as error:
            open_run(tmp_path / "r")
        assert path.name in str(error.value)
        assert error.value.exit_code == 4
        path.write_bytes(data)
        checked += 1
    assert checked >= 7
    assert open_run(tmp_path / "r").complete


def test_a_missing_file_is_told_by_its_name(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    (tmp_path / "r" / "cells" / "a-c1-r0" / "requests.parquet").unlink()
    with pytest.raises(ArchiveError, match=r"requests\.parquet: is missing"):
        open_run(tmp_path / "r")


def test_no_damage_in_a_column_passes_for_other_numbers(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    folder = tmp_path / "r" / "cells" / "a-c1-r0"
    whole = tuple(requests_of(folder))
    path = folder / "requests.parquet"
    data = path.read_bytes()
    n_found = 0
    for at in range(0, len(data), 11):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        try:
            assert tuple(requests_of(folder)) == whole, at
        except ArchiveError as error:
            assert path.name in str(error)  # noqa: PT017 - most bytes, not all
            n_found += 1
    assert n_found > 100


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    header = tmp_path / "r" / "run.json"
    header.write_text(header.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ArchiveError, match=r"format 2; .*up to format 1"):
        open_run(tmp_path / "r")


def test_what_is_no_run_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is no run directory"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_bytes(b"")
    with pytest.raises(ArchiveError, match=r"run\.json: is damaged"):
        open_run(tmp_path)


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    with pytest.raises(RecipeError, match="already holds a run"):
        RunWriter.create(tmp_path / "r", writing.RUN)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "note").touch()
    with pytest.raises(RecipeError, match="is not empty"):
        RunWriter.create(tmp_path / "x", writing.RUN)


def test_names_of_any_kind_become_folders_below_the_run(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    names = ["../up", ".hidden", "a/b", "a b%2F", "ü", "x" * 60]
    for name in names:
        writing.write_cell(writer, name, 1)
    writer.close(complete=True)
    run = open_run(tmp_path / "r")
    assert [cell.name for cell in run.cells] == names
    assert all(len(cell.requests) == 1 for cell in run.cells)
    assert not (tmp_path / "up").exists()


def test_secrets_never_reach_the_disk(tmp_path: Path) -> None:
    secret = "abc-DEF-0123456789"
    run = msgspec.structs.replace(
        writing.RUN,
        recipe_text=f'name = "r"\n[environment]\nHF_TOKEN = "{secret}"\n',
    )
    writer = RunWriter.create(tmp_path / "r", run)
    writer.put_launch(
        Launch(
            name="a-l0",
            configuration="a",
            command=("serve", "--api-key", secret, f"--admin-api-key={secret}", "-x"),
            environment={"HF_TOKEN": secret, "AWS_SECRET_ACCESS_KEY": secret, "A": "b"},
            base_url=f"http://me:{secret}@host:1",
        )
    )
    writer.close(complete=True)
    for path in (tmp_path / "r").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    launch = open_run(tmp_path / "r").launches[0]
    assert launch.command == (
        "serve",
        "--api-key",
        "<removed>",
        "--admin-api-key=<removed>",
        "-x",
    )
    assert launch.environment["A"] == "b"


def test_going_on_keeps_finished_cells_and_sets_interrupted_ones_aside(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r"
    writer = RunWriter.create(path, writing.RUN)
    rows = writing.write_cell(writer, "a-c1-r0", 4)
    writer.put_cell(writing.cell("a-c2-r0"))
    journal = writer.cell_dir("a-c2-r0") / "requests-0.journal"
    journal.write_bytes(writing.framed(writing.request(0)))
    writer.close(complete=False)
    assert not open_run(path).complete

    again = RunWriter.reopen(path)
    assert again.finished_cells() == {"a-c1-r0"}
    assert len(open_run(path).cells[1].requests) == 1
    fresh = writing.write_cell(again, "a-c2-r0", 6)
    again.close(complete=True)
    run = open_run(path)
    assert run.complete
    assert [cell.requests for cell in run.cells] == [rows, fresh]
    assert [p.name for p in (path / "set-aside").iterdir()] == ["a-c2-r0.0"]
    assert RunWriter.reopen(path).finished_cells() == {"a-c1-r0", "a-c2-r0"}


def test_samples_of_two_starts_are_one_series(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for _ in range(2):
        writer = (
            RunWriter.reopen(path)
            if path.exists()
            else RunWriter.create(path, writing.RUN)
        )
        writing.put_everything(writer)
        writer.close(complete=True)
    samples = open_run(path).samples
    assert [s.at_ns for s in samples.gpu] == [1, 1]
    assert len(samples.metrics) == len(samples.process) == 2


def test_a_finished_cell_that_begins_anew_keeps_only_its_new_requests(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r"
    writer = RunWriter.create(path, writing.RUN)
    writing.write_cell(writer, "a-warm0", 4)
    kept = writing.write_cell(writer, "a-c1-r0", 3)
    writer.close(complete=False)

    again = RunWriter.reopen(path)
    (again.cell_dir("a-c1-r0") / "probe.raw").write_bytes(b"x")
    fresh = writing.write_cell(again, "a-warm0", 6)
    again.close(complete=True)
    run = open_run(path)
    assert [cell.requests for cell in run.cells] == [fresh, kept]
    assert [p.name for p in (path / "set-aside").iterdir()] == [
        "a-warm0-requests.parquet.0"
    ]
