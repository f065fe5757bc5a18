"""Host calls against the operations they launched: whose, when, and all of them?"""

import re

import numpy as np

from stepscope.timeline.columns import I64, Trace, member
from stepscope.timeline.defect import Defect
from stepscope.timeline.gaps import Gaps
from stepscope.timeline.graphs import call_of_ops

_LAUNCH = re.compile(r"^(?:cuda|cu|hip)LaunchKernel|^hipModuleLaunchKernel")
_DEVICE_SYNC = re.compile(r"^(?:cuda|hip)DeviceSynchronize|^cuCtxSynchronize")
#: Stamps of host and device agree to about this much after alignment, nanoseconds.
#: Source: in sixteen real traces no operation began less than 2 us after its call
#: began, and none outlasted a device synchronisation at all.
_AGREE_NS = 1_000
#: An operation that an idle device waits for begins soon after its call. Source: in
#: nineteen real traces with ten such operations or more, behind gaps of more than 20
#: us, the 5th percentile is 3 to 13 us.
_SOON_NS, _IDLE_NS, _LEAST_WAITED = 30_000, 20_000, 10
#: Share of operations that another process may own before the device counts as shared.
_FEW = 0.01


def unanswered_launches(trace: Trace) -> str | None:
    """Say how many kernel launches in mid-trace have no kernel; None if none.

    Source: in sixteen real traces there is not one between the first and the last
    launch that has its kernel.
    """
    call = call_of_ops(trace)
    owned = np.unique(call[call >= 0])
    if len(owned) < 2:
        return None
    calls = trace.calls
    is_launch = np.array([bool(_LAUNCH.match(n)) for n in trace.names], dtype=np.bool_)
    launch = is_launch[calls.name] & (calls.correlation >= 0)
    # Each process has an end of its own: what it launched after that is not lost in
    # mid-trace because another went on.
    middle = np.zeros(len(calls), dtype=np.bool_)
    for process in np.unique(calls.process[owned]).tolist():
        own = owned[calls.process[owned] == process]
        inside = slice(own[0], own[-1])
        middle[inside] |= calls.process[inside] == process
    launch &= middle
    without = launch & ~member(calls.correlation, trace.ops.correlation)
    n_without, n = int(without.sum()), int(launch.sum())
    if n_without <= max(1, n // 1000):
        return None
    return f"{n_without} of {n} kernel launches in mid-trace have no kernel"


def mixed_processes(trace: Trace) -> list[Defect]:
    """Return a defect when more than one process used the device, or may have."""
    if trace.sharing is not None:
        return [Defect("mixed-processes", trace.sharing)]
    calls = trace.calls
    linked = calls.correlation >= 0
    ids, processes = calls.correlation[linked], calls.process[linked]
    hit = member(ids, trace.ops.correlation)
    pairs = np.unique(np.stack([ids[hit], processes[hit]], axis=1), axis=0)
    shared = int((np.diff(pairs[:, 0]) == 0).sum()) if len(pairs) else 0
    if shared > _FEW * len(pairs):
        detail = f"{shared} correlation ids were used by calls of two processes"
        return [Defect("mixed-processes", detail)]
    call = call_of_ops(trace)
    owners, n = np.unique(calls.process[call[call >= 0]], return_counts=True)
    large = owners[n > _FEW * max(len(trace.ops), 1)]
    if len(large) > 1:
        detail = f"{len(large)} processes launched on it"
        return [Defect("mixed-processes", detail)]
    return []


def host_clock_skew(trace: Trace, gaps: Gaps) -> list[Defect]:
    """Return a defect when host and device can not be on one clock.

    Operations then begin before their call, outlast a synchronisation, or never
    begin soon after their call although the device waited for them.
    """
    ops, calls = trace.ops, trace.calls
    call = call_of_ops(trace)
    linked = np.flatnonzero(call >= 0)
    if not len(linked):
        return []
    called = calls.start_ns[call[linked]]
    early = called - ops.start_ns[linked]
    n_early = int((early > _AGREE_NS).sum())
    if n_early > 1:
        detail = (
            f"{n_early} begin before their call, by up to {early.max() / 1e3:.1f} us"
        )
        return [Defect("host-clock-skew", detail)]
    sync = [i for i, name in enumerate(trace.names) if _DEVICE_SYNC.match(name)]
    for i in np.flatnonzero(np.isin(calls.name, sync)).tolist():
        before = linked[called < calls.start_ns[i]]
        late = (
            int(ops.end_ns[before].max()) - int(calls.end_ns[i]) if len(before) else 0
        )
        if late > _AGREE_NS:
            detail = f"an operation ends {late / 1e3:.1f} us after the device was idle"
            return [Defect("host-clock-skew", detail)]
    return _late_starts(trace, gaps, call)


def _late_starts(trace: Trace, gaps: Gaps, call: I64) -> list[Defect]:
    """Return a defect when no kernel that found the device idle began soon."""
    opener = call[gaps.after]
    waited = (opener >= 0) & (gaps.end_ns - gaps.start_ns > _IDLE_NS)
    waited[waited] &= ~trace.calls.is_graph[opener[waited]]
    if int(waited.sum()) < _LEAST_WAITED:
        return []
    took = gaps.end_ns[waited] - trace.calls.start_ns[opener[waited]]
    soonest = float(np.percentile(took, 5))
    if soonest <= _SOON_NS:
        return []
    detail = (
        f"of {len(took)} operations for which the device was idle hardly one begins"
        f" sooner than {soonest / 1e3:.1f} us after its call"
    )
    return [Defect("host-clock-skew", detail)]
