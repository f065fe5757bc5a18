"""One rank's record: periods, budget, idle causes, layers, gaps."""

from collections import Counter

import numpy as np

from stepscope.timeline.arrivals import Arrivals
from stepscope.timeline.budget import PeriodBudget, closing_pct, period_budgets
from stepscope.timeline.columns import I64, KERNEL
from stepscope.timeline.device import Device, in_periods
from stepscope.timeline.gaps import CAUSES
from stepscope.timeline.intervals import covered, length
from stepscope.timeline.layers import LayerRun, find_layers, layer_record
from stepscope.timeline.records import Budget, GapBin, IdleCauses, Layer, Rank, Spread
from stepscope.timeline.top import top_gaps, top_kernels
from stepscope.units import ms

#: Bounds of the gap histogram, microseconds. Launch latency lies near 5, a host that
#: schedules above 100.
_BOUNDS_US = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


def rank_record(
    index: int,
    number: int,
    device: Device,
    met: Arrivals | None,
    *,
    usable: bool,
    host_sound: bool,
) -> Rank:
    """Return what one rank's trace says.

    Args:
        index: Position of the rank among the traces.
        number: What the rank is called.
        device: Its trace, steps, gaps and defects.
        met: Matched collectives; None for a single rank, or where none match.
        usable: False leaves out every idle figure.
        host_sound: False leaves out what depends on when the host did something.
    """
    trace, steps = device.trace, device.steps
    host_sound &= not device.has("host-clock-skew")
    stitched = device.has("stitched-timestamps")
    known = usable and len(trace.ops) > 0
    gaps_known = usable and not stitched
    first = device.first_period
    layers = None if first is None else find_layers(trace, *first)
    budget = None
    if len(device.start):
        budget = period_budgets(device.lanes, device.gaps, device.start, device.end)
    typical = None if stitched else _typical_gap(device)
    span = _span_ns(device)
    busy = length(device.lanes.busy)
    count = sum(k == device.kind for k in steps.kinds) if device.kind else len(steps)
    return Rank(
        rank=number,
        path=trace.path,
        n_steps=count,
        n_periods=len(device.start),
        step_kind=device.kind,
        step_source=steps.source,
        steps_by_kind=dict(Counter(steps.kinds)),
        step_ms=None if budget is None else _spread(budget.period_ns),
        kernels_per_step=_kernels_per_step(device),
        kernels_per_layer=None if layers is None else layers.width,
        n_layers=None if layers is None else layers.n_layers,
        budget_ms=_budget(index, device, budget, met, usable=usable),
        idle_ms=_idle(budget, stitched=stitched, host=host_sound) if usable else None,
        closes_to_pct=None if budget is None or not usable else closing_pct(budget),
        busy_pct=100 * busy / span if known and span else None,
        step_busy_pct=_step_busy(budget) if usable else None,
        n_device_ops=len(trace.ops),
        span_ms=ms(span),
        gaps_below_1us_ms=_short_gaps(device) if usable else None,
        median_graph_gap_us=None if typical is None else typical / 1000,
        top_kernels=top_kernels(device),
        top_gaps=top_gaps(device, typical, host=host_sound) if gaps_known else (),
        layer=_layer(device, layers, gaps_known=gaps_known),
        gap_histogram=_histogram(device) if gaps_known else (),
        idle_uncertainty_ms=_uncertainty(device) if usable else None,
        graph_span_ms=_graph_spans(device),
    )


def _layer(device: Device, run: LayerRun | None, *, gaps_known: bool) -> Layer | None:
    if run is None:
        return None
    bounds = device.start, device.end
    return layer_record(device.trace, run, *bounds, gaps_known=gaps_known)


def _typical_gap(device: Device) -> float | None:
    """Return the median gap between two nodes of one graph, nanoseconds."""
    inside = device.gaps.parts_ns[:, 0]
    inside = inside[inside > 0]
    return float(np.median(inside)) if len(inside) else None


def _span_ns(device: Device) -> int:
    ops = device.trace.ops
    return int(ops.end_ns.max() - ops.start_ns[0]) if len(ops) else 0


def _short_gaps(device: Device) -> float | None:
    """Return all gaps below a microsecond, ms; None where stamps do not show them."""
    if device.trace.resolution_ns >= 1000:
        return None
    lasted = device.gaps.end_ns - device.gaps.start_ns
    return ms(int(lasted[lasted < 1000].sum()))


def _uncertainty(device: Device) -> float | None:
    """Return what whole-microsecond stamps leave open in a step's idle time, ms.

    Each operation's start and end may be off by up to one unit, so a gap by two; the
    errors do not cancel where all stamps were rounded one way.
    """
    if device.trace.resolution_ns < 1000 or not len(device.start):
        return None
    starts = device.trace.ops.start_ns
    n = np.searchsorted(starts, device.end) - np.searchsorted(starts, device.start)
    return ms(float(n.mean()) * device.trace.resolution_ns)


def _graph_spans(device: Device) -> Spread | None:
    boxes = device.trace.graph_boxes
    return _spread(boxes.end_ns - boxes.start_ns) if len(boxes) else None


def _histogram(device: Device) -> tuple[GapBin, ...]:
    gaps = device.gaps
    mine = in_periods(device, gaps.start_ns)
    lasted = (gaps.end_ns - gaps.start_ns)[mine]
    n = max(len(device.start), 1)
    edges = [*(round(us * 1000) for us in _BOUNDS_US), np.iinfo(np.int64).max]
    counts, _ = np.histogram(lasted, edges)
    totals, _ = np.histogram(lasted, edges, weights=lasted)
    return tuple(
        GapBin(
            from_us=us,
            to_us=_BOUNDS_US[i + 1] if i + 1 < len(_BOUNDS_US) else None,
            count_per_step=float(counts[i]) / n,
            ms_per_step=ms(float(totals[i]) / n),
        )
        for i, us in enumerate(_BOUNDS_US)
    )


def _spread(period: I64) -> Spread:
    return Spread(
        median=ms(float(np.median(period))),
        p10=ms(float(np.percentile(period, 10))),
        p90=ms(float(np.percentile(period, 90))),
        mean=ms(float(period.mean())),
    )


def _kernels_per_step(device: Device) -> float | None:
    if not len(device.start):
        return None
    kernels = device.trace.ops.start_ns[device.trace.ops.kind == KERNEL]
    inside = np.searchsorted(kernels, device.end) - np.searchsorted(
        kernels, device.start
    )
    return float(inside.mean())


def _step_busy(budget: PeriodBudget | None) -> float | None:
    if budget is None:
        return None
    return float(100 - 100 * budget.part("idle").sum() / budget.period_ns.sum())


def _budget(
    index: int,
    device: Device,
    budget: PeriodBudget | None,
    met: Arrivals | None,
    *,
    usable: bool,
) -> Budget | None:
    if budget is None:
        return None
    talk = float(budget.part("communication").mean())
    share = _waiting_share(index, device, met) if talk else 0.0
    wait = None if share is None else talk * share
    return Budget(
        compute=ms(float(budget.part("compute").mean())),
        communication=ms(talk),
        communication_transfer=None if wait is None else ms(talk - wait),
        communication_wait=None if wait is None else ms(wait),
        memcpy=ms(float(budget.part("memcpy").mean())),
        idle=ms(float(budget.part("idle").mean())) if usable else None,
    )


def _waiting_share(index: int, device: Device, met: Arrivals | None) -> float | None:
    """Return the waiting part of this rank's exposed communication, 0 to 1.

    It is that of the collectives that were matched, in its chosen periods; None where
    they are less than half of all.
    """
    if met is None:
        return None
    start = met.start[:, index] + met.offsets_ns[index]
    mine = in_periods(device, start) & ~met.on_host
    exposed = int(met.exposed[mine, index].sum())
    talk = device.lanes.communication
    every = int((covered(talk, device.end) - covered(talk, device.start)).sum())
    if not exposed or 2 * exposed < every:
        return None
    return int(met.waited[mine, index].sum()) / exposed


def _idle(
    budget: PeriodBudget | None, *, stitched: bool, host: bool
) -> IdleCauses | None:
    if budget is None:
        return None
    mean = budget.idle_ns.mean(axis=0)
    causes: dict[str, float | None] = {
        name: ms(float(value)) for name, value in zip(CAUSES, mean, strict=True)
    }
    if stitched:
        causes["inside_graph"] = None
    if not host:
        causes.update(dict.fromkeys(CAUSES[1:5]))
    return IdleCauses(**causes)
