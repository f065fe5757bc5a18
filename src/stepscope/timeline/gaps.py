"""Every idle interval of a device, what closed it, and why it was there."""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Trace
from stepscope.timeline.graphs import call_of_ops

#: Causes in the order of the contract.
CAUSES = (
    "inside_graph",
    "host_not_launching_yet",
    "graph_launch_call",
    "launch_call",
    "after_launch_returned",
    "no_launch_record",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Idle intervals of one device, ascending and disjoint; columns of length n.

    Attributes:
        start_ns: The last operation before it ended.
        end_ns: The next operation started.
        before: Index of the operation that ended last.
        after: Index of the operation that starts.
        parts_ns: int64[n, 6], the length by cause, in the order of ``CAUSES``; each
            row sums to the gap.
    """

    start_ns: I64
    end_ns: I64
    before: I64
    after: I64
    parts_ns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"

    def __len__(self) -> int:
        return len(self.start_ns)


def find_gaps(trace: Trace) -> Gaps:
    """Find the idle intervals of a device and split each by cause.

    A gap between two operations of one launch is *inside graph*. Otherwise it is cut
    at the beginning and the end of the host call that launched the next operation:
    before it the host was not launching yet, during it the call itself was the delay,
    after it the device or a dependency was.

    Assumes: operations that share a correlation id were launched by one call; host
    and device stamps are on one clock (the profiler aligns them).
    """
    ops = trace.ops
    reach = np.maximum.accumulate(ops.end_ns)
    # The operation that ended last so far: the latest index that raised the reach.
    raised = np.ones(len(ops), dtype=np.bool_)
    raised[1:] = ops.end_ns[1:] >= reach[:-1]
    latest = np.maximum.accumulate(np.where(raised, np.arange(len(ops)), 0))
    after = np.flatnonzero(ops.start_ns[1:] > reach[:-1]) + 1
    before = latest[after - 1]
    start, end = reach[after - 1], ops.start_ns[after]
    return Gaps(
        start_ns=start,
        end_ns=end,
        before=before,
        after=after,
        parts_ns=_parts(trace, start, end, before, after),
    )


def _parts(
    trace: Trace, start: I64, end: I64, before: I64, after: I64
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    ops, calls = trace.ops, trace.calls
    parts = np.zeros((len(start), len(CAUSES)), dtype=np.int64)
    length = end - start
    correlation = ops.correlation
    same = (correlation[after] == correlation[before]) & (correlation[after] >= 0)
    parts[:, 0] = np.where(same, length, 0)
    call = call_of_ops(trace)[after]
    known = ~same & (call >= 0)
    parts[:, 5] = np.where(~same & (call < 0), length, 0)
    if not known.any():
        return parts
    call = np.where(known, call, 0)
    call_start, call_end = calls.start_ns[call], calls.end_ns[call]
    waiting = np.maximum(np.minimum(end, call_start) - start, 0)
    inside = np.maximum(np.minimum(end, call_end) - np.maximum(start, call_start), 0)
    graph = calls.is_graph[call]
    parts[:, 1] = np.where(known, waiting, 0)
    parts[:, 2] = np.where(known & graph, inside, 0)
    parts[:, 3] = np.where(known & ~graph, inside, 0)
    parts[:, 4] = np.where(known, length - waiting - inside, 0)
    return parts
