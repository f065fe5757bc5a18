"""One step's time, by what the device did; the parts sum to the period exactly."""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, Bool, Trace
from stepscope.timeline.gaps import CAUSES, Gaps
from stepscope.timeline.intervals import Intervals, covered, subtract, union

_PARTS = ("compute", "communication", "memcpy", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """A device's time as disjoint intervals, in order of precedence.

    Computation hides communication, and both hide copies: an instant belongs to the
    first lane that is active.
    """

    compute: Intervals
    communication: Intervals
    memcpy: Intervals
    busy: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodBudget:
    """Sums over periods, nanoseconds: int64[n, 4] and int64[n, 6]."""

    period_ns: I64
    parts_ns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    idle_ns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"

    def part(self, name: str) -> I64:
        """Return one column: ``compute``, ``communication``, ``memcpy``, ``idle``."""
        return self.parts_ns[:, _PARTS.index(name)]


def lanes(trace: Trace, communication: Bool) -> Lanes:
    """Split a device's operations into lanes.

    Args:
        trace: One device.
        communication: bool[n_ops]; kernels that exchange data between ranks.
    """
    ops = trace.ops
    kernel = ops.kind == KERNEL
    compute = union(
        ops.start_ns[kernel & ~communication], ops.end_ns[kernel & ~communication]
    )
    talk = union(ops.start_ns[communication], ops.end_ns[communication])
    copy = union(ops.start_ns[~kernel], ops.end_ns[~kernel])
    exposed = subtract(talk, compute)
    return Lanes(
        compute=compute,
        communication=exposed,
        memcpy=subtract(subtract(copy, compute), talk),
        busy=union(ops.start_ns, ops.end_ns),
    )


def period_budgets(device: Lanes, gaps: Gaps, start: I64, end: I64) -> PeriodBudget:
    """Cut a device's time into periods and account for each.

    Args:
        device: Its lanes.
        gaps: Its idle intervals by cause.
        start: int64[n] period starts.
        end: int64[n] period ends.

    Returns:
        For each period the four parts (which sum to the period to the nanosecond
        when the trace closes) and the idle part by cause.
    """
    parts = np.zeros((len(start), 4), dtype=np.int64)
    for j, lane in enumerate((device.compute, device.communication, device.memcpy)):
        parts[:, j] = covered(lane, end) - covered(lane, start)
    nothing = np.zeros((1, len(CAUSES)), dtype=np.int64)
    before = np.concatenate([nothing, np.cumsum(gaps.parts_ns, axis=0)])
    first = np.searchsorted(gaps.start_ns, start)
    last = np.searchsorted(gaps.end_ns, end, side="right")
    idle = before[np.maximum(last, first)] - before[first]
    parts[:, 3] = idle.sum(axis=1)
    return PeriodBudget(period_ns=end - start, parts_ns=parts, idle_ns=idle)


def closing_pct(budget: PeriodBudget) -> float:
    """Return the largest residual of any period, percent of that period."""
    residual = np.abs(budget.parts_ns.sum(axis=1) - budget.period_ns)
    return float((100 * residual / budget.period_ns).max())
