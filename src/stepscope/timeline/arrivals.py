"""Who came last to each collective, what that cost the others, and what kept it."""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Bool
from stepscope.timeline.device import Device
from stepscope.timeline.intervals import covered
from stepscope.timeline.matches import Matching

_Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Matched collectives in order of time: rows; columns are ranks; nanoseconds.

    Attributes:
        start: When each rank arrived, on its own clock less its offset.
        end: When it left.
        step: The step of each row, int64[n].
        on_host: Which are collectives of the processor, bool[n].
        exposed: What each rank's device did nothing else in, of all of the collective:
            communication that no computation hides, or idle time for one on the host.
        waited: The part of ``exposed`` before the last arrival.
        told: Whether the last rank is known, bool[n]: it is later than the next one by
            more than twice what the collective's ends differ by, since clocks that
            differ move arrivals and ends alike.
        offsets_ns: What each rank's clock is ahead, int64[ranks].
    """

    start: _Table
    end: _Table
    step: I64
    on_host: Bool
    exposed: _Table
    waited: _Table
    told: Bool
    offsets_ns: I64

    @property
    def last(self) -> I64:
        """The rank that arrived last, int64[n]."""
        latest: I64 = self.start.argmax(axis=1)
        return latest

    @property
    def open_ns(self) -> int:
        """What the ends of collectives on the device differ by, in all."""
        apart = self.end.max(axis=1) - self.end.min(axis=1)
        return int(apart[~self.on_host].sum())

    @property
    def cost(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """What the others waited, mean over them, float64[n]."""
        mean: np.ndarray[tuple[int], np.dtype[np.float64]] = self.waited.sum(axis=1) / (
            self.start.shape[1] - 1
        )
        return mean


def arrivals(devices: list[Device], matching: Matching) -> Arrivals:
    """Return all matched collectives that some rank waited in, in order of time.

    Collectives on the host in which no device idled are left out: what overlaps with
    the device's work costs nothing.
    """
    offsets = np.array(matching.offsets_ns, dtype=np.int64)
    matches = matching.matches
    start = np.concatenate([m.start_ns for m in matches])
    end = np.concatenate([m.end_ns for m in matches])
    step = np.concatenate([m.step for m in matches])
    on_host = np.concatenate([np.full(len(m.step), m.on_host) for m in matches])
    last = start.max(axis=1, keepdims=True)
    exposed = _exposed(devices, offsets, on_host, start, end)
    waited = _exposed(devices, offsets, on_host, start, np.minimum(last, end))
    second = np.partition(start, -2, axis=1)[:, -2]
    told = last[:, 0] - second > 2 * (end.max(axis=1) - end.min(axis=1))
    order = np.argsort(last[:, 0], kind="stable")
    order = order[_counts(devices, offsets, on_host, waited, (start, end))[order]]
    return Arrivals(
        start=start[order],
        end=end[order],
        step=step[order],
        on_host=on_host[order],
        exposed=exposed[order],
        waited=waited[order],
        told=told[order],
        offsets_ns=offsets,
    )


def _counts(
    devices: list[Device],
    offsets: I64,
    on_host: Bool,
    waited: _Table,
    span: tuple[_Table, _Table],
) -> Bool:
    """Return which rows cost something, and lie where every device was traced."""
    ops = [device.trace.ops for device in devices]
    start, end = span
    lo = np.array([o.start_ns[0] for o in ops]) - offsets
    hi = np.array([o.end_ns.max() for o in ops]) - offsets
    traced = ((start >= lo) & (end <= hi)).all(axis=1)
    counts: Bool = ~on_host | (traced & (waited.max(axis=1) > 0))
    return counts


def _exposed(
    devices: list[Device], offsets: I64, on_host: Bool, start: _Table, end: _Table
) -> _Table:
    found = np.zeros_like(start)
    for r, device in enumerate(devices):
        lo, hi = start[:, r] + offsets[r], end[:, r] + offsets[r]
        talk, busy = device.lanes.communication, device.lanes.busy
        idle = hi - lo - (covered(busy, hi) - covered(busy, lo))
        alone = covered(talk, hi) - covered(talk, lo)
        found[:, r] = np.where(on_host, idle, alone)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Why a rank was last, summed over collectives; nanoseconds.

    ``work`` is what its device ran longer than the median of the others since the
    collective before, ``idle`` what it did nothing longer, ``left`` what it left that
    one later. ``n`` collectives could be told apart so, which cost the others
    ``cost``.
    """

    work: float
    idle: float
    left: float
    n: int
    cost: float


def delays(found: Arrivals, devices: list[Device], late: int) -> Delays:
    """Say what kept a rank, over the collectives to which it came last.

    Between two collectives a rank works or idles; what it is late by at the second is
    the difference of these, and of when it left the first. Where a stalled step lies
    between them, the one before was left out.
    """
    mine = np.flatnonzero(found.told & (found.last == late) & (found.cost > 0))
    mine = mine[mine > 0]
    before = found.end[mine - 1]
    ordered = (before <= found.start[mine]).all(axis=1)
    mine, before = mine[ordered], before[ordered]
    busy, stalled = np.zeros_like(before), np.zeros(len(mine), dtype=np.bool_)
    for r, device in enumerate(devices):
        lo = before[:, r] + found.offsets_ns[r]
        hi = found.start[mine, r] + found.offsets_ns[r]
        busy[:, r] = covered(device.lanes.busy, hi) - covered(device.lanes.busy, lo)
        gone = device.left_out[:, 0], device.left_out[:, 1]
        stalled |= covered(gone, hi) > covered(gone, lo)
    mine, before, busy = mine[~stalled], before[~stalled], busy[~stalled]
    idle = found.start[mine] - before - busy
    return Delays(
        work=_more(busy, late), idle=_more(idle, late), left=_more(before, late),
        n=len(mine), cost=float(found.cost[mine].sum()),
    )  # fmt: skip


def _more(values: _Table, late: int) -> float:
    """Return the sum of what one column exceeds the median of the others by."""
    others = np.median(np.delete(values, late, axis=1), axis=1)
    return float((values[:, late] - others).sum())
