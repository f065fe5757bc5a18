"""bandwidth: moving bytes between memory and the chip takes the step."""

from stepscope.analysis.across.records import FloorPoint
from stepscope.board.doubts import REACHES_PCT
from stepscope.board.hypotheses.device import (
    IDLE_GPU,
    IDLE_TIMELINE,
    SAMPLE_COUNTERS,
    exceeds_residence,
    impossible,
)
from stepscope.board.hypotheses.floors import (
    Share,
    counted_step,
    doubted,
    floor_share,
    of_step,
    of_window,
    share_of,
)
from stepscope.board.hypotheses.reading import read_rate, too_fast
from stepscope.board.hypotheses.traffic import (
    agreement,
    counter,
    not_moved,
    sampled_pct,
)
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
from stepscope.physics.hardware import find_gpu

#: DRAM counter that agrees with a floor of AT_LEAST_PCT: the mean holds prefill and
#: ramps that move fewer bytes.
_AGREES_PCT = 50.0
#: Share of the peak that real traffic reaches.
_REACHES = 0.9
#: Busy share of a step from which its time is that of its kernels.
_BUSY_PCT = 90.0
#: A counter's own scatter.
_SCATTER_POINTS = 1.0


def _broken_counter(view: CellView) -> Opinion | None:
    found = impossible(view, "DRAM bandwidth counter", sampled_pct(view))
    return Opinion(status="standing", evidence=found) if found else None


def _dram_counter(view: CellView) -> Opinion | None:
    read = counter(view)
    if read is None:
        return None
    value, item = read
    if value - _SCATTER_POINTS >= AT_LEAST_PCT:
        # The counter is no floor: what a config says has no part in it.
        against = exceeds_residence(view, value - _SCATTER_POINTS)
        if against:
            return Opinion(
                status="standing", evidence=(item, *against), contradicts=True
            )
        return Opinion(
            status="supported",
            share_pct=value,
            headline="memory bandwidth",
            evidence=(item,),
        )
    mean = view.telemetry.dram_bw_pct if view.telemetry is not None else None
    most = of_step(view, max(value, mean or 0.0) / _REACHES)
    floor = floor_share(view)
    if most >= AT_MOST_PCT:
        return Opinion(status="standing", evidence=(item,))
    if floor is not None and floor.pct > most:
        # Two bounds that exclude each other: the counter's window holds other steps
        # than the floor's (prefill, ramps), or the floor's assumptions fail.
        return Opinion(status="standing", evidence=(item, floor.evidence))
    return Opinion(status="ruled-out", share_pct=most, evidence=(item,))


def _floor_with_counter(view: CellView) -> Opinion | None:
    floor, read = floor_share(view), counter(view)
    if floor is None or read is None:
        return None
    if floor.pct < AT_LEAST_PCT or read[0] < _AGREES_PCT:
        return None
    evidence = (floor.evidence, read[1])
    return _weighed(view, floor, floor, "memory bandwidth", evidence)


def _floor_with_timeline(view: CellView) -> Opinion | None:
    """Weigh the bytes at the rate that memory gives, where the device is busy."""
    floor, at_work, step = view.floor, busy(view), counted_step(view)
    if floor is None or at_work is None or step is None:
        return None
    rate = read_rate(view, floor)
    if rate is None or floor.bandwidth_bytes_per_s is None:
        return None
    floor_ms = floor.floor_ms * floor.bandwidth_bytes_per_s / rate.bytes_per_s
    share = share_of(
        view,
        floor_ms,
        step[0],
        "byte floor at the rate of reading",
        f"{floor_ms:.3g} ms to move the bytes of a step once at {rate.name}, of a"
        f" decode step of {step[0]:.3g} ms ({step[1]})",
        traced=rate.evidence is not None,
    )
    every = (share.evidence, at_work.evidence, rate.evidence)
    evidence = tuple(e for e in every if e is not None)
    if at_work.pct < _BUSY_PCT or not at_work.decides:
        against = _against(view, share, floor_share(view))
        return Opinion(
            status="standing",
            share_pct=None if against else min(share.pct, 100.0),
            evidence=(*evidence, *against),
        )
    return _weighed(view, share, floor_share(view), _headline(floor), evidence)


def _weighed(
    view: CellView,
    share: Share,
    plain: Share | None,
    headline: str,
    evidence: tuple[Evidence, ...],
) -> Opinion:
    """Support bandwidth with a share, unless it is too small or contradicted.

    Args:
        view: The cell.
        share: The floor's share at the rate that was taken.
        plain: The same at the data sheet's rate.
        headline: What may be said.
        evidence: What the share rests on.
    """
    against = _against(view, share, plain)
    enough = share.enough and not against
    # A share that bytes which were not moved would take is no lower bound.
    told = None if against else min(share.pct, 100.0)
    return Opinion(
        status="supported" if enough else "standing",
        share_pct=told,
        headline=headline if enough else None,
        evidence=(*evidence, *against),
        contradicts=bool(against),
    )


def _against(view: CellView, share: Share, plain: Share | None) -> tuple[Evidence, ...]:
    """Return what contradicts a floor's share of the step."""
    moves = of_window(view, share.low_pct, share.step_ms)
    found = [*exceeds_residence(view, moves)]
    doubt = doubted(view)
    if doubt is not None:
        found.append(doubt)
    elif plain is not None and plain.low_pct > REACHES_PCT:
        why = "no memory gives that much: the floor is not of this step"
        found.append(seen(view, "byte floor", plain.pct, "% of the step", why))
    fast = None if view.floor is None else too_fast(view, view.floor)
    more = (not_moved(view), fast)
    return (*found, *(item for item in more if item is not None))


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
    beside = agreement(view)
    return Opinion(
        status="standing",
        share_pct=None if view.doubts else min(floor.pct, 100.0),
        evidence=tuple(
            item for item in (floor.evidence, beside, doubted(view)) if item is not None
        ),
    )


def _known_gpu(view: CellView) -> bool:
    return view.run.gpu is not None and find_gpu(view.run.gpu) is not None


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
    if view.doubts:
        settles = " ".join(dict.fromkeys(doubt.settles for doubt in view.doubts))
        return f"The byte floor is in doubt. {settles}"
    missing = [
        name
        for name, lacks in (
            ("the model's config.json", view.run.model_config is None),
            ("the GPU's name as stepscope floor knows it", not _known_gpu(view)),
        )
        if lacks
    ]
    if missing:
        return (
            f"A byte floor needs {' and '.join(missing)}. Beside it the DRAM counter"
            f" {SAMPLE_COUNTERS}, or {timeline}."
        )
    if counter(view) is not None:
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
            threshold=f"supported: floor at least {AT_LEAST_PCT:.0f} % of the step, its"
            f" uncertainty taken off too, counter at least {_AGREES_PCT:.0f} % of peak,"
            " and nothing against the floor",
            blind="bytes moved more than once",
            test=_floor_with_counter,
        ),
        Rule(
            name="floor-with-timeline",
            measurement="byte floor at the rate of reading, and a timeline of the cell",
            threshold=f"supported: floor at least {AT_LEAST_PCT:.0f} % of the decode"
            f" step, its uncertainty taken off too, the device at least"
            f" {_BUSY_PCT:.0f} % busy, and nothing against the floor; between two"
            " timelines, and up to twice the highest traced concurrency, with twice"
            " their idle time",
            blind="bytes moved more than once; routing that is not uniform",
            test=_floor_with_timeline,
        ),
        Rule(
            name="dram-counter",
            measurement="DRAM bandwidth counter (GPM) inside the window",
            threshold="supported: at least"
            f" {AT_LEAST_PCT + _SCATTER_POINTS:.0f} % of peak; ruled out: below"
            f" {_REACHES * AT_MOST_PCT:.0f} %, of which a step can be"
            f" {AT_MOST_PCT:.0f} % at nine tenths of peak, unless the byte floor"
            " alone is more",
            blind="which bytes; short phases within a step",
            test=_dram_counter,
        ),
        Rule(
            name="broken-counter",
            measurement="DRAM bandwidth counter (GPM) inside the window",
            threshold="decides nothing: above its own peak it is refused",
            blind="everything",
            test=_broken_counter,
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
