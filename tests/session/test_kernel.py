"""The kernel's log beside a launch, read from the kernel where it may be."""

import os
from pathlib import Path

import pytest

from stepscope.session.watch.kernel import KernelLog

KMSG = Path("/dev/kmsg")


def logged(*lines: str) -> None:
    """Write lines into the kernel's own log, as a program may."""
    with KMSG.open("wb", buffering=0) as kernel:
        for line in lines:
            kernel.write(f"<6>{line}\n".encode())


@pytest.mark.skipif(
    not (os.access(KMSG, os.R_OK) and os.access(KMSG, os.W_OK)),
    reason="the kernel's log may not be read and written here",
)
def test_telling_lines_since_the_start_are_kept() -> None:
    logged("stepscope test: Killed process 1 (before), not to be seen")
    log = KernelLog()
    logged(
        "stepscope test: nothing of note",
        "stepscope test: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        "stepscope test: Memory cgroup out of memory: Killed process 42 (VLLM)",
    )
    assert log.readable
    mine = [line for line in log.close() if "stepscope test" in line]
    assert len(mine) == 2
    assert mine[0].endswith("79, GPU has fallen off the bus.")
    assert "Killed process 42 (VLLM)" in mine[1]


def test_a_log_that_may_not_be_read_is_silent(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "gone")
    assert not log.readable
    assert log.close() == ()


def test_it_is_closed_once(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "gone")
    log.close()
    assert log.close() == ()
