"""Logs of a gigabyte and more: bounded memory, and the same record as a small one."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.log.kinds import iterations, stats

from stepscope.parse.serverlog import LogReader

#: What a reader may hold at most, whatever the log's size: events up to their caps.
_MOST_MIB = 700


def _peak(command: list[str]) -> tuple[bytes, int]:
    """Run a command; return what it printed and its peak memory in MiB."""
    process = subprocess.Popen(  # our own interpreter
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    with process.stdout as stream:
        printed = stream.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return printed, usage.ru_maxrss >> 10


_READ = """
import sys
sys.path.insert(0, ".")
from benchmarks.log.kinds import iterations, stats
from stepscope.parse.serverlog import LogReader
reader, size, blocks = LogReader(), 0, (stats(), iterations())
while size < 1_000_000_000:
    for block in blocks:
        reader.feed(block)
        size += len(block)
log = reader.close()
print(log.n_lines, log.event_counts["iteration"], len(log.events))
"""


@pytest.mark.slow
def test_a_gigabyte_is_read_in_bounded_memory_and_every_iteration_is_counted() -> None:
    printed, peak_mib = _peak(["-c", _READ])
    n_lines, n_iterations, n_kept = map(int, printed.split())
    assert n_lines > 5_000_000
    # Every other block is iterations but for its first three lines.
    assert abs(n_iterations - n_lines / 2) < 50_000
    assert n_kept <= 400_000
    assert peak_mib < _MOST_MIB


@pytest.mark.slow
def test_the_command_reads_two_gigabytes_of_gzip(tmp_path: Path) -> None:
    path, block = tmp_path / "server.log.gz", stats()
    n_blocks, member = 2_000_000_000 // len(block) + 1, gzip.compress(block, 1)
    with path.open("wb") as file:
        for _ in range(n_blocks):
            file.write(member)
    printed, peak_mib = _peak(["-m", "stepscope", "log", "--json", str(path)])
    document = json.loads(printed)
    assert document["n_lines"] == n_blocks * block.count(b"\n")
    assert document["verdict"]["outcome"] == "ready"
    assert peak_mib < _MOST_MIB


def test_a_rotated_log_begins_in_mid_line_and_is_read_from_there() -> None:
    whole = stats()
    reader = LogReader()
    reader.feed(whole[2_000_000:2_400_000])
    log = reader.close()
    assert log.engine == "vllm"
    assert log.event_counts["stats"] > 500
    assert log.boot.truncated


def test_a_log_that_was_truncated_under_its_writer_holds_zeros_and_goes_on() -> None:
    block = iterations()[:200_000]
    reader = LogReader()
    reader.feed(block)
    reader.feed(b"\0" * 3_000_000)
    reader.feed(b"\n" + block)
    log = reader.close()
    n_whole = 2 * block.count(b"Iteration(") - 1
    assert abs(log.event_counts["iteration"] - n_whole) <= 1
    assert "log-lines-cut" in [f.code for f in log.findings]
