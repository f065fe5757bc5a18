"""Sampling the host, its processes and a schedule."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from stepscope.clock import SystemClock
from stepscope.engines.processes import single_role
from stepscope.recipe.records import Telemetry
from stepscope.run.samples import HostSample, ProcessSample
from stepscope.session.watch import host
from stepscope.session.watch.host import cgroup_memory, host_sample
from stepscope.session.watch.processes import Processes, tree
from stepscope.session.watch.sampler import Sample, Sampler, Target, next_tick


def test_the_host_is_told_as_psutil_tells_it() -> None:
    sample = host_sample(7)
    memory = psutil.virtual_memory()
    assert sample.at_ns == 7
    assert sample.memory_total_bytes == memory.total
    assert sample.memory_used_bytes is not None
    assert 0 < sample.memory_used_bytes < memory.total
    assert sample.cpu_busy_ns is not None
    assert sample.cpu_total_ns is not None
    times = psutil.cpu_times()
    expected = sum(times) - times.guest - times.guest_nice
    assert sample.cpu_total_ns / 1e9 == pytest.approx(expected, rel=0.02)
    assert sample.cpu_busy_ns < sample.cpu_total_ns


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.current": "100", "memory.max": "200"}, (100, 200)),
        ({"memory.current": "100", "memory.max": "max"}, (100, None)),
        (
            {
                "memory/memory.usage_in_bytes": "5",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            (5, None),
        ),
        ({}, (None, None)),
    ],
)
def test_both_kinds_of_cgroup_are_read(
    tmp_path: Path, files: dict[str, str], expected: tuple[int | None, int | None]
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    found = host.cgroup_memory_files(tmp_path)
    assert cgroup_memory(found) == expected


def test_a_process_is_sampled_with_its_role_and_its_busiest_thread() -> None:
    busy = "sum(range(30_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        watched = Processes(lambda: {process.pid}, single_role)
        (sample,) = watched.sample(SystemClock().now_ns())
        assert process.stdin is not None
        process.stdin.close()
    assert (sample.pid, sample.role, sample.n_threads) == (process.pid, "server", 1)
    assert sample.cpu_ns > 50_000_000
    assert sample.busiest_thread_cpu_ns == sample.cpu_ns
    assert sample.busiest_thread_waited_ns is not None
    assert sample.busiest_thread_waited_ns > 0
    assert sample.rss_bytes is not None
    assert sample.rss_bytes > 1 << 20


def test_a_process_that_ended_is_no_longer_sampled() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = Processes(lambda: {process.pid}, single_role)
    at_ns = SystemClock().now_ns()
    assert len(watched.sample(at_ns)) == 1
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    assert watched.sample(at_ns + 1) == []


def test_a_tree_holds_the_living_only() -> None:
    assert os.getpid() in tree({os.getpid(), 2**22 + 1})
    assert tree({2**22 + 1}) == set()


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, (100, 100)), (99, (100, 1)), (100, (200, 100)), (350, (400, 50))],
)
def test_missed_ticks_are_left_out(now: int, expected: tuple[int, int]) -> None:
    at, wait_s = next_tick(0, 100, now)
    assert (at, round(wait_s * 1e9)) == expected


class Kept:
    """A sink that wakes its test when it has enough, and may be full."""

    def __init__(self, *, full: bool = False) -> None:
        self.samples: list[Sample] = []
        self.enough = threading.Event()
        self._full = full

    def put_samples(self, samples: list[Sample]) -> None:
        if self._full:
            self.enough.set()
            raise OSError(28, "No space left on device")
        self.samples += samples
        if sum(isinstance(s, HostSample) for s in self.samples) >= 3:
            self.enough.set()

    def put_metrics_text(self, at_ns: int, text: str) -> None:
        """Keep nothing."""


def sampled(sink: Kept, *, here: bool = True) -> Sampler:
    clock = SystemClock()
    sampler = Sampler(sink, clock, Telemetry(interval_s=0.02), None)
    roots = {os.getpid()}
    sampler.start(
        Target(roots=lambda: roots, role=single_role, metrics_url=None, here=here)
    )
    assert sink.enough.wait(30) is here
    sampler.stop()
    return sampler


def test_samples_ascend_and_hold_host_and_processes() -> None:
    sink = Kept()
    sampled(sink)
    at = [s.at_ns for s in sink.samples if isinstance(s, HostSample)]
    assert at == sorted(set(at))
    assert any(isinstance(s, ProcessSample) for s in sink.samples)


def test_a_full_disk_ends_sampling_and_is_told() -> None:
    sampler = sampled(Kept(full=True))
    assert sampler.error is not None
    assert sampler.error.errno == 28
