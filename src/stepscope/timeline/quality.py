"""The gate: how a trace lies, and what can still be said.

Most public inference traces carry a defect that spoils idle time, some by a factor
of ten. Each defect has a code, a test and a consequence, all in this file.
"""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, Trace
from stepscope.timeline.gaps import CAUSES, Gaps
from stepscope.timeline.steps import Steps, call_of_ops

#: code -> (spoils every idle figure, what it means, what to do)
DEFECTS: dict[str, tuple[bool, str, str]] = {
    "no-device-records": (
        True,
        "there are no device operations in it",
        "Profile with CUDA activities on.",
    ),
    "graph-granularity": (
        True,
        "graph launches were recorded as one box, so kernels inside them are absent",
        "Capture again with --cuda-graph-trace=node (nsys) or with a profiler that"
        " records graph nodes.",
    ),
    "records-dropped": (
        True,
        "device records are missing: replays of one graph differ in their node count,"
        " or stamps are zero, or far fewer nodes arrived than the graph has",
        "Capture fewer steps, or enlarge the profiler's buffers.",
    ),
    "late-flush": (
        True,
        "most steps hold almost none of the kernels that others hold",
        "Synchronise before the profiler stops, and capture again.",
    ),
    "step-cut": (
        True,
        "a device operation waited on work that is not in the file: the window was"
        " cut by launches, not by device time",
        "Extend the window to the device work that precedes the first step.",
    ),
    "stitched-timestamps": (
        False,
        "more than half of the gaps are exactly zero: ends were stitched to the next"
        " start, so busy time is an upper bound and gaps inside graphs are unknown",
        "Bound kernel time with another profiler; only gaps between launches hold.",
    ),
    "microsecond-resolution": (
        False,
        "stamps are whole microseconds: gaps below 1 us are invisible",
        "Use a profiler that writes nanoseconds.",
    ),
    "stream-overlap": (
        False,
        "operations of one stream overlap (programmatic dependent launch): time is"
        " taken as the union, sums of durations would count it twice",
        "",
    ),
    "duration-overflow": (
        False,
        "some durations reach over later operations of their stream and lie far above"
        " the same kernel's median; they were cut at the next start",
        "",
    ),
    "no-host-records": (
        False,
        "no host calls were recorded: idle time has no cause",
        "Profile with CPU activities on.",
    ),
    "unlinked-operations": (
        False,
        "operations without a launch record: their gaps have no cause",
        "",
    ),
    "unequal-ranks": (
        False,
        "the ranks' collectives can not be matched: they end before the last rank"
        " arrived, or differ in number",
        "Take all ranks' traces of the same steps.",
    ),
    "clock-offset": (
        False,
        "ranks' clocks differ: ends of matched collectives were aligned by median",
        "",
    ),
}


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect found in one trace, with the numbers that show it."""

    code: str
    detail: str

    @property
    def spoils_idle(self) -> bool:
        """True when no idle figure may be printed."""
        return DEFECTS[self.code][0]


def find_defects(trace: Trace, gaps: Gaps, steps: Steps) -> list[Defect]:
    """Return every defect that one trace shows, worst first."""
    if not len(trace.ops):
        return [Defect("no-device-records", "0 device operations")]
    found = [
        *_graph_granularity(trace),
        *_dropped(trace),
        *_late_flush(steps),
        *_cut(trace, gaps),
        *_stitched(trace),
        *_overlaps(trace),
        *_links(trace),
    ]
    if trace.resolution_ns >= 1000:
        found.append(Defect("microsecond-resolution", "every stamp is a whole us"))
    return sorted(found, key=lambda d: not d.spoils_idle)


def _graph_granularity(trace: Trace) -> list[Defect]:
    n_graphs = int(trace.calls.is_graph.sum())
    if trace.graph_level_records:
        detail = f"{trace.graph_level_records} graph records without their kernels"
        return [Defect("graph-granularity", detail)]
    if not n_graphs:
        return []
    launched = trace.calls.correlation[trace.calls.is_graph]
    without = int((~np.isin(launched, trace.ops.correlation)).sum())
    # The last replay may still be running when the profiler stops.
    if without > max(1, n_graphs // 10):
        detail = f"{without} of {n_graphs} graph launches have no kernels"
        return [Defect("graph-granularity", detail)]
    return []


def _dropped(trace: Trace) -> list[Defect]:
    if trace.n_zero_stamps:
        detail = f"{trace.n_zero_stamps} device records with start = end = 0"
        return [Defect("records-dropped", detail)]
    sizes = _replay_sizes(trace)
    if len(sizes) == 1 and len(trace.ops) < 200 and sizes[0] < 200:
        detail = (
            f"the only graph replay holds {sizes[0]} nodes of {len(trace.ops)}"
            " operations: too few to be a whole decode step, and no second replay"
            " shows otherwise"
        )
        return [Defect("records-dropped", detail)]
    if len(sizes) < 4:
        return []
    modal = int(np.bincount(sizes).argmax())
    near = sizes[(sizes < modal) & (sizes > 0.5 * modal)]
    if modal >= 20 and len(near) and len(near) < 0.5 * len(sizes):
        detail = f"{len(near)} replays hold {int(near.min())} to {int(near.max())}"
        return [Defect("records-dropped", f"{detail} nodes where the mode is {modal}")]
    return []


def _replay_sizes(trace: Trace) -> I64:
    """Return the number of recorded nodes of each graph replay that has any."""
    call = call_of_ops(trace)
    owned = call >= 0
    if not owned.any() or not trace.calls.is_graph.any():
        return np.empty(0, dtype=np.int64)
    counts = np.bincount(call[owned], minlength=len(trace.calls))
    sizes: I64 = counts[trace.calls.is_graph & (counts > 0)]
    return sizes


def _late_flush(steps: Steps) -> list[Defect]:
    if steps.source != "annotations":
        return []
    n_ops = steps.n_ops[np.array([k == "decode" for k in steps.kinds], dtype=np.bool_)]
    if len(n_ops) < 3:
        return []
    poor = int((n_ops < 0.5 * n_ops.max()).sum())
    if poor > len(n_ops) // 2:
        detail = (
            f"{poor} of {len(n_ops)} decode steps hold fewer than half of the"
            f" {int(n_ops.max())} operations of the fullest"
        )
        return [Defect("late-flush", detail)]
    return []


def _cut(trace: Trace, gaps: Gaps) -> list[Defect]:
    if not len(gaps):
        return []
    span = int(trace.ops.end_ns.max() - trace.ops.start_ns[0])
    worst = int(np.argmax(gaps.parts_ns[:, CAUSES.index("after_launch_returned")]))
    stalled = int(gaps.parts_ns[worst, CAUSES.index("after_launch_returned")])
    if stalled > 0.3 * span and stalled > 1_000_000:
        detail = (
            f"one operation began {stalled / 1e6:.1f} ms after its launch returned,"
            f" {100 * stalled / span:.0f} % of the span, with nothing on the device"
        )
        return [Defect("step-cut", detail)]
    return []


def _stitched(trace: Trace) -> list[Defect]:
    order = np.argsort(trace.ops.start_ns, kind="stable")
    reach = np.maximum.accumulate(trace.ops.end_ns[order])
    apart = trace.ops.start_ns[order][1:] - reach[:-1]
    if len(apart) < 20 or trace.resolution_ns >= 1000:
        return []
    zero = float((np.abs(apart) <= 1).mean())
    if zero > 0.5:
        return [Defect("stitched-timestamps", f"{100 * zero:.0f} % of gaps are zero")]
    return []


def _overlaps(trace: Trace) -> list[Defect]:
    ops, found = trace.ops, []
    n_overlap, n_long = 0, 0
    medians: dict[int, float] = {}
    for stream in np.unique(ops.stream):
        mine = np.flatnonzero(ops.stream == stream)
        over = ops.start_ns[mine][1:] < np.maximum.accumulate(ops.end_ns[mine])[:-1]
        n_overlap += int(over.sum())
        for i in mine[:-1][over].tolist():
            name = int(ops.name[i])
            if name not in medians:
                same = ops.name == name
                medians[name] = float(np.median((ops.end_ns - ops.start_ns)[same]))
            if ops.end_ns[i] - ops.start_ns[i] > 10 * max(medians[name], 1.0):
                n_long += 1
    if n_overlap:
        found.append(Defect("stream-overlap", f"{n_overlap} overlaps"))
    if n_long:
        found.append(Defect("duration-overflow", f"{n_long} operations"))
    return found


def _links(trace: Trace) -> list[Defect]:
    if not len(trace.calls):
        return [Defect("no-host-records", "0 host calls")]
    kernels = trace.ops.kind == KERNEL
    without = int(((call_of_ops(trace) < 0) & kernels).sum())
    if without > 0.01 * len(trace.ops):
        detail = f"{without} of {len(trace.ops)} operations"
        return [Defect("unlinked-operations", detail)]
    return []
