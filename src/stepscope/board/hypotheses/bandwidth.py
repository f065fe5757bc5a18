"""bandwidth: moving bytes between memory and the chip takes the step."""

from stepscope.analysis.across.points import tokens_a_step
from stepscope.analysis.across.records import FloorPoint
from stepscope.analysis.across.traces import decode_step_ms
from stepscope.board.hypotheses.device import (
    IDLE_GPU,
    IDLE_TIMELINE,
    SAMPLE_COUNTERS,
)
from stepscope.board.hypotheses.reading import read_rate
from stepscope.board.opinion import (
    AT_LEAST_PCT,
    AT_MOST_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.records import Evidence
from stepscope.board.timelines import busy
from stepscope.board.view import CellView

#: DRAM counter that agrees with a floor of AT_LEAST_PCT: the mean holds prefill and
#: ramps that move fewer bytes.
_AGREES_PCT = 50.0
#: Share of the peak that real traffic reaches.
_REACHES = 0.9
#: Busy share of a step from which its time is that of its kernels.
_BUSY_PCT = 90.0
#: Counter and floor agree within this; a counter's own scatter is about a point.
_AGREE_POINTS = 3.0


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
    most, floor = value / _REACHES, floor_share(view)
    if most >= AT_MOST_PCT:
        return Opinion(status="standing", evidence=(item,))
    if floor is not None and floor[0] > most:
        # Two bounds that exclude each other: the counter's window holds other steps
        # than the floor's (prefill, ramps), or the floor's assumptions fail.
        return Opinion(status="standing", evidence=(item, floor[1]))
    return Opinion(status="ruled-out", share_pct=most, evidence=(item,))


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


def _floor_with_timeline(view: CellView) -> Opinion | None:
    """Weigh the bytes at the rate that memory gives, where the device is busy."""
    floor, at_work = view.floor, busy(view)
    step = decode_step_ms(view.result) if view.result is not None else None
    if floor is None or at_work is None or step is None:
        return None
    rate = read_rate(view, floor)
    if rate is None or floor.bandwidth_bytes_per_s is None:
        return None
    floor_ms = floor.floor_ms * floor.bandwidth_bytes_per_s / rate.bytes_per_s
    share = 100 * floor_ms / step[0]
    item = seen(
        view,
        "byte floor at the rate of reading",
        share,
        "% of the step",
        f"{floor_ms:.3g} ms to move the bytes of a step once at {rate.name}, of a"
        f" decode step of {step[0]:.3g} ms ({step[1]})",
    )
    every = (item, at_work.evidence, rate.evidence)
    evidence = tuple(e for e in every if e is not None)
    enough = share >= AT_LEAST_PCT and at_work.pct >= _BUSY_PCT and at_work.decides
    if not enough:
        return Opinion(
            status="standing", share_pct=min(share, 100.0), evidence=evidence
        )
    return Opinion(
        status="supported",
        share_pct=min(share, 100.0),
        headline=_headline(floor),
        evidence=evidence,
    )


def _headline(floor: FloorPoint) -> str:
    """Name what is read where most of it is experts."""
    of_experts = floor.coverage is not None and floor.expert_bytes is not None
    if of_experts and (floor.expert_bytes or 0.0) > floor.bytes_per_rank / 2:
        return "memory bandwidth (experts read, by coverage)"
    return "memory bandwidth"


def _floor_alone(view: CellView) -> Opinion | None:
    floor = floor_share(view)
    if floor is None:
        return None
    agreement = _agreement(view)
    return Opinion(
        status="standing",
        share_pct=min(floor[0], 100.0),
        evidence=(floor[1],) if agreement is None else (floor[1], agreement),
    )


def _agreement(view: CellView) -> Evidence | None:
    """Return the traffic that bytes and TPOT come to, beside what the counter reads."""
    floor, counter, result = view.floor, _counter(view), view.result
    if floor is None or counter is None or result is None:
        return None
    tpot = (
        result.tpot_ms.mean if result.server_tpot_ms is None else result.server_tpot_ms
    )
    if not tpot:
        return None
    traffic, read = 100 * floor.floor_ms / (tpot * tokens_a_step(result)), counter[0]
    apart = read - traffic
    words = f"the DRAM counter reads {read:.3g} % (median), {apart:+.1f} points: "
    if abs(apart) <= _AGREE_POINTS:
        words += "two measurements that know nothing of each other agree"
    elif apart > 0:
        words += (
            "more is read than decode steps need; prefill that shares steps reads too,"
            " and lengthens TPOT"
        )
    else:
        words += (
            "less is read than the floor says: much of the window is no decode step,"
            " or coverage or shapes are not as assumed"
        )
    return seen(
        view,
        f"bytes of a step over TPOT, at concurrency {result.concurrency}",
        traffic,
        "% of peak",
        words,
    )


def _would_decide(view: CellView) -> str:
    if view.has_gpu is False:
        return (
            "The memory controller's counters beside the byte floor (perf stat with"
            " the uncore events during a cell); stepscope does not sample them."
        )
    timeline = (
        f"a timeline of this cell that is at least {_BUSY_PCT:.0f} % busy"
        ' (capture = ["trace"] in the recipe; stepscope run)'
    )
    if _counter(view) is not None:
        return f"The byte floor at the rate that memory gives: {timeline}."
    return (
        f"The DRAM counter {SAMPLE_COUNTERS}, beside the byte floor (stepscope floor)."
        f" Without counters: {timeline}."
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
            name="floor-with-timeline",
            measurement="byte floor at the rate of reading, and a timeline of the cell",
            threshold=f"supported: floor at least {AT_LEAST_PCT:.0f} % of the decode"
            f" step and the device at least {_BUSY_PCT:.0f} % busy; between two"
            " timelines, and up to twice the highest traced concurrency, with twice"
            " their idle time",
            blind="bytes moved more than once; routing that is not uniform",
            test=_floor_with_timeline,
        ),
        Rule(
            name="dram-counter",
            measurement="DRAM bandwidth counter (GPM) inside the window",
            threshold=f"supported: at least {AT_LEAST_PCT:.0f} % of peak; ruled out:"
            f" below {_REACHES * AT_MOST_PCT:.0f} %, of which a step can be"
            f" {AT_MOST_PCT:.0f} % at nine tenths of peak, unless the byte floor"
            " alone is more",
            blind="which bytes; short phases within a step",
            test=_dram_counter,
        ),
        IDLE_TIMELINE,
        IDLE_GPU,
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
