"""Timelines that nsys takes: what is kept, and what becomes of a failure.

A server and an nsys of the tests' own, so that what only a GPU gives and what only
breaks elsewhere can be had; the real nsys is run in ``test_nsys_real.py``.
"""

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.session.scripted_session import Impatient, Notes

from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.recipe.expand import expand, select
from stepscope.recipe.loader import load_recipe
from stepscope.run.run import Run
from stepscope.session.execute import Order, Outcome, execute
from stepscope.session.halt import Halt
from stepscope.session.phases.nsyssecrets import secrets_of
from stepscope.timeline.load import load_trace

HERE = Path(__file__).parent
RECIPE = """
name = "traced"
engine = "vllm"
model = "m"
executable = [{python}, {fake}]
[baseline.flags]
tensor-parallel-size = {tp}
[baseline.environment]
FAKE_EVENTS = {events}
[workload]
input_tokens = 8
output_tokens = 10
concurrency = [2]
[warm_up]
blocks = 0
[capture]
tool = "nsys"
concurrency = [2]
seconds = 0.2
stop_timeout_s = 20
"""


def small_export(path: Path, n_gpus: int) -> Path:
    """Write an export with one kernel of a process of its own on each GPU."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER,"
            " deviceId INTEGER, streamId INTEGER, correlationId INTEGER,"
            " globalPid INTEGER, shortName INTEGER)"
        )
        db.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        for gpu in range(n_gpus):
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, ?, 7, 1, ?, 1)",
                (gpu, (gpu + 5) << 24),
            )
    db.close()
    return path


class Bench:
    """A folder with an nsys of its own on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        for name in secrets_of(os.environ, None):
            monkeypatch.delenv(name)
        program = folder / "bin" / "nsys"
        program.parent.mkdir()
        fake = HERE / "fake_nsys.py"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        # Where Python looks for a folder for temporary files is remembered.
        monkeypatch.setattr("tempfile.tempdir", str(self.tmp))

    def order(self, tp: int = 1, *, only: str = "*", resume: bool = False) -> Order:
        text = RECIPE.format(
            python=json.dumps(sys.executable),
            fake=json.dumps(str(HERE / "fake_vllm.py")),
            events=json.dumps(str(self.folder / "events")),
            tp=tp,
        )
        out = self.folder / "run"
        plan = select(expand(load_recipe(text, "r.toml")), only)
        return Order(plan, text, out, resume=resume)

    def run(
        self, mode: str, order: Order, halt: Halt | None = None
    ) -> tuple[Run, Outcome]:
        """Run a recipe while nsys fails as ``mode`` says."""
        export = self.folder / "export.sqlite"
        if not export.exists():
            small_export(export, n_gpus=2)
        self._patch.setenv("FAKE_NSYS", mode)
        self._patch.setenv("FAKE_NSYS_EXPORT", str(export))
        observer = Notes([]) if halt is None else Impatient(halt, "nsys stop")
        outcome = execute(
            order, clock=SystemClock(), observer=observer, halt=halt or Halt()
        )
        assert list(self.tmp.iterdir()) == [], "a folder of nsys was left behind"
        return open_run(self.folder / "run"), outcome

    def traced(self, mode: str) -> Run:
        """Run the launch for timelines alone."""
        return self.run(mode, self.order(only="*-trace-l0"))[0]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a folder in which nothing has run."""
    return Bench(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return a run whose report shows two of the four GPUs that its server has."""
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(tmp_path_factory.mktemp("whole"), patch)
        run, outcome = bench.run("", bench.order(tp=4))
        assert not outcome.failures
        yield run


def test_one_file_with_all_ranks_is_kept_with_the_report_it_comes_from(
    whole: Run,
) -> None:
    (trace,) = whole.traces
    assert (trace.concurrency, trace.rank) == (2, None)
    assert (trace.cell, trace.launch) == ("baseline-c2-trace", "baseline-trace-l0")
    assert trace.path.endswith("traces/baseline-c2-trace/timeline.sqlite")
    report = Path(trace.path).with_suffix(".nsys-rep")
    assert report.read_text() == "a report"
    assert [t.rank for t in load_trace(Path(trace.path))] == [0, 1]


def test_ranks_that_are_not_in_the_report_are_missed(whole: Run) -> None:
    (found,) = [f for f in whole.findings if f.code.startswith("trace-")]
    assert (found.code, found.cell) == ("trace-incomplete", "baseline-c2-trace")
    assert "2 of 4 ranks are in it" in found.message


def test_no_measured_launch_is_under_nsys(whole: Run) -> None:
    under = {x.name: x.wrapper[:2] for x in whole.launches}
    assert under == {"baseline-l0": (), "baseline-trace-l0": ("nsys", "launch")}
    plain, traced = whole.launches
    assert traced.command[-4:] == plain.command[-4:]
    assert "--profiler-config" not in traced.command
    assert traced.environment["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in plain.environment
    cells = {c.name: c.capture for c in whole.cells if c.launch == traced.name}
    assert cells == {
        "baseline-c2-untraced": "untraced",
        "baseline-c2-trace": "traced",
    }


def test_a_recording_that_fails_fails_nothing_else(bench: Bench) -> None:
    run = bench.traced("export")
    assert run.traces == ()
    (found,) = [f for f in run.findings if f.code.startswith("trace-")]
    assert (found.code, found.cell) == ("trace-not-taken", "baseline-c2-trace")
    why = "nsys export: exit code 1: nsys export fails as it was told to"
    assert why in found.message
    assert {c.status for c in run.cells} == {"done"}
    assert run.complete
    folder = bench.folder / "run"
    logs = folder / "launches" / "baseline-trace-l0"
    assert "fails as it was told to" in (logs / "nsys.log").read_text()
    assert "fails" not in (logs / "server.log").read_text()
    kept = list((folder / "traces" / "baseline-c2-trace").iterdir())
    assert [p.name for p in kept] == ["timeline.nsys-rep"]


def test_a_launch_that_nsys_refuses_is_told_and_the_measured_cells_stay(
    bench: Bench,
) -> None:
    run, outcome = bench.run("launch", bench.order())
    statuses = {c.name: c.status for c in run.cells}
    assert statuses["baseline-c2-r0"] == "done"
    assert statuses["baseline-c2-trace"] == "failed"
    (failure,) = outcome.failures
    assert "nsys launch fails as it was told to" in failure
    assert outcome.n_measured == 1


def test_without_nsys_no_boot_is_paid_for_and_a_resumed_run_takes_the_timeline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(bench.folder / "empty"))
        run, outcome = bench.run("", bench.order())
    assert [x.name for x in run.launches] == ["baseline-l0"]
    (found,) = [f for f in run.findings if f.code == "trace-not-taken"]
    assert "baseline-trace-l0 is left out" in found.message
    assert "nsys is not on PATH" in found.message
    statuses = {c.name: (c.status, c.failure) for c in run.cells}
    assert statuses["baseline-c2-r0"][0] == "done"
    assert statuses["baseline-c2-trace"] == ("failed", "nsys is not on PATH")
    assert outcome.n_measured == 1
    again, _ = bench.run("", bench.order(resume=True))
    assert [t.cell for t in again.traces] == ["baseline-c2-trace"]
    assert [c.repeat for c in again.cells if not c.warm_up] == [0]


def test_nobody_waits_for_a_slow_report_after_ctrl_c_and_its_cell_is_not_done(
    bench: Bench,
) -> None:
    order = bench.order(only="*-trace-l0")
    run, _ = bench.run("slow", order, Halt())
    assert {c.name: c.status for c in run.cells} == {
        "baseline-c2-untraced": "done",
        "baseline-c2-trace": "interrupted",
    }
    (found,) = [f for f in run.findings if f.code == "trace-not-taken"]
    assert "the run was stopped" in found.message
