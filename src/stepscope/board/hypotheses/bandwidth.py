"""bandwidth: moving bytes between memory and the chip takes the step."""

from stepscope.board.opinion import (
    AT_LEAST_PCT,
    AT_MOST_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.records import Evidence
from stepscope.board.view import CellView

#: DRAM counter that agrees with a floor of AT_LEAST_PCT: the mean holds prefill and
#: ramps that move fewer bytes.
_AGREES_PCT = 50.0


def floor_share(view: CellView) -> tuple[float, Evidence] | None:
    """Return the byte floor's share of the step, percent, with its evidence."""
    floor, step = view.floor, view.step_ms
    if floor is None or not step:
        return None
    share = 100 * floor.floor_ms / step
    return share, seen(
        view,
        "byte floor of the step",
        share,
        "% of the step",
        f"{floor.floor_ms:.3g} ms are needed to move the bytes once, of a step of"
        f" {step:.3g} ms; a lower bound, so a small share excludes nothing",
    )


def _counter(view: CellView) -> tuple[float, Evidence] | None:
    telemetry = view.telemetry
    if telemetry is None:
        return None
    value = telemetry.dram_bw_pct_median
    if value is None:
        value = telemetry.dram_bw_pct
    if value is None:
        return None
    return value, seen(
        view,
        "DRAM bandwidth counter",
        value,
        "% of peak",
        "GPM over the telemetry window, prefill included; real traffic reaches about"
        " nine tenths of peak",
    )


def _dram_counter(view: CellView) -> Opinion | None:
    counter = _counter(view)
    if counter is None:
        return None
    value, item = counter
    if value >= AT_LEAST_PCT:
        return Opinion(
            status="supported",
            share_pct=min(value, 100.0),
            headline="memory bandwidth",
            evidence=(item,),
        )
    if value < AT_MOST_PCT:
        return Opinion(status="ruled-out", share_pct=value / 0.9, evidence=(item,))
    return Opinion(status="standing", evidence=(item,))


def _floor_with_counter(view: CellView) -> Opinion | None:
    floor, counter = floor_share(view), _counter(view)
    if floor is None or counter is None:
        return None
    if floor[0] < AT_LEAST_PCT or counter[0] < _AGREES_PCT:
        return None
    return Opinion(
        status="supported",
        share_pct=min(floor[0], 100.0),
        headline="memory bandwidth",
        evidence=(floor[1], counter[1]),
    )


def _floor_alone(view: CellView) -> Opinion | None:
    floor = floor_share(view)
    if floor is None:
        return None
    return Opinion(
        status="standing", share_pct=min(floor[0], 100.0), evidence=(floor[1],)
    )


def idle_bound(view: CellView) -> Opinion | None:
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
    return Opinion(
        status="ruled-out",
        share_pct=high,
        evidence=(
            seen(
                view,
                "GPU utilization",
                high,
                "%",
                "an upper bound: for the rest of the window no kernel was resident",
            ),
        ),
    )


def _would_decide(view: CellView) -> str:
    if view.has_gpu is False:
        return (
            "The memory controller's counters beside the byte floor (perf stat with"
            " the uncore events during a cell); stepscope does not sample them."
        )
    return (
        "The DRAM counter of the same launch: sample GPM (stepscope run does where"
        " the driver offers it; stepscope doctor says whether), beside the byte floor"
        " (stepscope floor). Without counters: a timeline of this cell that is at"
        " least 90 % busy."
    )


BANDWIDTH = Hypothesis(
    id="bandwidth",
    claim="Moving weights and KV from memory takes the larger part of the step.",
    rules=(
        Rule(
            name="floor-with-counter",
            measurement="byte floor and DRAM counter of the same launch",
            threshold=f"supported: floor at least {AT_LEAST_PCT:.0f} % of the step"
            f" and counter at least {_AGREES_PCT:.0f} % of peak",
            blind="bytes moved more than once",
            test=_floor_with_counter,
        ),
        Rule(
            name="dram-counter",
            measurement="DRAM bandwidth counter (GPM) inside the window",
            threshold=f"supported: at least {AT_LEAST_PCT:.0f} % of peak; ruled out:"
            f" below {AT_MOST_PCT:.0f} %",
            blind="which bytes; short phases within a step",
            test=_dram_counter,
        ),
        Rule(
            name="idle-gpu",
            measurement="GPU utilization inside the window",
            threshold=f"ruled out: below {AT_MOST_PCT:.0f} %, with a sound window",
            blind="everything while a kernel is resident",
            test=idle_bound,
        ),
        Rule(
            name="floor",
            measurement="byte floor against the step",
            threshold="bears on it; decides nothing alone: the floor is a lower"
            " bound, and a step of that length can have another cause",
            blind="bytes moved more than once; whether the device was busy",
            test=_floor_alone,
        ),
    ),
    would_decide=_would_decide,
)
