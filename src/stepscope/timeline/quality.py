"""The gate: how a trace lies, and what can still be said.

Most public inference traces carry a defect that spoils idle time, some by a factor
of ten. Each defect has a code and a consequence in `defect.py` and a test here.
"""

import numpy as np

from stepscope.timeline.columns import KERNEL, Trace
from stepscope.timeline.defect import Defect
from stepscope.timeline.gaps import CAUSES, Gaps
from stepscope.timeline.graphs import call_of_ops
from stepscope.timeline.linkage import (
    host_clock_skew,
    mixed_processes,
    unanswered_launches,
)
from stepscope.timeline.replays import (
    Replays,
    cut_edges,
    late_flushed,
    lost_nodes,
)
from stepscope.timeline.steps import Steps


def find_defects(
    trace: Trace, gaps: Gaps, steps: Steps, launched: Replays
) -> list[Defect]:
    """Return every defect that one trace shows, worst first."""
    if not len(trace.ops):
        boxes = _graph_granularity(trace, launched) if trace.graph_level_records else []
        return boxes or [Defect("no-device-records", "0 device operations")]
    found = [
        *_graph_granularity(trace, launched),
        *_dropped(trace, launched),
        *_late_flush(steps, launched),
        *_cut(trace, gaps),
        *mixed_processes(trace),
        *_stitched(trace),
        *_overlaps(trace),
        *_links(trace),
        *host_clock_skew(trace, gaps),
    ]
    if trace.n_duplicates:
        found.append(Defect("duplicate-records", f"{trace.n_duplicates} records"))
    if trace.resolution_ns >= 1000:
        found.append(Defect("microsecond-resolution", "every stamp is a whole us"))
    return sorted(found, key=lambda d: not d.spoils_idle)


def _graph_granularity(trace: Trace, launched: Replays) -> list[Defect]:
    if trace.graph_level_records:
        detail = f"{trace.graph_level_records} graph records without their kernels"
        return [Defect("graph-granularity", detail)]
    n = len(launched.launch)
    without = int((launched.n_nodes == 0).sum())
    # The last replay may still be running when the profiler stops.
    if without > max(1, 0.9 * n):
        return [
            Defect(
                "graph-granularity", f"{without} of {n} graph launches have no kernels"
            )
        ]
    return []


def _dropped(trace: Trace, launched: Replays) -> list[Defect]:
    if trace.n_zero_stamps:
        detail = f"{trace.n_zero_stamps} device records whose stamps are 0 or reversed"
        return [Defect("records-dropped", detail)]
    sizes = launched.n_nodes[launched.n_nodes > 0]
    few = len(sizes) == 1 and len(trace.ops) < 200 and sizes[0] < 200
    if few and not len(trace.marked_steps):
        detail = (
            f"the only graph replay holds {sizes[0]} nodes of {len(trace.ops)}"
            " operations: too few to be a whole decode step, and no second replay"
            " shows otherwise"
        )
        return [Defect("records-dropped", detail)]
    if trace.graph_level_records:
        return []
    lost = unanswered_launches(trace) or lost_nodes(launched)
    if lost:
        return [Defect("records-dropped", lost)]
    edges = cut_edges(launched)
    if not edges:
        return []
    return [Defect("edge-steps-cut", f"{' and '.join(edges)} graph replay")]


def _late_flush(steps: Steps, launched: Replays) -> list[Defect]:
    flushed = late_flushed(launched)
    if flushed:
        return [Defect("late-flush", flushed)]
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
    n_overlap = 0
    for stream in np.unique(ops.stream).tolist():
        mine = np.flatnonzero(ops.stream == stream)
        reach = np.maximum.accumulate(ops.end_ns[mine])
        n_overlap += int((ops.start_ns[mine][1:] < reach[:-1]).sum())
    if n_overlap:
        found.append(Defect("stream-overlap", f"{n_overlap} overlaps"))
    if trace.n_clipped:
        found.append(Defect("duration-overflow", f"{trace.n_clipped} operations"))
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
