"""Kernel timelines in a run directory."""

from pathlib import Path

import pytest

from stepscope.archive.reader import open_run
from stepscope.archive.strays import stray_cell
from stepscope.archive.writer import RunWriter
from stepscope.run.run import Launch, Run, Timeline, TraceRef


def test_a_timeline_is_found_wherever_the_run_lies(tmp_path: Path) -> None:
    run = Run(id="r", engine="vllm", timeline=Timeline(kind="monotonic"))
    writer = RunWriter.create(tmp_path / "a", run)
    file = writer.trace_dir("x-c8-trace") / "rank0.json"
    file.write_text("{}")
    path = file.relative_to(writer.path).as_posix()
    writer.put_trace(TraceRef(path=path, concurrency=8))
    writer.put_trace(TraceRef(path=path, concurrency=8, rank=0))
    writer.close(complete=True)
    moved = (tmp_path / "a").rename(tmp_path / "b")
    (trace,) = open_run(moved).traces
    assert trace.rank == 0, "of several with one path the last counts"
    assert Path(trace.path).read_text() == "{}"
    assert path in (moved / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("name", "capture"),
    [("a-c8-trace", "traced"), ("a-c8-untraced", "untraced")],
)
def test_a_killed_capture_is_told_by_its_name(name: str, capture: str) -> None:
    launches = (
        Launch(name="a-l0", configuration="a"),
        Launch(name="a-trace-l0", configuration="a"),
    )
    cell, _ = stray_cell(name, (), launches)
    assert (cell.configuration, cell.workload.concurrency) == ("a", 8)
    assert (cell.capture, cell.warm_up) == (capture, True)
    assert cell.launch == "a-trace-l0"
