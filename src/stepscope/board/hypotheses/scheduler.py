"""scheduler: the engine's own loop, between steps, sets the period."""

import numpy as np

from stepscope.board.hypotheses import steplines
from stepscope.board.hypotheses.device import resident
from stepscope.board.hypotheses.launching import idle_rule, timeline_wanted
from stepscope.board.opinion import (
    AT_MOST_PCT,
    FULL_CORE_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.timelines import Part
from stepscope.board.view import CellView, core_pct

#: An engine that waits this share of its period for a result leaves at most the
#: rest to its own work.
_WAITS_PCT = 90.0


def elapsed_share_pct(view: CellView) -> float | None:
    """Return the engine's wait for a result over its step period, percent.

    Only iterations inside the cell span that hold no prefill count; fewer than 50
    are no median of anything.
    """
    span = view.span_ns()
    log = view.launch.log if view.launch is not None else None
    step = view.result.engine_step_ms if view.result is not None else None
    if span is None or log is None or not step:
        return None
    waits = [
        event.numbers["elapsed_ms"]
        for event in log.events
        if event.kind == "iteration"
        and event.at_ns is not None
        and span[0] <= event.at_ns <= span[1]
        and not event.numbers.get("context_requests")
        and not event.numbers.get("dummy")
        and "elapsed_ms" in event.numbers
    ]
    return float(100 * np.median(waits) / step) if len(waits) >= 50 else None


def _waits_for_result(view: CellView) -> Opinion | None:
    share = elapsed_share_pct(view)
    if share is None:
        return None
    own = max(100 - share, 0.0)
    item = seen(
        view,
        "engine's wait for a result, of its step period",
        share,
        "%",
        f"the other {own:.0f} % is the engine's own work or overlaps the GPU; only a"
        " timeline tells these apart",
    )
    if share >= _WAITS_PCT:
        return Opinion(status="ruled-out", share_pct=own, evidence=(item,))
    return Opinion(status="standing", evidence=(item,))


def _idle_gpu(view: CellView) -> Opinion | None:
    bound = resident(view)
    if bound is None or bound[0] >= 100 - AT_MOST_PCT:
        return None
    util, item = bound
    why = (
        f"no kernel was resident for at least {100 - util:.0f} % of a decode step; that"
        " could be the scheduler, launching or gaps inside the step"
    )
    item = seen(view, item.quantity, float(util), "% of a step, at most", why)
    return Opinion(status="standing", evidence=(item,))


def _busy_core(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None:
        return None
    cpu = core_pct(telemetry, "engine-core")
    if cpu is None or cpu < FULL_CORE_PCT:
        return None
    item = seen(
        view,
        "CPU of the engine core",
        cpu,
        "% of a core",
        "near one core: its loop may be the limit, or launching that runs in it, or it"
        " polls for a result; alone it does not say which",
    )
    return Opinion(status="standing", evidence=(item,))


def _would_decide(view: CellView) -> str:
    if view.has_gpu is False:
        return (
            "A profile of the server's process that splits its time into scheduling"
            " and computing (perf record -g -p PID during a cell); stepscope has no"
            " such measurement for a CPU engine."
        )
    missing = ""
    result = view.result
    if result is None or result.engine_step_ms is None:
        missing = f"; {steplines.wanted(view)}, for the engine's step period beside it"
    return f"{timeline_wanted(view)}{missing}."


_STEP_BOUNDARY = Part(
    quantity="idle before the host launches a graph",
    causes=("host_not_launching_yet",),
    perhaps=("no_launch_record",),
    headline="the engine's own loop between steps",
    needs_graphs=True,
)

SCHEDULER = Hypothesis(
    id="scheduler",
    claim="The engine's own loop between steps, not the device, sets the period.",
    rules=(
        idle_rule(_STEP_BOUNDARY),
        Rule(
            name="waits-for-result",
            measurement="logged wait for a result against the engine's step period",
            threshold=f"ruled out: the engine waits at least {_WAITS_PCT:.0f} % of the"
            " period; a short wait decides nothing, for launching runs in the same"
            " loop",
            blind="host work that overlaps the device",
            test=_waits_for_result,
        ),
        Rule(
            name="idle-gpu",
            measurement="GPU utilization inside the window",
            threshold=f"bears on it below {100 - AT_MOST_PCT:.0f} %",
            blind="why no kernel was resident; gaps shorter than the driver resolves",
            test=_idle_gpu,
        ),
        Rule(
            name="busy-core",
            measurement="CPU of the engine core's busiest thread",
            threshold=f"bears on it from {FULL_CORE_PCT:.0f} % of a core",
            blind="whether anything waited for it; a loop that polls",
            test=_busy_core,
        ),
    ),
    would_decide=_would_decide,
)
