"""power: the power or thermal limit holds the clocks down."""

from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView
from stepscope.physics.hardware import find_gpu

#: NVML's clock-event reasons that hold a loaded GPU back.
_LIMITS = frozenset(
    {"sw-power-cap", "hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"}
)
#: What else lowers the clock; beside one of these the drop is not the limit's alone.
_OTHER_CLOCKS = frozenset(
    {"gpu-idle", "applications-clocks", "sync-boost", "display-clocks"}
)
_CLOCK_DROP_PCT = 2.0
#: Its value is the most that the limit can take of a step, percent.
CLOCK_DROP = "SM clock below its maximum"
_FAR_FROM_CAP_PCT = 80.0


def _clock_drop_pct(view: CellView) -> float | None:
    telemetry = view.telemetry
    if telemetry is None or not telemetry.sm_clock_max_mhz:
        return None
    if telemetry.sm_clock_mhz is None:
        return None
    return 100 * (1 - telemetry.sm_clock_mhz / telemetry.sm_clock_max_mhz)


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
    if not reasons:
        return Opinion(status="ruled-out", share_pct=0.0, evidence=(item,))
    if drop is None:
        return Opinion(status="standing", evidence=(item,))
    clock = seen(
        view,
        CLOCK_DROP,
        drop,
        "%",
        "mean over the window; a step slows by at most this share",
    )
    if drop > _CLOCK_DROP_PCT:
        if _OTHER_CLOCKS.intersection(telemetry.throttle_reasons):
            return Opinion(status="standing", evidence=(item, clock))
        return Opinion(
            status="supported",
            headline=f"clocks held down by {' and '.join(reasons)}",
            evidence=(item, clock),
        )
    return Opinion(status="ruled-out", share_pct=max(drop, 0.0), evidence=(item, clock))


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
    clock = seen(view, CLOCK_DROP, drop, "%", "mean over the window")
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
            threshold="supported: a limiting reason and an SM clock more than"
            f" {_CLOCK_DROP_PCT:.0f} % below its maximum, and no other reason (idle,"
            " set clocks) in the window; ruled out: no limiting reason, or the clock"
            " within that",
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
