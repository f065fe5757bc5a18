"""What a reader of a trace's figures must know, as findings."""

from collections import Counter

from stepscope.findings import Finding
from stepscope.timeline.arrivals import Arrivals
from stepscope.timeline.defect import DEFECTS
from stepscope.timeline.device import Device
from stepscope.timeline.heldup import held_up_by_prompts
from stepscope.timeline.matches import Matching
from stepscope.timeline.records import Rank
from stepscope.timeline.straggler import ranks_of_job
from stepscope.units import ms


def remarks(
    devices: list[Device],
    ranks: tuple[Rank, ...],
    matching: Matching | None,
    met: Arrivals | None,
    slower: float | None,
) -> list[Finding]:
    """Return the defects of every rank as findings, and what else limits the figures.

    Args:
        devices: The ranks' traces.
        ranks: Their records, in the same order.
        matching: Collectives over ranks; None for a single rank.
        met: The matched collectives; None where none match.
        slower: By how much the traced step exceeds the untraced one, percent.
    """
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
        if device.one_replay:
            found.append(
                Finding(
                    code="one-replay",
                    severity="info",
                    message=f"rank {rank.rank}: one graph replay holds most operations:"
                    " whether the profiler lost some of them would not show",
                    hint="Capture three steps or more.",
                )
            )
        found += _other_graphs(device, rank)
        found += _source_findings(rank, device.steps.doubt)
    if matching is not None and matching.refused:
        found.append(
            Finding(
                code="unequal-ranks",
                severity="warning",
                message=f"{DEFECTS['unequal-ranks'][1]}: {matching.refused}",
                hint=DEFECTS["unequal-ranks"][2],
            )
        )
    found += _odd_ranks(devices)
    found += held_up_by_prompts(devices, ranks, matching)
    if matching is not None and matching.left_out:
        text = (
            "in some collectives ranks leave before the last arrives, so these show no"
            f" waiting: {', '.join(matching.left_out)}"
        )
        found.append(Finding(code="no-meeting", severity="info", message=text, hint=""))
    if matching is not None and met is not None:
        found += _open_waiting(matching, met)
    stalled = any(device.has("stalled-steps") for device in devices)
    found += _slowdown(ranks, slower, stalled=stalled)
    return found


def _odd_ranks(devices: list[Device]) -> list[Finding]:
    said = Counter(d.trace.rank for d in devices if d.trace.rank is not None)
    found = [
        Finding(
            code="rank-twice",
            severity="warning",
            message=f"{n} traces say that they are rank {rank}: of different runs, or"
            " of engines that number their ranks alike; ranks are numbered as given",
            hint="Take one trace a rank, of one capture.",
        )
        for rank, n in said.items()
        if n > 1
    ]
    world = ranks_of_job(devices) if devices else 0
    if 1 < len(devices) < world:
        found.append(
            Finding(
                code="ranks-missing",
                severity="warning",
                message=f"{len(devices)} of {world} ranks: where a rank that is not"
                " here arrives last, waiting for it is counted as transfer",
                hint="Take all ranks' traces of the same steps.",
            )
        )
    return found


def _open_waiting(matching: Matching, met: Arrivals) -> list[Finding]:
    """Say what is open of waiting where ends of one collective differ."""
    n_open = met.open_ns
    waited = int(met.waited[~met.on_host].max(axis=1, initial=0).sum())
    if 4 * n_open < waited or not n_open:
        return []
    text = (
        f"ranks leave collectives {ms(n_open / matching.n_steps):.3f} ms a step apart"
        f" in all, where {ms(waited / matching.n_steps):.3f} ms are waited: by so"
        " much waiting and transfer may be the other"
    )
    return [Finding(code="waiting-open", severity="info", message=text, hint="")]


def _slowdown(
    ranks: tuple[Rank, ...], slower: float | None, *, stalled: bool
) -> list[Finding]:
    if not ranks:
        return []
    if slower is None:
        return [
            Finding(
                code="untraced-period-unknown",
                severity="info",
                message="the profiler slows a step; how much is unchecked here",
                hint="Hold the step period against the untraced TPOT of the same cell"
                " (--untraced-step-ms); above 15 % the host part says nothing.",
            )
        ]
    _, meaning, do = DEFECTS["profiler-slowdown"]
    if slower > 15:
        text = f"{meaning}: {slower:+.1f} %"
    elif slower < -15:
        text = f"the traced step is {-slower:.1f} % shorter: not the same cell"
        if stalled:
            text += ", or its load has such steps as were left out here as stalled"
        do = "Trace the cell at its own concurrency."
    else:
        return []
    return [
        Finding(code="profiler-slowdown", severity="warning", message=text, hint=do)
    ]


def _other_graphs(device: Device, rank: Rank) -> list[Finding]:
    """Say how many graph replays are in no step figure, if not for lost records."""
    n = device.steps.n_other_graphs - device.n_cut
    if n <= 0 or any(defect.spoils_idle for defect in device.defects):
        return []
    text = (
        f"rank {rank.rank}: {n} of {n + len(device.steps)} steps replayed a"
        " graph of another size than the usual one and nothing says of what kind they"
        " are: they are in no figure of a step"
    )
    return [
        Finding(
            code="other-graphs",
            severity="info",
            message=text,
            hint="Capture with step annotations on.",
        )
    ]


def _source_findings(rank: Rank, doubt: str | None) -> list[Finding]:
    if doubt is not None and rank.step_source == "graph-launches":
        return [
            Finding(
                code="steps-ambiguous",
                severity="warning",
                message=f"rank {rank.rank}: {doubt}",
                hint="Capture with step annotations on.",
            )
        ]
    if rank.step_source == "period":
        return [
            Finding(
                code="steps-from-period",
                severity="warning",
                message=f"rank {rank.rank}: no graph launches or annotations; the"
                " repeating kernel sequence may be a layer and not a step, or several"
                " steps",
                hint="Capture with step annotations on.",
            )
        ]
    if rank.step_source == "none" and rank.n_device_ops:
        return [
            Finding(
                code="no-steps",
                severity="warning",
                message=f"rank {rank.rank}: no graph of 20 nodes or more is replayed"
                " three times, no step is annotated and no sequence of kernels repeats"
                " steadily: no figure is of a step",
                hint="Capture 20 to 60 steps, with step annotations on.",
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
