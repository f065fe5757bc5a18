"""What bandwidth and compute share: work on a device that hardly works is neither."""

from stepscope.board.opinion import AT_MOST_PCT, Opinion, Rule, seen
from stepscope.board.timelines import traced
from stepscope.board.view import CellView

#: How the counters of a GPU are had.
SAMPLE_COUNTERS = (
    "of the same launch: sample GPM (stepscope run does where the driver offers it;"
    " stepscope doctor says whether)"
)


def _idle_gpu(view: CellView) -> Opinion | None:
    """Rule out work on the device that hardly ever has a kernel resident.

    Utilization overstates work, so it bounds from above; it is refused when few
    samples or a loose window could have missed the load.
    """
    telemetry = view.telemetry
    if telemetry is None or telemetry.util_pct is None:
        return None
    high = max(telemetry.util_pct, *(telemetry.util_pct_range or (0.0,)))
    if high >= AT_MOST_PCT or view.findings(
        "telemetry-window-mismatch", "telemetry-too-sparse"
    ):
        return None
    why = "an upper bound: for the rest of the window no kernel was resident"
    return Opinion(
        status="ruled-out",
        share_pct=high,
        evidence=(seen(view, "GPU utilization", high, "%", why),),
    )


def _idle_timeline(view: CellView) -> Opinion | None:
    step = traced(view)
    if step is None or not step.untraced_step_ms:
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
    measurement="GPU utilization inside the window",
    threshold=f"ruled out: below {AT_MOST_PCT:.0f} %, with a sound window",
    blind="everything while a kernel is resident",
    test=_idle_gpu,
)
IDLE_TIMELINE = Rule(
    name="idle-timeline",
    measurement="kernels and copies in a timeline, over the untraced step",
    threshold=f"ruled out: below {AT_MOST_PCT:.0f} %",
    blind="what the kernels do",
    test=_idle_timeline,
)
