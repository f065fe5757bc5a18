import errno
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.archive.journal import Journal, JournalFile, cut_torn_tail
from stepscope.archive.reader import open_run
from stepscope.archive.writer import RunWriter
from stepscope.run.frames import frame
from stepscope.run.samples import GpuSample

WRITING = Path(__file__).with_name("writing.py")


def load_writing() -> Any:
    spec = importlib.util.spec_from_file_location("archive_writing_kill", WRITING)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


writing = load_writing()


@pytest.mark.parametrize("seed", range(8))
def test_after_kill_9_everything_that_was_taken_opens(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "r"
    lines_before_kill = random.Random(seed).randrange(1, 400)
    with subprocess.Popen(
        [sys.executable, str(WRITING), str(path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        taken = [process.stdout.readline() for _ in range(lines_before_kill)]
        os.kill(process.pid, signal.SIGKILL)
        taken += process.stdout.readlines()
    run = open_run(path)
    assert not run.complete
    said: dict[int, set[int]] = {}
    for line in taken:
        words = line.split()
        if line.startswith(b"request") and line.endswith(b"\n"):
            said.setdefault(int(words[1]), set()).add(int(words[2]))
    for number, indices in said.items():
        cell = next(c for c in run.cells if c.name == f"a-c{number}-r0")
        kept = {request.index for request in cell.requests}
        # One more may have been written whose line was not.
        assert indices <= kept <= indices | {max(indices) + 1}
        for request in cell.requests:
            assert request == writing.request(request.index, request.index % 2)
    n_finished = sum(line.startswith(b"cell") for line in taken)
    done = {cell.name for cell in run.cells if cell.status == "done"}
    assert len(done) >= n_finished
    n_taken = sum(len(indices) for indices in said.values())
    # Samples of the last half second of the timeline may be lost, five of them.
    assert len(run.samples.gpu) >= n_taken - 7
    assert len(run.samples.metrics) >= n_taken - 1

    again = RunWriter.reopen(path)
    assert again.finished_cells() <= done
    writing.write_cell(again, "a-c900-r0", 3)
    again.close(complete=True)
    reopened = open_run(path)
    assert reopened.complete
    assert len(reopened.samples.gpu) == len(run.samples.gpu)


def test_a_journal_cut_at_any_byte_gives_the_whole_frames_before_it(
    tmp_path: Path,
) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    writer.put_cell(writing.cell("a-c1-r0"))
    path = writer.cell_dir("a-c1-r0") / "requests-0.journal"
    rows = [writing.request(index) for index in range(3)]
    frames = [writing.framed(row) for row in rows]
    ends = [sum(map(len, frames[: n + 1])) for n in range(3)]
    data = b"".join(frames)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        run = open_run(tmp_path / "r")
        n_whole = sum(end <= cut for end in ends)
        assert run.cells[0].requests == tuple(rows[:n_whole])
        torn = cut not in (0, *ends)
        assert [f.code for f in run.findings] == [*["journal-cut"] * torn, "not-closed"]


def test_the_record_journal_cut_at_any_byte_opens_and_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "r"
    writer = RunWriter.create(source, writing.RUN)
    writing.put_everything(writer)
    writer.put_cell(writing.cell("a-c1-r0"))
    data = (source / "records.journal").read_bytes()
    for cut in range(0, len(data) + 1, 3):
        (source / "records.journal").write_bytes(data[:cut])
        open_run(source)
        copy = tmp_path / f"c{cut}"
        shutil.copytree(source, copy)
        again = RunWriter.reopen(copy)
        again.put_cell(writing.cell("a-c9-r0"))
        assert "a-c9-r0" in {cell.name for cell in open_run(copy).cells}


def test_a_kill_between_parquet_and_removal_counts_nothing_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r"
    writer = RunWriter.create(path, writing.RUN)
    rows = writing.write_cell(writer, "a-c1-r0", 5)
    folder = path / "cells" / "a-c1-r0"
    (folder / "requests-0.journal").write_bytes(b"".join(map(writing.framed, rows)))
    (folder / "requests.parquet.part").write_bytes(b"half")
    writer.put_sample(GpuSample(at_ns=1, gpu=0))
    writer.flush()
    journal = (path / "samples" / "samples-0.journal").read_bytes()
    assert open_run(path).cells[0].requests == rows
    writer.close(complete=True)
    assert not (folder / "requests-0.journal").exists()
    (path / "manifest.json").unlink()
    (path / "samples" / "samples-0.journal").write_bytes(journal)
    run = open_run(path)
    assert run.cells[0].requests == rows
    assert len(run.samples.gpu) == 1
    assert not run.complete
    (finding,) = run.findings
    assert (finding.code, finding.severity) == ("not-closed", "warning")
    assert "no manifest" in finding.message
    writing.RunWriter.reopen(path).close(complete=True)
    assert open_run(path).findings == ()


def test_empty_journals_are_no_requests(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    writer.put_cell(writing.cell("a-c1-r0"))
    (writer.cell_dir("a-c1-r0") / "requests-0.journal").touch()
    assert open_run(tmp_path / "r").cells[0].requests == ()
    writer.close(complete=True)
    run = open_run(tmp_path / "r")
    assert run.cells[0].requests == ()
    assert run.findings == ()


def test_requests_without_a_record_of_their_cell_are_kept(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    row = writing.request(0)
    (writer.cell_dir("a-c8-r1") / "requests-0.journal").write_bytes(writing.framed(row))
    run = open_run(tmp_path / "r")
    (cell,) = run.cells
    assert cell.requests == (row,)
    assert (cell.configuration, cell.workload.concurrency, cell.repeat) == ("a", 8, 1)
    assert cell.status == "interrupted"
    assert [f.code for f in run.findings] == ["interrupted-cell", "not-closed"]


def test_damage_in_mid_journal_is_a_warning_with_what_was_lost(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    writer.put_cell(writing.cell("a-c1-r0"))
    frames = [bytearray(writing.framed(writing.request(n))) for n in range(3)]
    frames[1][20] ^= 1
    (writer.cell_dir("a-c1-r0") / "requests-0.journal").write_bytes(b"".join(frames))
    run = open_run(tmp_path / "r")
    assert len(run.cells[0].requests) == 1
    (finding, _) = run.findings
    assert (finding.code, finding.severity) == ("journal-cut", "warning")
    assert str(len(frames[1]) + len(frames[2])) in finding.message


def test_zeros_that_a_power_cut_left_end_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(frame(b"one") + bytes(4096))
    file = JournalFile(path)
    assert list(file.payloads()) == [b"one"]
    assert file.tail().n_bytes == 4096
    cut_torn_tail(path)
    assert path.read_bytes() == frame(b"one")


def test_a_full_disk_is_an_error_with_the_path(tmp_path: Path) -> None:
    link = tmp_path / "full.journal"
    link.symlink_to("/dev/full")
    journal = Journal(link)
    with pytest.raises(OSError, match=r"full\.journal") as error:
        journal.append(frame(b"x"))
    assert error.value.errno == errno.ENOSPC


def test_more_requests_than_a_row_group_come_out_in_order_of_sending(
    tmp_path: Path,
) -> None:
    writer = RunWriter.create(tmp_path / "r", writing.RUN)
    rows = writing.write_cell(writer, "a-c1-r0", 4100)
    assert open_run(tmp_path / "r").cells[0].requests == rows


@settings(max_examples=60)
@given(
    bodies=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    tail=st.binary(max_size=30),
)
def test_any_bytes_behind_good_frames_cost_none_of_them(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("j") / "j"
    data = b"".join(map(frame, bodies))
    path.write_bytes(data + tail)
    found = list(JournalFile(path).payloads())
    assert found[: len(bodies)] == bodies
    cut_torn_tail(path)
    assert list(JournalFile(path).payloads()) == found
    assert JournalFile(path).tail().n_bytes == 0
