"""`stepscope run` on the real embedded engine: measured, stopped, killed, resumed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock

pytest.importorskip("xllamacpp", reason="the embedded engine is not installed")

RECIPE = """
name = "small"
engine = "embedded"
[baseline.flags]
slots = 2
slot-context = 128
[workload]
input_tokens = 8
output_tokens = 16
concurrency = [1, 2]
n_prompts = {n_prompts}
[warm_up]
concurrency = 2
blocks = 1
[telemetry]
interval_s = 0.02
metrics_interval_s = 0.2
"""
STEPSCOPE = (sys.executable, "-m", "stepscope")
_PATIENCE_NS = 120_000_000_000


def wait_for(check: Callable[[], bool]) -> None:
    clock = SystemClock()
    until = clock.now_ns() + _PATIENCE_NS
    while not check():
        assert clock.now_ns() < until, "it did not happen"
        clock.sleep_until(clock.now_ns() + 20_000_000)


def stepscope(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*STEPSCOPE, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def written(folder: Path, n_prompts: int) -> Path:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(n_prompts=n_prompts))
    return path


def begun(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a run whose cells never end and return once it measures the first."""
    written(folder, n_prompts=100_000)
    with (folder / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [*STEPSCOPE, "run", "recipe.toml", "--out", "run"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )
    journal = folder / "run" / "cells" / "baseline-c1-r0" / "requests-0.journal"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    return process


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return what a run started: they all have its folder as working directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != "zombie":
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_a_run_is_measured_explained_and_leaves_nothing_behind(tmp_path: Path) -> None:
    written(tmp_path, n_prompts=4)
    done = stepscope("run", "recipe.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    assert run.complete
    assert {c.name: c.status for c in run.cells} == {
        "baseline-warm0": "done",
        "baseline-c1-r0": "done",
        "baseline-c2-r0": "done",
    }
    assert all(r.output_tokens == 16 for c in run.cells for r in c.requests)
    assert run.samples.host
    assert run.samples.metrics
    assert "server" in {s.role for s in run.samples.process}
    assert run.launches[0].log is not None
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert "report.html" in done.stdout
    assert "\x1b" not in done.stderr
    assert "[cell 3/3] baseline-c2-r0" in done.stderr
    assert processes_of(tmp_path) == []


def test_ctrl_c_keeps_what_there_is_and_resume_goes_on(tmp_path: Path) -> None:
    process = begun(tmp_path)
    # A cell of some answers may be over before a busy machine samples its client.
    samples = tmp_path / "run" / "samples" / "samples-0.journal"
    wait_for(lambda: b"client" in samples.read_bytes())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    wait_for(lambda: processes_of(tmp_path) == [])
    said = (tmp_path / "err.txt").read_text()
    assert "--resume" in said
    assert "Traceback" not in said
    run = open_run(tmp_path / "run")
    assert run.complete is False
    assert {"server", "client"} <= {s.role for s in run.samples.process}
    cell = next(c for c in run.cells if c.name == "baseline-c1-r0")
    assert cell.status == "interrupted"
    assert cell.requests
    assert any(r.ok for r in cell.requests)
    written(tmp_path, n_prompts=4)
    refused = stepscope("run", "recipe.toml", "--out", "run", "--resume", cwd=tmp_path)
    assert refused.returncode == 2
    assert "became `n_prompts = 4`" in refused.stderr


def test_kill_nine_leaves_no_server_and_a_run_that_can_be_resumed(
    tmp_path: Path,
) -> None:
    process = begun(tmp_path)
    process.kill()
    process.wait()
    wait_for(lambda: processes_of(tmp_path) == [])
    killed = open_run(tmp_path / "run")
    assert {c.name: c.status for c in killed.cells} == {
        "baseline-warm0": "done",
        "baseline-c1-r0": "interrupted",
    }
    assert killed.complete is False
    written(tmp_path, n_prompts=100_000)
    done = subprocess.Popen(
        [*STEPSCOPE, "run", "recipe.toml", "--out", "run", "--resume"],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    warm = tmp_path / "run" / "cells" / "baseline-warm0-resume1" / "requests.parquet"
    wait_for(warm.exists)
    done.send_signal(signal.SIGTERM)
    assert done.wait(60) == 130
    launches = [x.name for x in open_run(tmp_path / "run").launches]
    assert launches == ["baseline-l0", "baseline-l0-resume1"]


def test_a_dry_run_shows_everything_and_touches_nothing(tmp_path: Path) -> None:
    written(tmp_path, n_prompts=4)
    shown = stepscope("run", "recipe.toml", "--dry-run", cwd=tmp_path)
    assert shown.returncode == 0
    assert "stepscope.engines.embedded" in shown.stdout
    assert "--slots 2" in shown.stdout
    assert "baseline-c2-r0: concurrency 2" in shown.stdout
    assert "minutes" in shown.stdout
    assert [x.name for x in tmp_path.iterdir()] == ["recipe.toml"]


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    written(tmp_path, n_prompts=4)
    refused = stepscope("run", "recipe.toml", "--out", ".", cwd=tmp_path)
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr


def test_a_boot_that_fails_is_explained_and_exits_3(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    text = RECIPE.format(n_prompts=4).replace(
        'engine = "embedded"', 'engine = "embedded"\nmodel = "bad.gguf"'
    )
    (tmp_path / "recipe.toml").write_text(text)
    failed = stepscope("run", "recipe.toml", "--out", "run", cwd=tmp_path)
    assert failed.returncode == 3
    assert "nothing was measured" in failed.stderr
    assert "Traceback" not in failed.stderr
    run = open_run(tmp_path / "run")
    assert run.launches[0].ready is False
    assert {c.status for c in run.cells} == {"failed"}


def test_the_doctor_tells_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    told = stepscope("doctor", "--json", cwd=tmp_path)
    assert told.returncode == 0
    document = json.loads(told.stdout)
    lines = {line["name"]: line for line in document["lines"]}
    assert lines["engine embedded"]["state"] == "ok"
    assert lines["kernel receive stamps"]["state"] in ("ok", "limited")
    assert all(line["get"] for line in lines.values() if line["state"] == "missing")
    assert list(tmp_path.iterdir()) == []
    assert stepscope("doctor", cwd=tmp_path).returncode == 0
