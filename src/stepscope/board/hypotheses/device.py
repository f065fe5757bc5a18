"""What bandwidth and compute share: work on a device that hardly works is neither."""

from stepscope.board.hypotheses.floors import (
    counted_step,
    floor_share,
    of_step,
    of_window,
)
from stepscope.board.opinion import AT_MOST_PCT, Opinion, Rule, seen
from stepscope.board.records import Evidence
from stepscope.board.timelines import busy, traced
from stepscope.board.view import CellView

#: How the counters of a GPU are had.
SAMPLE_COUNTERS = (
    "of the same launch: sample GPM (stepscope run does where the driver offers it;"
    " stepscope doctor says whether)"
)
#: A share of a peak above it is no share: the counter, or its peak, is another's.
_WHOLE_PCT = 100.5
_SCATTER_POINTS = 1.0


def impossible(
    view: CellView, quantity: str, value: float | None
) -> tuple[Evidence, ...]:
    """Return evidence that refuses a counter above its own peak; empty: it may be."""
    if value is None or 0 <= value <= _WHOLE_PCT:
        return ()
    why = "no share of a peak: the counter is broken or its unit another; not read"
    return (seen(view, quantity, value, "% of peak", why),)


def _resident_of_window(view: CellView) -> tuple[float, str] | None:
    """Return for how much of the window a kernel was resident, percent, at most.

    Of the busiest GPU, for others may take no part. Utilization overstates work, so it
    bounds from above; None where few samples or a loose window could have missed the
    load.
    """
    telemetry = view.telemetry
    if telemetry is None or telemetry.util_pct is None:
        return None
    if view.findings(
        "telemetry-window-mismatch", "telemetry-too-sparse", "gpus-not-told"
    ):
        return None
    high = max(telemetry.util_pct, *(telemetry.util_pct_range or (0.0,)))
    high = min(high + (telemetry.util_spread_points or 0.0), 100.0)
    why = "an upper bound: for the rest of the window no kernel was resident"
    if telemetry.util_spread_points:
        why += "; of the busiest GPU, by the mean and the spread over GPUs"
    return high, why


def resident(view: CellView) -> tuple[float, Evidence] | None:
    """Return for how much of a decode step a kernel was resident, percent, at most."""
    bound = _resident_of_window(view)
    if bound is None:
        return None
    high, why = bound
    most = of_step(view, high)
    if most > high + _SCATTER_POINTS:
        why += f"; decode steps ran for a part of it, so up to {most:.3g} % of a step"
    return most, seen(view, "GPU utilization", high, "%", why)


def exceeds_residence(view: CellView, share_pct: float) -> tuple[Evidence, ...]:
    """Return utilization where it is below what work is to take of the window."""
    bound = _resident_of_window(view)
    if bound is None or bound[0] >= share_pct:
        return ()
    return (seen(view, "GPU utilization", bound[0], "%", bound[1]),)


def _idle_gpu(view: CellView) -> Opinion | None:
    """Rule out work on the device that hardly ever has a kernel resident."""
    bound, window = resident(view), _resident_of_window(view)
    if bound is None or window is None or bound[0] >= AT_MOST_PCT:
        return None
    more = _works_more(view, window[0])
    if more is not None:
        return Opinion(status="standing", evidence=(bound[1], more), contradicts=True)
    return Opinion(status="ruled-out", share_pct=bound[0], evidence=(bound[1],))


def _works_more(view: CellView, high: float) -> Evidence | None:
    """Return a measurement by which the device works more than it reads.

    Then the samples are of another device, or of another time.
    """
    floor, at_work, telemetry = floor_share(view), busy(view), view.telemetry
    step = counted_step(view)
    if at_work is not None and at_work.decides and step is not None:
        works = of_window(view, at_work.pct, step[0])
        if works > high:
            return at_work.evidence
    if floor is not None and not view.doubts:
        moves = of_window(view, floor.low_pct, floor.step_ms)
        if moves > high:
            return floor.evidence
    active = None if telemetry is None else telemetry.sm_active_pct
    if active is None or active <= high + _SCATTER_POINTS:
        return None
    why = "SMs that are active have a kernel resident: one of the two is another's"
    return seen(view, "SM activity", active, "%", why)


def _idle_timeline(view: CellView) -> Opinion | None:
    step = traced(view)
    if step is None or not step.untraced_step_ms or step.n_ranks != view.n_ranks:
        return None
    worked = max(rank.compute_ms + rank.memcpy_ms for rank in step.ranks)
    high = 100 * worked / step.untraced_step_ms
    if high >= AT_MOST_PCT:
        return None
    why = (
        f"an upper bound: {worked:.3g} ms of kernels and copies on the busiest rank,"
        f" over the untraced step of {step.untraced_step_ms:.3g} ms"
    )
    return Opinion(
        status="ruled-out",
        share_pct=high,
        evidence=(seen(view, "device at work, by timeline", high, "%", why),),
    )


IDLE_GPU = Rule(
    name="idle-gpu",
    measurement="GPU utilization inside the window, of the busiest GPU",
    threshold=f"ruled out: below {AT_MOST_PCT:.0f} % of the time in which decode steps"
    " ran, with a sound window, unless the byte floor, a timeline or SM activity says"
    " that the device works more",
    blind="everything while a kernel is resident",
    test=_idle_gpu,
)
IDLE_TIMELINE = Rule(
    name="idle-timeline",
    measurement="kernels and copies in a timeline of all ranks, over the untraced step",
    threshold=f"ruled out: below {AT_MOST_PCT:.0f} %",
    blind="what the kernels do",
    test=_idle_timeline,
)
