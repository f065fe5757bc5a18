"""CPU of the host and of each process during a window, from cumulative times."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stepscope.analysis.cell.window import Window
from stepscope.run.samples import HostSample, ProcessSample

Sampled = TypeVar("Sampled", HostSample, ProcessSample)
#: More than a thread can run (times are whole ticks): samples of two threads were
#: subtracted, as older runs do not say which thread it was.
_ONE_CORE_PCT = 105.0


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """CPU by role, percent of one core.

    Attributes:
        by_role: All processes of a role together.
        busiest_thread: The busiest thread of any process of the role.
        busiest_waited: Share of the window in which that thread was ready to run and
            had no core, percent.
    """

    by_role: dict[str, float] = field(default_factory=dict)
    busiest_thread: dict[str, float] = field(default_factory=dict)
    busiest_waited: dict[str, float] = field(default_factory=dict)


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
    waited: dict[str, float] = {}
    for (_, role), rows in by_pid.items():
        first, last = rows[0], rows[-1]
        took = last.at_ns - first.at_ns
        # A process seen for a small part of the window would be scaled up to it.
        if took <= window.length_ns / 2 or last.cpu_ns < first.cpu_ns:
            continue
        by_role[role] = by_role.get(role, 0.0) + 100 * (
            (last.cpu_ns - first.cpu_ns) / took
        )
        thread = _busiest_thread(rows, window)
        if thread is None or thread[0] < busiest.get(role, 0.0):
            continue
        busiest[role] = thread[0]
        waited.pop(role, None)
        if thread[1] is not None:
            waited[role] = thread[1]
    return ProcessCpu(by_role=by_role, busiest_thread=busiest, busiest_waited=waited)


def _busiest_thread(
    rows: Sequence[ProcessSample], window: Window
) -> tuple[float, float | None] | None:
    """Return the share that the busiest thread ran, and waited for a core, percent.

    Only samples of one and the same thread are subtracted: that which is the busiest
    at the end. None where it is so for less than half of the window.
    """
    last = rows[-1]
    same = [row for row in rows if row.busiest_thread_id == last.busiest_thread_id]
    first = same[0]
    took = last.at_ns - first.at_ns
    old, new = first.busiest_thread_cpu_ns, last.busiest_thread_cpu_ns
    if old is None or new is None or new < old or took <= window.length_ns / 2:
        return None
    share = 100 * (new - old) / took
    if share > _ONE_CORE_PCT:
        return None
    early, late = first.busiest_thread_waited_ns, last.busiest_thread_waited_ns
    if early is None or late is None or late < early:
        return share, None
    return share, min(100 * (late - early) / took, 100.0)


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
