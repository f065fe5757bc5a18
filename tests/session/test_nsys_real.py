"""The real nsys on an engine without a GPU: it records, and nothing of it is left."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.session.scripted_session import Notes

from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.recipe.expand import expand, select
from stepscope.recipe.loader import load_recipe
from stepscope.run.run import Run
from stepscope.session.execute import Order, execute
from stepscope.session.halt import Halt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("nsys") is None, reason="NVIDIA Nsight Systems is not installed"
    ),
]
RECIPE = """
name = "recorded"
engine = "embedded"
[workload]
input_tokens = 8
output_tokens = 100
concurrency = [2]
waves = 1
[warm_up]
blocks = 0
[capture]
tool = "nsys"
seconds = {seconds}
"""


def scratches(tmp: Path) -> list[Path]:
    return [p for p in tmp.iterdir() if p.name.startswith("stepscope-nsys-")]


def no_work(run: Run) -> str:
    (found,) = [f for f in run.findings if f.code.startswith("trace-")]
    assert found.code == "trace-not-taken"
    return found.message


def test_a_server_that_uses_no_gpu_leaves_an_honest_reason_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp))
    monkeypatch.setenv("HF_TOKEN", "not-a-real-one")
    text = RECIPE.format(seconds=0.3)
    plan = select(expand(load_recipe(text, "r.toml")), "*-trace-l0")
    order = Order(plan, text, tmp_path / "run")
    outcome = execute(order, clock=SystemClock(), observer=Notes([]), halt=Halt())
    run = open_run(tmp_path / "run")
    assert "the report holds no GPU work" in no_work(run)
    assert run.traces == ()
    assert {c.status for c in run.cells} == {"done"}
    (launch,) = run.launches
    assert launch.ready
    assert not outcome.failures
    (note,) = [f for f in run.findings if f.code == "report-not-kept"]
    assert "HF_TOKEN" in note.message, "nsys writes the environment of a server"
    kept = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert not [p for p in kept if b"not-a-real-one" in p.read_bytes()]
    assert not [p for p in kept if p.name.startswith("timeline")]
    assert scratches(tmp) == []
    assert not [f for f in run.findings if f.code == "orphan-process"]


def test_nothing_outlives_a_stepscope_that_was_killed_while_it_recorded(
    tmp_path: Path,
) -> None:
    tmp, recipe = tmp_path / "tmp", tmp_path / "r.toml"
    tmp.mkdir()
    recipe.write_text(RECIPE.format(seconds=60))
    command = [sys.executable, "-m", "stepscope", "run", str(recipe)]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        env={**os.environ, "TMPDIR": str(tmp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("nsys start" in line for line in process.stdout)
        (scratch,) = scratches(tmp)
        below = psutil.Process(process.pid).children(recursive=True)
        names = {p.name() for p in below}
        assert any("nsys" in name for name in names), names
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert alive == []
    marked = [
        p for p in psutil.process_iter(["cmdline"])
        if any(scratch.name[-12:] in word for word in p.info["cmdline"] or ())
    ]  # fmt: skip
    assert marked == []
    assert not scratch.exists()
    run = open_run(tmp_path / "run")
    statuses = {c.name: c.status for c in run.cells}
    assert statuses.pop("baseline-c2-trace") == "interrupted"
    assert set(statuses) == {"baseline-c2-r0", "baseline-c2-untraced"}
    assert set(statuses.values()) == {"done"}
