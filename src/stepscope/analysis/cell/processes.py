"""CPU of the host and of each process during a window, from cumulative times."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stepscope.analysis.cell.window import Window
from stepscope.run.samples import HostSample, ProcessSample

Sampled = TypeVar("Sampled", HostSample, ProcessSample)


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """CPU by role, percent of one core.

    Attributes:
        by_role: All processes of a role together.
        busiest_thread: The busiest thread of any process of the role.
    """

    by_role: dict[str, float] = field(default_factory=dict)
    busiest_thread: dict[str, float] = field(default_factory=dict)


def inside(samples: Sequence[Sampled], window: Window) -> Sequence[Sampled]:
    """Return the samples within a window; they ascend in time."""
    low = bisect_left(samples, window.from_ns, key=lambda sample: sample.at_ns)
    high = bisect_right(samples, window.to_ns, key=lambda sample: sample.at_ns)
    return samples[low:high]


def process_cpu(samples: Sequence[ProcessSample], window: Window) -> ProcessCpu:
    """Return CPU between each process's first and last sample in the window.

    Assumes: the thread with most CPU since its start is the busiest one during the
        window too; where it changes within the window the figure is a lower bound.
    """
    by_pid: dict[tuple[int, str], list[ProcessSample]] = {}
    for sample in inside(samples, window):
        by_pid.setdefault((sample.pid, sample.role), []).append(sample)
    by_role: dict[str, float] = {}
    busiest: dict[str, float] = {}
    for (_, role), rows in by_pid.items():
        first, last = rows[0], rows[-1]
        took = last.at_ns - first.at_ns
        # A process seen for a small part of the window would be scaled up to it.
        if took <= window.length_ns / 2 or last.cpu_ns < first.cpu_ns:
            continue
        by_role[role] = by_role.get(role, 0.0) + 100 * (
            (last.cpu_ns - first.cpu_ns) / took
        )
        old, new = first.busiest_thread_cpu_ns, last.busiest_thread_cpu_ns
        if old is not None and new is not None and new >= old:
            busiest[role] = max(busiest.get(role, 0.0), 100 * (new - old) / took)
    return ProcessCpu(by_role=by_role, busiest_thread=busiest)


def host_cpu_pct(samples: Sequence[HostSample], window: Window) -> float | None:
    """Return the busy share of all cores between two samples in the window."""
    rows = [
        sample
        for sample in inside(samples, window)
        if sample.cpu_busy_ns is not None and sample.cpu_total_ns is not None
    ]
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    assert first.cpu_total_ns is not None
    assert last.cpu_total_ns is not None
    assert first.cpu_busy_ns is not None
    assert last.cpu_busy_ns is not None
    total = last.cpu_total_ns - first.cpu_total_ns
    return 100 * (last.cpu_busy_ns - first.cpu_busy_ns) / total if total > 0 else None
