"""One rank on its way to a record: trace, steps, gaps, defects, chosen periods."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepscope.timeline.budget import Lanes, lanes
from stepscope.timeline.columns import I64, Bool, Trace
from stepscope.timeline.defect import Defect
from stepscope.timeline.gaps import Gaps, find_gaps
from stepscope.timeline.graphs import call_of_ops
from stepscope.timeline.intervals import within
from stepscope.timeline.names import communication_mask
from stepscope.timeline.quality import find_defects
from stepscope.timeline.repair import repaired
from stepscope.timeline.replays import Replays, cut_edges, replays
from stepscope.timeline.steps import Steps, find_steps
from stepscope.units import ms

#: A step that lasts so many times the median one was held up by something else.
_STALLED = 5.0
#: Where more of the steps are that long, they are not the exception; but each rank may
#: hold up all of them once.
_MOST_STALLED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A rank and the periods that its budget is taken over.

    ``kind`` is the kind of step that was chosen; ``one_replay`` says that a single
    graph replay ran most operations, so that none shows what it lacks; ``start`` and
    ``end`` bound its complete periods, int64[n] nanoseconds; ``left_out`` the stalled
    ones, and what lay between the steps that our own export holds, int64[m, 2];
    ``n_cut`` counts replays that the window cut.
    """

    trace: Trace
    steps: Steps
    gaps: Gaps
    defects: list[Defect]
    lanes: Lanes
    kind: str | None
    one_replay: bool
    start: I64
    end: I64
    left_out: I64
    n_cut: int

    @property
    def first_period(self) -> tuple[int, int] | None:
        """A step of the chosen kind, or what there is of one; None if there is none."""
        if len(self.start):
            return int(self.start[0]), int(self.end[0])
        if len(self.steps):
            return int(self.steps.first_ns[0]), self.steps.end_ns
        return None

    def has(self, code: str) -> bool:
        """True when the trace has this defect."""
        return any(d.code == code for d in self.defects)


def read_devices(traces: Sequence[Trace]) -> list[Device]:
    """Repair traces of one capture, find steps, gaps and defects, choose periods."""
    return _without_stalls([_read(trace) for trace in traces])


def read_device(trace: Trace) -> Device:
    """Do the same for one rank alone."""
    return read_devices([trace])[0]


def _read(trace: Trace) -> Device:
    trace = repaired(trace)
    gaps, steps = find_gaps(trace), find_steps(trace)
    launched = replays(trace)
    defects = find_defects(trace, gaps, steps, launched)
    edges = list(cut_edges(launched).values())
    whole = (steps.period_ends > 0) & ~_cut(trace, steps, edges)
    counts = Counter(k for k, w in zip(steps.kinds, whole, strict=True) if w)
    kind = next(
        (k for k in ("decode", "step", "mixed", "prefill") if counts.get(k)), None
    )
    chosen = np.array([k == kind for k in steps.kinds], dtype=np.bool_) & whole
    return Device(
        trace=trace,
        steps=steps,
        gaps=gaps,
        defects=defects,
        lanes=lanes(trace, communication_mask(trace, trace.ops)),
        kind=kind,
        one_replay=_one_replay(trace, launched),
        start=steps.first_ns[chosen],
        end=steps.period_ends[chosen],
        left_out=_between(steps),
        n_cut=len(edges),
    )


def _between(steps: Steps) -> I64:
    """Return what lies between the steps that our own export holds."""
    ends, starts = steps.period_ends[:-1], steps.first_ns[1:]
    apart = (starts > ends) & (steps.source == "export")
    return np.stack([ends[apart], starts[apart]], axis=1)


def _without_stalls(devices: list[Device]) -> list[Device]:
    """Leave out periods that are the exception, and far longer than the others.

    One verdict for all ranks: they wait for each other, so what is no exception on one
    is none on any. Steps that hold prompts last as long as these are; of them none is.
    """
    if any(d.kind in ("mixed", "prefill") for d in devices):
        return devices
    long = [_far_longer(d.end - d.start) for d in devices]
    if any(n.sum() > max(len(devices), _MOST_STALLED * len(n)) for n in long):
        return devices
    return [_without(d, n) for d, n in zip(devices, long, strict=True)]


def _far_longer(lasted: I64) -> Bool:
    if not len(lasted):
        return np.zeros(0, dtype=np.bool_)
    return lasted > _STALLED * np.median(lasted)


def _without(device: Device, stalled: Bool) -> Device:
    spans = np.stack([device.start[stalled], device.end[stalled]], axis=1)
    left_out = np.concatenate([device.left_out, spans, _stalled_at_the_end(device)])
    defects = [*device.defects]
    if stalled.any():
        defects.append(_held_up(device.end - device.start, int(stalled.sum())))
    return replace(
        device,
        defects=defects,
        start=device.start[~stalled],
        end=device.end[~stalled],
        left_out=left_out[np.argsort(left_out[:, 0], kind="stable")],
    )


def _stalled_at_the_end(device: Device) -> I64:
    """Return the span of the last step where that, though no whole one, is too long.

    Ranks that were not held up wait in it for one whose step before is the long one.
    """
    steps, lasted = device.steps, device.end - device.start
    none = np.empty((0, 2), dtype=np.int64)
    if not len(lasted) or steps.period_ends[-1] > 0:
        return none
    last = np.array([[steps.first_ns[-1], steps.end_ns]])
    return last if np.diff(last) > _STALLED * np.median(lasted) else none


def _held_up(lasted: I64, n: int) -> Defect:
    longest, usual = ms(int(lasted.max())), ms(float(np.median(lasted)))
    detail = (
        f"{n} of {len(lasted)} steps, up to {longest:.4g} ms where the"
        f" median is {usual:.3g}; with them the mean is {ms(float(lasted.mean())):.4g}"
    )
    return Defect("stalled-steps", detail)


def _one_replay(trace: Trace, launched: Replays) -> bool:
    some = launched.n_nodes[launched.n_nodes > 0]
    marked = len(trace.marked_steps) > 0
    return len(some) == 1 and not marked and 2 * int(some[0]) > len(trace.ops)


def _cut(trace: Trace, steps: Steps, edges: list[int]) -> Bool:
    """Return which steps hold operations of a graph replay that the window cut."""
    hit = np.zeros(len(steps), dtype=np.bool_)
    if edges and len(steps):
        at = trace.ops.start_ns[np.isin(call_of_ops(trace), edges)]
        step = np.searchsorted(steps.first_ns, at, side="right") - 1
        hit[step[step >= 0]] = True
    return hit


def in_periods(device: Device, at: I64) -> Bool:
    """Return which instants lie in a chosen period, all of them where there is none."""
    if not len(device.start):
        return np.ones(len(at), dtype=np.bool_)
    return within(device.start, device.end, at)[1]
