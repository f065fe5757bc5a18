"""power: the power or thermal limit holds the clocks down."""

from stepscope.board.hypotheses.floors import floor_share
from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.records import Evidence, Status
from stepscope.board.view import CellView
from stepscope.physics.hardware import find_gpu

#: NVML's clock-event reasons that hold a loaded GPU back.
_LIMITS = frozenset(
    {"sw-power-cap", "hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"}
)
#: Those that act near the power cap.
_OF_POWER = frozenset({"sw-power-cap", "hw-power-brake"})
#: What else lowers the clock; beside one of these the drop is not the limit's alone.
_OTHER_CLOCKS = frozenset(
    {"gpu-idle", "applications-clocks", "sync-boost", "display-clocks"}
)
_CLOCK_DROP_PCT = 2.0
#: A limit that can take less of a step than this is no cause of its length, as prefill
#: that takes less is none.
_TAKES_PCT = 10.0
_CLOCK_DROP = "SM clock below its maximum"
#: Its value is the most that the limit can take of a step, percent.
CLOCK_TAKES = "part of a step that the clock can take, at most"
_FAR_FROM_CAP_PCT = 80.0
_LIFTED = (
    "The same cell with the power limit raised, or with the SM clock locked lower still"
    " (nvidia-smi -lgc), in one session (stepscope compare): how much of the step"
    " follows the clock."
)


def _clock_drop_pct(view: CellView) -> float | None:
    """Return how far the slowest GPU's clock is below its maximum, percent."""
    telemetry = view.telemetry
    if telemetry is None:
        return None
    if telemetry.sm_clock_drop_pct_max is not None:
        return telemetry.sm_clock_drop_pct_max
    if telemetry.sm_clock_mhz is None or not telemetry.sm_clock_max_mhz:
        return None
    return 100 * (1 - telemetry.sm_clock_mhz / telemetry.sm_clock_max_mhz)


def _most_pct(view: CellView, drop: float) -> tuple[float, str]:
    """Return the most of a step that a lower SM clock can take, and why.

    At full clock a step of t takes t (1 - drop) where all of it follows the clock, and
    never less than its bytes at the data sheet's bandwidth: memory has a clock of its
    own.
    """
    floor = None if view.doubts else floor_share(view)
    if floor is None or 100 - floor.pct >= drop:
        return drop, "all of the step, if it follows the SM clock"
    left = max(100 - floor.pct, 0.0)
    return left, (
        f"the bytes alone are {floor.pct:.3g} % of the step and do not follow the SM"
        " clock"
    )


def _reasons(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.throttle_reasons is None:
        return None
    reasons = sorted(_LIMITS.intersection(telemetry.throttle_reasons))
    drop = _clock_drop_pct(view)
    item = seen(
        view,
        "clock-event reasons in the window",
        ", ".join(telemetry.throttle_reasons) or "none",
        "",
        "union over all samples: it says that a limit acted, not for how long",
    )
    if drop is None:
        status: Status = "standing" if reasons else "ruled-out"
        share = None if reasons else 0.0
        return Opinion(status=status, share_pct=share, evidence=(item,))
    most, why = _most_pct(view, drop)
    clock = seen(view, _CLOCK_DROP, drop, "%", "mean over the window, slowest GPU")
    takes = seen(view, CLOCK_TAKES, most, "% of the step", why)
    if drop <= _CLOCK_DROP_PCT:
        return Opinion(
            status="ruled-out", share_pct=max(most, 0.0), evidence=(item, clock)
        )
    if not reasons:
        return _low_without_a_reason(view, (item, clock))
    others = _OTHER_CLOCKS.intersection(telemetry.throttle_reasons)
    far = () if set(reasons) - _OF_POWER else _far_from_cap(view)
    if others or far or most < _TAKES_PCT:
        return Opinion(status="standing", evidence=(item, clock, takes, *far))
    return Opinion(
        status="supported",
        headline=f"clocks held down by {' and '.join(reasons)}",
        evidence=(item, clock, takes),
        no_share=f"No share of the step: clocks bound it from above alone (at most"
        f" {most:.3g} %). {_LIFTED}",
    )


def _low_without_a_reason(view: CellView, evidence: tuple[Evidence, ...]) -> Opinion:
    """Rule power out where the clock is low for a reason that is none of its limits."""
    telemetry = view.telemetry
    assert telemetry is not None
    told = _OTHER_CLOCKS.intersection(telemetry.throttle_reasons or ())
    if told:
        return Opinion(status="ruled-out", share_pct=0.0, evidence=evidence)
    return Opinion(status="standing", evidence=evidence)


def _far_from_cap(view: CellView) -> tuple[Evidence, ...]:
    """Return the power drawn where a power cap can hardly have acted all the time."""
    telemetry = view.telemetry
    cap, whose = _cap(view)
    if telemetry is None or telemetry.power_w is None or cap is None:
        return ()
    high = max(telemetry.power_w, *(telemetry.power_w_range or (0.0,)))
    if 100 * high >= _FAR_FROM_CAP_PCT * cap:
        return ()
    why = (
        f"mean {high:.0f} W of the {whose} {cap:.0f} W: a cap that acts draws near it,"
        " so it did not hold the clock down for most of the window"
    )
    return (seen(view, "power of the cap", 100 * high / cap, "%", why),)


def _cap(view: CellView) -> tuple[float | None, str]:
    """Return the power cap of a GPU, W, and whose figure it is."""
    telemetry = view.telemetry
    if telemetry is not None and telemetry.power_limit_w:
        return telemetry.power_limit_w, "enforced"
    gpu = find_gpu(view.run.gpu) if view.run.gpu else None
    return (gpu.power_w if gpu is not None else None), "data sheet's"


def _headroom(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.throttle_reasons is not None:
        return None
    cap, whose = _cap(view)
    if telemetry.power_w is None or cap is None:
        return None
    high = max(telemetry.power_w, *(telemetry.power_w_range or (0.0,)))
    of_cap = 100 * high / cap
    drop = _clock_drop_pct(view)
    item = seen(
        view,
        "power of the cap",
        of_cap,
        "%",
        f"mean {high:.0f} W of the {whose} {cap:.0f} W; peaks between samples are not"
        " seen",
    )
    if drop is None:
        return Opinion(status="standing", evidence=(item,))
    clock = seen(view, _CLOCK_DROP, drop, "%", "mean over the window")
    calm = of_cap < _FAR_FROM_CAP_PCT and drop <= _CLOCK_DROP_PCT
    return Opinion(
        status="ruled-out" if calm else "standing",
        share_pct=max(drop, 0.0) if calm else None,
        evidence=(item, clock),
    )


def _draw_only(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.throttle_reasons is not None:
        return None
    if telemetry.power_w is None or _cap(view)[0] is not None:
        return None
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "power drawn",
                telemetry.power_w,
                "W",
                "the enforced cap was not recorded, so this is no share of it",
            ),
        ),
    )


def _would_decide(view: CellView) -> str:
    if view.has_gpu is False:
        return (
            "The CPU's clock and throttle counters during a cell"
            " (/sys/devices/system/cpu/cpu*/cpufreq and thermal_throttle); stepscope"
            " does not sample them."
        )
    if _clock_drop_pct(view) is not None and view.telemetry is not None:
        reasons = view.telemetry.throttle_reasons
        if reasons is not None and _LIMITS.intersection(reasons):
            return _LIFTED
    return (
        "NVML's clock-event reasons, the enforced power cap and the maximum SM clock,"
        " sampled inside the window (stepscope run samples all three)."
    )


POWER = Hypothesis(
    id="power",
    claim="The power or thermal limit holds the clocks down.",
    rules=(
        Rule(
            name="clock-event-reasons",
            measurement="NVML clock-event reasons and SM clock inside the window",
            threshold="supported: a limiting reason, no other one (idle, set clocks),"
            " an SM clock of the slowest GPU so far below its maximum that it can take"
            f" {_TAKES_PCT:.0f} % of the step, and, for power caps, a draw of at least"
            f" {_FAR_FROM_CAP_PCT:.0f} % of the cap; ruled out: the clock within"
            f" {_CLOCK_DROP_PCT:.0f} %, or lower for another reason alone",
            blind="how long a reason acted; memory clocks",
            test=_reasons,
        ),
        Rule(
            name="headroom",
            measurement="power against the cap (enforced, else the data sheet's), SM"
            " clock against its maximum",
            threshold=f"ruled out: below {_FAR_FROM_CAP_PCT:.0f} % of the cap and the"
            f" clock within {_CLOCK_DROP_PCT:.0f} % (a cap that acts draws near it)",
            blind="peaks between samples",
            test=_headroom,
        ),
        Rule(
            name="draw",
            measurement="power without a cap",
            threshold="bears on it; decides nothing",
            blind="the cap",
            test=_draw_only,
        ),
    ),
    would_decide=_would_decide,
)
