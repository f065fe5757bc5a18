"""Traces of all ranks to one answer."""

from stepscope.timeline.arrivals import arrivals
from stepscope.timeline.columns import Trace
from stepscope.timeline.defect import DEFECTS, Defect
from stepscope.timeline.device import Device, read_devices
from stepscope.timeline.matches import Matching, without_spans
from stepscope.timeline.rank import rank_record
from stepscope.timeline.ranks import match_ranks
from stepscope.timeline.records import Quality, TraceResult
from stepscope.timeline.remarks import remarks
from stepscope.timeline.stallers import who_stalled
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
    devices = read_devices(traces)
    every = _matching(devices)
    matching = every and without_spans(every, [d.left_out for d in devices])
    met = None
    if matching is not None and not matching.refused:
        met = arrivals(devices, matching)
        _doubt_host_clocks(devices, matching)
    usable = not any(d.spoils_idle for device in devices for d in device.defects)
    slower = _slowdown_pct(devices, untraced_step_ms)
    sound = slower is None or abs(slower) <= _MOST_SLOWER_PCT
    ranks = tuple(
        rank_record(i, number, d, met, usable=usable, host_sound=sound)
        for i, (number, d) in enumerate(zip(_numbers(traces), devices, strict=True))
    )
    late, reason = straggler(devices, ranks, matching, met)
    if late is not None and not usable:
        late, reason = None, "not judged: see the defects"
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
        findings=(
            *remarks(devices, ranks, matching, met, slower),
            *who_stalled(devices, ranks, every, matching),
        ),
        untraced_step_ms=untraced_step_ms,
        slowdown_pct=slower,
    )


def _numbers(traces: list[Trace]) -> list[int]:
    """Return the ranks that traces say they are; their order where two say one."""
    said = [i if t.rank is None else t.rank for i, t in enumerate(traces)]
    return said if len(set(said)) == len(said) else list(range(len(said)))


def _matching(devices: list[Device]) -> Matching | None:
    if len(devices) < 2:
        return None
    return match_ranks([d.trace for d in devices], [d.steps for d in devices])


def _doubt_host_clocks(devices: list[Device], matching: Matching) -> None:
    """Add a defect to devices of one file whose clocks differ.

    One file has one host clock, so a device's differs from that too.
    """
    for path in {device.trace.path for device in devices}:
        mine = [i for i, d in enumerate(devices) if d.trace.path == path]
        offsets = [matching.offsets_ns[i] for i in mine]
        apart = max(offsets) - min(offsets)
        for i in mine:
            if apart and not devices[i].has("host-clock-skew"):
                text = f"clocks of devices in one file differ by {apart / 1e3:.1f} us"
                devices[i].defects.append(Defect("host-clock-skew", text))


def _slowdown_pct(
    devices: list[Device], untraced_step_ms: float | None
) -> float | None:
    """Return how much longer the traced step is, over all ranks' periods."""
    periods = [int((d.end - d.start).sum()) for d in devices]
    n = sum(len(d.start) for d in devices)
    if untraced_step_ms is None or untraced_step_ms <= 0 or not n:
        return None
    return 100 * (ms(sum(periods) / n) / untraced_step_ms - 1)
