"""Which headline numbers stand, and which hole the others have."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.across.records import FloorPoint, RepeatGroup, StepModel
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.claims import at, number
from stepscope.board.doubts import floor_doubts
from stepscope.board.holes import (
    SETTLES,
    TELEMETRY_SETTLES,
    WIDE_PCT,
    holes_of,
    holes_of_repeats,
    spread_pct,
    where,
)
from stepscope.board.records import BoardEntry, NotSolid
from stepscope.findings import Finding
from stepscope.run.run import Run

_LARGE_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """A headline number with its holes: (why, what would settle it).

    ``cell`` is the one that it is read at, where a cold server could move it.
    """

    text: str
    holes: tuple[tuple[str, str], ...]
    why: str
    cell: CellResult | None = None


def measured(analysis: Analysis) -> tuple[CellResult, ...]:
    """Return the cells whose numbers may be read."""
    return tuple(
        c
        for c in analysis.cells
        if c.valid and not c.warm_up and c.n_requests > c.n_failed
    )


def solid(
    run: Run, analysis: Analysis, entries: Sequence[BoardEntry]
) -> tuple[str, ...]:
    """Return the headline numbers that stand, each with why.

    Args:
        run: The run.
        analysis: What was computed from it.
        entries: The board's: repeats that agree stand without the cold one before
            them, and say so where the board leaves warm-up open.
    """
    return tuple(
        f"{claim.text}: {claim.why}{_cold(claim.cell, analysis, entries)}."
        for claim in _claims(run, analysis)
        if not claim.holes
    )


def _cold(
    cell: CellResult | None, analysis: Analysis, entries: Sequence[BoardEntry]
) -> str:
    """Name the hole that warm-up leaves in a number; empty where there is none."""
    if cell is None:
        return ""
    place = (cell.configuration, cell.concurrency, cell.request_rate)
    names = {
        c.name
        for c in analysis.cells
        if (c.configuration, c.concurrency, c.request_rate) == place
    }
    for entry in entries:
        told = [e.quantity for e in entry.evidence if e.source in names]
        if (
            entry.hypothesis == "warm-up"
            and entry.status in ("standing", "supported")
            and told
        ):
            codes = [quantity for quantity in told if quantity in SETTLES] or told
            named = ", ".join(dict.fromkeys(codes))
            return f"; warm-up is {entry.status} there ({named})"
    return ""


def not_solid(run: Run, analysis: Analysis) -> tuple[NotSolid, ...]:
    """Return the headline numbers that have a hole, and all void cells."""
    holed = [
        NotSolid(
            claim=claim.text,
            why="; ".join(why for why, _ in claim.holes),
            what_would_settle_it=" ".join(dict.fromkeys(s for _, s in claim.holes)),
        )
        for claim in _claims(run, analysis)
        if claim.holes
    ]
    holed += [
        NotSolid(
            claim=f"every number of {cell.name}",
            why=f"void: {', '.join(cell.void_reasons) or cell.status}",
            what_would_settle_it=" ".join(
                SETTLES.get(r, "Repeat it.") for r in cell.void_reasons
            )
            or "Repeat it.",
        )
        for cell in analysis.cells
        if not cell.valid and not cell.warm_up
    ]
    return tuple(holed)


def _claims(run: Run, analysis: Analysis) -> list[_Claim]:
    findings = (*run.findings, *analysis.findings)
    names = dict.fromkeys(c.configuration for c in measured(analysis))
    claims: list[_Claim] = []
    for name in names:
        cells = [c for c in measured(analysis) if c.configuration == name]
        claims += _cell_claims(cells, analysis, findings)
        claims += [
            _model(m, cells, findings)
            for m in analysis.step_model
            if m.configuration == name
        ]
        doubts = floor_doubts(run, analysis, name)
        claims += _floor(
            [p for p in analysis.floor if p.configuration == name],
            tuple((doubt.why, doubt.settles) for doubt in doubts),
        )
    claims += _comparisons(analysis)
    return claims


def _cell_claims(
    cells: Sequence[CellResult], analysis: Analysis, findings: Sequence[Finding]
) -> list[_Claim]:
    timed = [c for c in cells if c.output_tokens_per_s]
    if not timed:
        return []
    peak = max(timed, key=lambda c: c.output_tokens_per_s or 0)
    least = min(timed, key=lambda c: (c.concurrency is None, c.concurrency or 0))
    claims = [_throughput(peak, analysis, findings)]
    if peak.concurrency != least.concurrency:
        claims.append(_scaling(least, peak, findings))
    claims += [
        _tpot(cell, analysis, findings)
        for cell in ((peak,) if least is peak else (least, peak))
        if cell.tpot_ms.mean is not None
    ]
    if peak.telemetry is not None and peak.telemetry.power_w is not None:
        claims.append(_telemetry(peak, findings))
    return claims


def _interval(group: RepeatGroup | None, analysis: Analysis) -> str:
    assert group is not None
    assert group.ci95 is not None
    low, high = group.ci95
    text = (
        f"mean of {len(group.values)} repeats, 95 % interval {number(low)} to"
        f" {number(high)}"
    )
    left_out = [
        cell.name
        for cell in measured(analysis)
        if (cell.configuration, cell.session, cell.concurrency)
        == (group.configuration, group.session, group.concurrency)
        and cell.name not in group.cells
    ]
    return text + (f" ({', '.join(left_out)} left out)" if left_out else "")


def _throughput(
    cell: CellResult, analysis: Analysis, findings: Sequence[Finding]
) -> _Claim:
    group, holes = holes_of_repeats(cell, analysis, "output_tokens_per_s")
    value = group.mean if group is not None else cell.output_tokens_per_s or 0
    text = f"{cell.configuration}: {number(value)} output tokens/s at {at(cell)}"
    text += "" if group is not None else f" ({cell.name})"
    holes += holes_of(cell, findings, tuple(SETTLES), group)
    why = "" if holes else _interval(group, analysis)
    return _Claim(text, tuple(holes), why, cell)


def _tpot(cell: CellResult, analysis: Analysis, findings: Sequence[Finding]) -> _Claim:
    group, holes = holes_of_repeats(cell, analysis, "tpot_ms")
    value = group.mean if group is not None else cell.tpot_ms.mean or 0
    text = f"{cell.configuration}: TPOT {number(value)} ms at {at(cell)}"
    text += "" if group is not None else f" ({cell.name})"
    # TPOT is averaged per request: partial waves move it little, TTFT not at all.
    codes = [
        c
        for c in SETTLES
        if c not in ("partial-waves", "bimodal-ttft", "ttft-not-monotone")
    ]
    holes += holes_of(cell, findings, codes, group)
    why = "" if holes else _interval(group, analysis)
    return _Claim(text, tuple(holes), why, cell)


def _scaling(low: CellResult, high: CellResult, findings: Sequence[Finding]) -> _Claim:
    ratio = (high.output_tokens_per_s or 0) / (low.output_tokens_per_s or 1)
    text = (
        f"{low.configuration}: {number(ratio)} times the throughput at {at(high)} as at"
        f" {at(low)}"
    )
    holes: list[tuple[str, str]] = []
    if ratio < _LARGE_RATIO:
        holes.append(
            (
                "a ratio this small needs repeats on both sides",
                f"Repeat both: three times {where(low)}, and {where(high)}.",
            )
        )
    grave = ("failed-requests", "early-stop", "stall", "prefix-cache-hits")
    for cell in (low, high):
        holes += holes_of(cell, findings, grave)
    return _Claim(
        text,
        tuple(holes),
        "far outside what repeats of one cell differ by, and neither cell is void",
    )


def _telemetry(cell: CellResult, findings: Sequence[Finding]) -> _Claim:
    telemetry = cell.telemetry
    assert telemetry is not None
    assert telemetry.power_w is not None
    power = _ranged(telemetry.power_w, telemetry.power_w_range)
    each = telemetry.power_gpus_w
    if each is not None and number(each[0]) != number(each[1]):
        power += f" W a GPU ({number(each[0])} to {number(each[1])}"
        text = f"{cell.configuration}: {power} by GPU) at {at(cell)}"
    else:
        text = f"{cell.configuration}: {power} W a GPU at {at(cell)}"
    if telemetry.util_pct is not None:
        util = _ranged(telemetry.util_pct, telemetry.util_pct_range)
        text += f", utilization {util} %"
    holes = holes_of(cell, findings, (*TELEMETRY_SETTLES, "stall", "server-restarted"))
    return _Claim(
        text,
        tuple(holes),
        f"{telemetry.n_samples_in_window} samples inside the window; utilization says"
        " only that a kernel was resident",
    )


def _ranged(value: float, interval: tuple[float, float] | None) -> str:
    """Return a figure, or the interval that an uncertain clock offset leaves it."""
    if interval is None or interval[0] == interval[1]:
        return number(value)
    return f"{number(interval[0])} to {number(interval[1])}"


def _model(
    model: StepModel, cells: Sequence[CellResult], findings: Sequence[Finding]
) -> _Claim:
    level = model.level_ms
    text = f"{model.configuration}: step model {model.kind}"
    if level is not None:
        text += f", level {number(level)} ms"
    if model.slope_ms_per_seq is not None and model.kind != "constant":
        text += f", slope {number(model.slope_ms_per_seq)} ms a sequence"
    holes: list[tuple[str, str]] = []
    if model.level_ci95_ms is None:
        holes.append(
            (
                f"{model.n_points} points leave no interval",
                "Measure more concurrencies, or repeat those at hand.",
            )
        )
    elif level is not None and spread_pct(model.level_ci95_ms, level) > WIDE_PCT:
        spread = spread_pct(model.level_ci95_ms, level)
        holes.append(
            (
                f"the level's 95 % interval reaches {number(spread)} % to either side",
                "Measure more concurrencies, or repeat those at hand.",
            )
        )
    launches = {c.launch for c in cells}
    holes += [
        (f"{f.code}: {f.message}", SETTLES[f.code])
        for f in findings
        if f.code == "warmup-not-converged" and f.cell is None and f.launch in launches
    ]
    why = f"{model.n_points} points"
    if model.level_ci95_ms is not None:
        low, high = model.level_ci95_ms
        why += f", 95 % interval of the level {number(low)} to {number(high)} ms"
    return _Claim(text, tuple(holes), why)


def _floor(
    points: Sequence[FloorPoint], holes: tuple[tuple[str, str], ...]
) -> list[_Claim]:
    told = [p for p in points if p.times_floor is not None]
    if not told:
        return []
    near = min(told, key=lambda p: p.times_floor or 0)
    far = max(told, key=lambda p: p.times_floor or 0)
    spread = number(near.times_floor or 0)
    if near is not far:
        spread += (
            f" (concurrency {near.concurrency}) to {number(far.times_floor or 0)}"
            f" (concurrency {far.concurrency})"
        )
    text = f"{near.configuration}: the step is {spread} times its byte floor"
    if near is far:
        text += f" at concurrency {near.concurrency}"
    return [
        _Claim(
            text,
            holes,
            "the floor is arithmetic on the model's shapes; it assumes uniform routing,"
            " and it says what is needed, not what was moved",
        )
    ]


def _open_for(c: Comparison) -> str:
    noise = c.reason is None or c.reason == "not told from noise"
    return "not told from run-to-run noise" if noise else str(c.reason)


def _settling(c: Comparison) -> str:
    """Return what would settle a comparison, in the words that ``plan`` reads.

    Where no arm was started twice each further run is on a start of its own.
    """
    if c.runs_needed is None and c.ci95_pct is not None:
        return (
            "No number of repeats up to 1,000 settles it: find what moves the figures"
            " of one configuration first."
        )
    if c.runs_needed is None:
        return "Take repeats of both, on 3 starts each."
    if c.unit == "launch":
        return f"Take {c.runs_needed} launches each."
    n_starts = c.runs_needed - min(c.n_a, c.n_b) + 1
    return f"Take {c.runs_needed} runs each, on {n_starts} starts each."


def _comparisons(analysis: Analysis) -> list[_Claim]:
    claims = []
    for c in analysis.comparisons:
        if c.delta_pct is None:
            continue
        place = "" if c.concurrency is None else f" at concurrency {c.concurrency}"
        text = f"{c.b} against {c.a}: {c.metric} {c.delta_pct:+.1f} %{place}"
        if c.verdict == "undetermined" or c.ci95_pct is None:
            claims.append(
                _Claim(
                    text,
                    (
                        (
                            f"undetermined: {_open_for(c)}",
                            _settling(c),
                        ),
                    ),
                    "",
                )
            )
        else:
            low, high = c.ci95_pct
            claims.append(
                _Claim(
                    text, (), f"{c.verdict}, 95 % interval {low:+.1f} to {high:+.1f} %"
                )
            )
    return claims
