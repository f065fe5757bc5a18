"""What becomes of a recording whose nsys fails, without a server and its load."""

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import cast

import pytest
from tests.session.scripted_session import Notes

from stepscope.clock import SystemClock
from stepscope.engines.catalog import ENGINES
from stepscope.engines.nsys import NsysOrder
from stepscope.recipe.loader import load_recipe
from stepscope.session.book import Book
from stepscope.session.context import Context
from stepscope.session.halt import Halt
from stepscope.session.phases.nsyssecrets import secrets_of
from stepscope.session.phases.switches import NsysSwitch
from stepscope.session.phases.tracefiles import Written
from stepscope.session.site import LocalSite, Watcher
from stepscope.session.tool import said

FAKE = Path(__file__).parent / "fake_nsys.py"
RECIPE = """
name = "r"
engine = "embedded"
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [2]
[capture]
tool = "nsys"
stop_timeout_s = {timeout}
"""


class Bench:
    """An nsys of its own on PATH, and a session of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch, self.halt = folder, patch, Halt()
        for name in secrets_of(os.environ, None):
            patch.delenv(name)
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.order = NsysOrder(
            session="s", scratch=str(self.scratch), server_tmp=str(folder)
        )
        program = folder / "bin" / "nsys"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        program.chmod(0o755)
        patch.setenv("PATH", str(program.parent), prepend=":")
        patch.setenv("FAKE_NSYS_EXPORT", str(folder / "export"))

    def switch(self, mode: str, *, timeout_s: int = 60) -> NsysSwitch:
        self._patch.setenv("FAKE_NSYS", mode)
        clock, text = SystemClock(), RECIPE.format(timeout=timeout_s)
        context = Context(
            recipe=load_recipe(text, "r.toml"),
            engine=ENGINES["embedded"],
            model_config=None,
            port=None,
            site=LocalSite(clock, self.halt, None),
            # A switch neither samples nor writes into the run.
            watcher=cast("Watcher", None),
            book=cast("Book", None),
            clock=clock,
            observer=Notes([]),
            halt=self.halt,
        )
        return NsysSwitch(context, self.order, self.folder / "nsys.log")

    def recorded(self, mode: str) -> Written:
        """Record nothing, and return what came of it."""
        switch = self.switch(mode)
        assert switch.start() is None
        assert switch.stop() is None
        return switch.written(1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a session in which nothing was recorded."""
    return Bench(tmp_path, monkeypatch)


def test_a_start_that_fails_is_told_with_the_last_line_that_nsys_printed(
    bench: Bench,
) -> None:
    why = "nsys start: exit code 1: nsys start fails as it was told to"
    assert bench.switch("start").start() == why


def test_what_an_earlier_recording_left_is_not_taken_for_the_new_one(
    bench: Bench,
) -> None:
    for suffix in ("nsys-rep", "qdstrm", "sqlite"):
        (bench.scratch / f"timeline.{suffix}").write_text("old")
    found = bench.recorded("silent")
    assert found.why == "nsys wrote no report: it says nothing"
    assert (found.traces, found.others) == ((), ())


def test_a_report_that_takes_too_long_is_given_up(bench: Bench) -> None:
    switch = bench.switch("slow", timeout_s=1)
    assert switch.stop() == "nsys stop: not done after 1 s"


def test_nsys_is_ended_when_a_person_asks_to_stop(bench: Bench) -> None:
    switch = bench.switch("slow")
    bench.halt.ask()
    assert switch.stop() == "nsys stop: the run was stopped"


def test_a_recording_is_cancelled_even_then(bench: Bench) -> None:
    bench.halt.ask()
    bench.switch("cancel").cancel()
    assert "cancel fails as it was told to" in said(bench.folder / "nsys.log")


def test_an_export_that_is_no_database_is_told_and_the_report_kept(
    bench: Bench,
) -> None:
    (bench.folder / "export").write_text("no database")
    found = bench.recorded("")
    assert found.why == "nsys export wrote no readable SQLite"
    assert [p.name for p in found.others] == ["timeline.nsys-rep"]


def test_a_raw_stream_is_kept_where_nothing_can_read_it_here(bench: Bench) -> None:
    found = bench.recorded("raw")
    why = "nsys left a raw stream only: QdstrmImporter is not beside nsys"
    assert found.why == why
    assert "QdstrmImporter -i" in (found.hint or "")
    assert [p.read_text() for p in found.others] == ["a stream"]


def importer(bench: Bench, script: str) -> None:
    program = bench.folder / "host-linux-x64" / "QdstrmImporter"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_raw_stream_is_turned_into_a_report_by_the_importer_beside_nsys(
    bench: Bench,
) -> None:
    importer(bench, 'echo "made of $2" > "${2%qdstrm}nsys-rep"')
    (bench.folder / "export").write_text("no database")
    found = bench.recorded("raw")
    (report,) = found.others
    assert report.read_text() == f"made of {bench.scratch}/timeline.qdstrm\n"
    assert not (bench.scratch / "timeline.qdstrm").exists()


def test_an_importer_that_fails_is_told(bench: Bench) -> None:
    importer(bench, "echo a library is missing >&2; exit 127")
    found = bench.recorded("raw")
    assert (found.why or "").endswith("exit code 127: a library is missing")
    assert [p.name for p in found.others] == ["timeline.qdstrm"]


def export_with(path: Path, environment: str) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    db.execute("INSERT INTO StringIds VALUES (1, ?)", (environment,))
    db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (deviceId INTEGER)")
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0)")
    db.commit()
    db.close()


def test_an_export_is_kept_without_its_secrets_and_the_report_is_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "not-a-real-one")
    export_with(bench.folder / "export", "A=1\0HF_TOKEN=not-a-real-one\0B=2")
    found = bench.recorded("")
    ((_, sqlite),) = found.traces
    assert b"not-a-real-one" not in sqlite.read_bytes()
    assert (found.why, found.others) == (None, ())
    note = "nsys' report is not kept: the values of HF_TOKEN are in it"
    assert found.note == note


def test_what_can_not_be_looked_into_is_not_kept_where_it_may_hold_a_secret(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "not-a-real-one")
    (bench.folder / "export").write_text("no database")
    for mode in ("", "export", "raw"):
        found = bench.recorded(mode)
        assert "it may hold the values of HF_TOKEN" in (found.why or "")
        assert (found.traces, found.others) == ((), ())


def test_of_a_progress_bar_the_last_state_is_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n[1%  ]\r[50% ]\r[100%]  done \r\n\n")
    assert said(log) == "[100%] done"
    assert said(log, log.stat().st_size) == "it says nothing"
    log.write_text(json.dumps("x" * 1000))
    assert len(said(log)) == 300
