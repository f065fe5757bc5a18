"""Traces of all ranks to one answer."""

from collections import Counter

import numpy as np

from stepscope.findings import Finding
from stepscope.timeline.budget import PeriodBudget, closing_pct, period_budgets
from stepscope.timeline.columns import I64, KERNEL, Trace
from stepscope.timeline.device import Device, read_device
from stepscope.timeline.gaps import CAUSES
from stepscope.timeline.intervals import length
from stepscope.timeline.layers import find_layers
from stepscope.timeline.quality import DEFECTS
from stepscope.timeline.ranks import Matching, match_ranks
from stepscope.timeline.records import (
    Budget,
    Collective,
    IdleCauses,
    Quality,
    Rank,
    Spread,
    TraceResult,
)
from stepscope.timeline.top import top_gaps, top_kernels
from stepscope.units import ms


def analyze_traces(traces: list[Trace]) -> TraceResult:
    """Return step budgets, gaps and rank waits.

    Args:
        traces: One a rank, of the same capture.
    """
    devices = [read_device(t) for t in traces]
    matching = _matching(devices)
    usable = not any(d.spoils_idle for device in devices for d in device.defects)
    ranks = tuple(_rank(i, d, matching, usable=usable) for i, d in enumerate(devices))
    collectives = tuple(_collectives(devices, matching))
    straggler, reason = _straggler(ranks, matching)
    findings = _findings(devices, ranks, matching)
    codes = {d.code for device in devices for d in device.defects}
    if matching is not None and matching.refused and len(devices) > 1:
        codes.add("unequal-ranks")
    if matching is not None and any(matching.offsets_ns):
        codes.add("clock-offset")
    return TraceResult(
        quality=Quality(
            usable=usable,
            defects=tuple(code for code in DEFECTS if code in codes),
            resolution_ns=max((t.resolution_ns for t in traces), default=1),
        ),
        ranks=ranks,
        collectives=collectives,
        straggler_rank=None if straggler is None else ranks[straggler].rank,
        straggler_reason=reason,
        findings=tuple(findings),
    )


def _matching(devices: list[Device]) -> Matching | None:
    if len(devices) < 2:
        return None
    return match_ranks([d.trace for d in devices], [d.steps for d in devices])


def _rank(
    index: int, device: Device, matching: Matching | None, *, usable: bool
) -> Rank:
    trace, steps = device.trace, device.steps
    ops = trace.ops
    assert device.lanes is not None
    span = int(ops.end_ns.max() - ops.start_ns[0]) if len(ops) else 0
    short = device.gaps.end_ns - device.gaps.start_ns
    layers = find_layers(trace, steps)
    budget = None
    if len(device.start):
        budget = period_budgets(device.lanes, device.gaps, device.start, device.end)
    stitched = any(d.code == "stitched-timestamps" for d in device.defects)
    period = None if budget is None else budget.period_ns
    graph_gaps = device.gaps.parts_ns[:, 0][device.gaps.parts_ns[:, 0] > 0]
    typical = float(np.median(graph_gaps)) if len(graph_gaps) and not stitched else None
    idle_known = usable and bool(span)
    return Rank(
        rank=index if trace.rank is None else trace.rank,
        path=trace.path,
        n_steps=sum(k == device.kind for k in steps.kinds)
        if device.kind
        else len(steps),
        n_periods=len(device.start),
        step_kind=device.kind,
        step_source=steps.source,
        steps_by_kind=dict(Counter(steps.kinds)),
        step_ms=None if period is None else _spread(period),
        kernels_per_step=_kernels_per_step(device),
        kernels_per_layer=None if layers is None else layers[1],
        n_layers=None if layers is None else layers[0],
        budget_ms=_budget(index, device, budget, matching, usable=usable),
        idle_ms=_idle(budget, stitched=stitched) if usable else None,
        closes_to_pct=None if budget is None or not usable else closing_pct(budget),
        busy_pct=100 * length(device.lanes.busy) / span if idle_known else None,
        step_busy_pct=_step_busy(budget) if usable else None,
        n_device_ops=len(ops),
        span_ms=ms(span),
        gaps_below_1us_ms=ms(int(short[short < 1000].sum())) if usable else None,
        median_graph_gap_us=None if typical is None else typical / 1000,
        top_kernels=top_kernels(device),
        top_gaps=top_gaps(device, typical) if usable and not stitched else (),
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
    matching: Matching | None,
    *,
    usable: bool,
) -> Budget | None:
    if budget is None:
        return None
    talk = float(budget.part("communication").mean())
    wait = _exposed_wait(index, device, matching)
    if not talk:
        wait = 0.0
    return Budget(
        compute=ms(float(budget.part("compute").mean())),
        communication=ms(talk),
        communication_transfer=None if wait is None else ms(max(talk - wait, 0.0)),
        communication_wait=None if wait is None else ms(min(wait, talk)),
        memcpy=ms(float(budget.part("memcpy").mean())),
        idle=ms(float(budget.part("idle").mean())) if usable else None,
    )


def _exposed_wait(
    index: int, device: Device, matching: Matching | None
) -> float | None:
    """Mean waiting per step of this rank, nanoseconds, in its chosen periods."""
    if matching is None or matching.refused:
        return None
    total = 0
    for match in matching.matches:
        offset = matching.offsets_ns[index]
        start = match.start_ns[:, index] + offset
        at = np.searchsorted(device.start, start, side="right") - 1
        inside = (at >= 0) & (start < device.end[np.maximum(at, 0)])
        total += int(match.wait_ns[inside, index].sum())
    return total / len(device.start)


def _idle(budget: PeriodBudget | None, *, stitched: bool) -> IdleCauses | None:
    if budget is None:
        return None
    mean = budget.idle_ns.mean(axis=0)
    causes: dict[str, float | None] = {
        name: ms(float(value)) for name, value in zip(CAUSES, mean, strict=True)
    }
    if stitched:
        causes["inside_graph"] = None
    return IdleCauses(**causes)


def _collectives(devices: list[Device], matching: Matching | None) -> list[Collective]:
    if matching is None or matching.refused:
        return []
    n = max(min(len(d.steps) for d in devices), 1)
    found = []
    for match in matching.matches:
        last = match.start_ns.argmax(axis=1)
        found.append(
            Collective(
                name=match.name,
                per_step=len(match.step) / n,
                n_matched=len(match.step),
                transfer_ms=ms(int(match.transfer_ns.sum()) / n),
                wait_ms_by_rank=tuple(
                    ms(int(total) / n) for total in match.wait_ns.sum(axis=0)
                ),
                last_by_rank=tuple(int((last == r).sum()) for r in range(len(devices))),
            )
        )
    return sorted(found, key=lambda c: -sum(c.wait_ms_by_rank))


def _straggler(
    ranks: tuple[Rank, ...], matching: Matching | None
) -> tuple[int | None, str | None]:
    """Name the rank for which the others wait, and whether by work or by start."""
    if matching is None or matching.refused or not matching.matches:
        return None, None
    n = sum(len(m.step) for m in matching.matches)
    last = sum(
        np.bincount(m.start_ns.argmax(axis=1), minlength=len(ranks))
        for m in matching.matches
    )
    wait = sum(m.wait_ns.sum(axis=0) for m in matching.matches)
    worst = int(np.argmax(last))
    others = np.delete(np.asarray(wait), worst)
    # Arriving last by chance alone happens in 1 of n ranks.
    if np.asarray(last)[worst] < max(0.6 * n, 1.5 * n / len(ranks)):
        return None, "no rank arrives last in most collectives"
    if int(np.asarray(wait)[worst]) > 0.5 * float(others.mean()):
        return None, "the rank that arrives last most often waits nearly as long"
    return worst, _why(ranks, worst)


def _why(ranks: tuple[Rank, ...], worst: int) -> str:
    mine = ranks[worst].budget_ms
    rest = [r.budget_ms for i, r in enumerate(ranks) if i != worst]
    others = [b for b in rest if b is not None]
    if mine is None or not others:
        return "arrives last; too few steps to say whether by work or by start"
    work = mine.compute - float(np.median([b.compute for b in others]))
    idles = [b.idle for b in others if b.idle is not None]
    if mine.idle is None or not idles:
        return f"arrives last; computes {work:+.3f} ms a step against the median rank"
    start = mine.idle - float(np.median(idles))
    if work > max(start, 0.0):
        return f"by work: computes {work:+.3f} ms a step more than the median rank"
    if start > max(work, 0.0):
        return f"by start: idles {start:+.3f} ms a step more than the median rank"
    return "arrives last, with neither more work nor more idle time than the others"


def _findings(
    devices: list[Device], ranks: tuple[Rank, ...], matching: Matching | None
) -> list[Finding]:
    found = []
    for device, rank in zip(devices, ranks, strict=True):
        for defect in device.defects:
            spoils, meaning, do = DEFECTS[defect.code]
            found.append(
                Finding(
                    code=defect.code,
                    severity="error" if spoils else "warning",
                    message=f"rank {rank.rank}: {meaning} ({defect.detail})",
                    hint=do,
                )
            )
        found += _step_findings(rank)
    if matching is not None and matching.refused:
        found.append(
            Finding(
                code="unequal-ranks",
                severity="warning",
                message=f"{DEFECTS['unequal-ranks'][1]}: {matching.refused}",
                hint=DEFECTS["unequal-ranks"][2],
            )
        )
    if ranks:
        found.append(
            Finding(
                code="untraced-period-unknown",
                severity="info",
                message="the profiler slows a step; how much is unchecked here",
                hint="Hold the step period against the untraced TPOT of the same cell;"
                " above 15 % the host part says nothing.",
            )
        )
    return found


def _step_findings(rank: Rank) -> list[Finding]:
    if rank.step_source == "period":
        return [
            Finding(
                code="steps-from-period",
                severity="warning",
                message=f"rank {rank.rank}: no graph launches or annotations; the"
                " repeating kernel sequence may be a layer and not a step",
                hint="Capture with step annotations on.",
            )
        ]
    if 0 < rank.n_periods < 20:
        return [
            Finding(
                code="few-steps",
                severity="info",
                message=f"rank {rank.rank}: {rank.n_periods} whole steps; device time"
                " varies little between steps, but the host part needs 20 or more",
                hint="Capture 20 to 60 steps.",
            )
        ]
    return []
