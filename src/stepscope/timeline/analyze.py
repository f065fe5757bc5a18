"""Traces of all ranks to one answer."""

from stepscope.timeline.arrivals import arrivals
from stepscope.timeline.columns import Trace
from stepscope.timeline.defect import DEFECTS
from stepscope.timeline.device import Device, read_device
from stepscope.timeline.matches import Matching
from stepscope.timeline.rank import rank_record
from stepscope.timeline.ranks import match_ranks
from stepscope.timeline.records import Quality, TraceResult
from stepscope.timeline.remarks import remarks
from stepscope.timeline.straggler import collectives, straggler
from stepscope.units import ms

#: Above this difference to the untraced step, host times of a trace say nothing.
_MOST_SLOWER_PCT = 15.0


def analyze_traces(
    traces: list[Trace], untraced_step_ms: float | None = None
) -> TraceResult:
    """Return step budgets, gaps and rank waits.

    Args:
        traces: One a rank, of the same capture.
        untraced_step_ms: Step time of the same cell with the profiler off, such as
            its TPOT where no prefill shares the steps; None if unknown.
    """
    devices = [read_device(t) for t in traces]
    matching = _matching(devices)
    met = None
    if matching is not None and not matching.refused:
        met = arrivals(devices, matching)
    usable = not any(d.spoils_idle for device in devices for d in device.defects)
    slower = _slowdown_pct(devices, untraced_step_ms)
    sound = slower is None or abs(slower) <= _MOST_SLOWER_PCT
    ranks = tuple(
        rank_record(i, d, met, usable=usable, host_sound=sound)
        for i, d in enumerate(devices)
    )
    late, reason = straggler(devices, ranks, matching, met)
    codes = {d.code for device in devices for d in device.defects}
    if matching is not None and matching.refused:
        codes.add("unequal-ranks")
    if matching is not None and any(matching.offsets_ns):
        codes.add("clock-offset")
    if not sound:
        codes.add("profiler-slowdown")
    return TraceResult(
        quality=Quality(
            usable=usable,
            defects=tuple(code for code in DEFECTS if code in codes),
            resolution_ns=max((t.resolution_ns for t in traces), default=1),
        ),
        ranks=ranks,
        collectives=tuple(collectives(matching)),
        straggler_rank=None if late is None else ranks[late].rank,
        straggler_reason=reason,
        findings=tuple(remarks(devices, ranks, matching, met, slower)),
        untraced_step_ms=untraced_step_ms,
        slowdown_pct=slower,
    )


def _matching(devices: list[Device]) -> Matching | None:
    if len(devices) < 2:
        return None
    return match_ranks([d.trace for d in devices], [d.steps for d in devices])


def _slowdown_pct(
    devices: list[Device], untraced_step_ms: float | None
) -> float | None:
    """Return how much longer the traced step is, over all ranks' periods."""
    periods = [int((d.end - d.start).sum()) for d in devices]
    n = sum(len(d.start) for d in devices)
    if untraced_step_ms is None or untraced_step_ms <= 0 or not n:
        return None
    return 100 * (ms(sum(periods) / n) / untraced_step_ms - 1)
