"""Kernel timelines as figures: where a step goes, and how long its gaps are."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stepscope.analysis.across.records import TracedStep
from stepscope.board.claims import number
from stepscope.report.figure import COLOURS, Figure
from stepscope.report.inert import clipped
from stepscope.run.stepbudget import RankBudget
from stepscope.timeline.picture import StepPicture
from stepscope.timeline.records import Rank, TraceResult

_WIDTH = 440
#: part of a step -> (colour, what the legend calls it), in the order of the bar
_PARTS = {
    "compute": ("s0", "computation"),
    "communication_transfer": ("s4", "transfer"),
    "communication_wait": ("s3", "waiting for ranks"),
    "communication": ("s4", "communication"),
    "memcpy": ("s2", "copies"),
    "inside_graph": ("s1", "idle between graph nodes"),
    "host_not_launching_yet": ("s5", "idle: host not launching yet"),
    "graph_launch_call": ("window", "idle: in the graph launch call"),
    "launch_call": ("rule", "idle: in a launch call"),
    "after_launch_returned": ("void", "idle: after the launch"),
    "no_launch_record": ("ink", "idle: no launch record"),
    "idle": ("grid", "idle, cause unknown"),
}


class Traced(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One capture: what it is called, its figures, and a step to draw.

    Attributes:
        label: ``concurrency 8``, a cell's name, or a file's.
        result: From ``timeline.analyze.analyze_traces``.
        pictures: From ``timeline.picture.step_picture``, one a rank; may be empty.
    """

    label: str
    result: TraceResult
    pictures: tuple[StepPicture, ...] = ()


def trace_figures(traced: "list[Traced]") -> tuple[Figure, ...]:
    """Return the budget bars of all captures and the gaps of each.

    Args:
        traced: Captures in the order in which they are to be shown, such as by
            concurrency.
    """
    made = [budget_figure(traced), *(gap_figure(t, i) for i, t in enumerate(traced))]
    return tuple(figure for figure in made if figure is not None)


def _parts(rank: Rank) -> list[tuple[str, float]]:
    """Return the parts of a step in ms that sum to its period, as far as known."""
    if rank.budget_ms is None:
        return []
    budget, idle = rank.budget_ms, rank.idle_ms
    found = [("compute", budget.compute)]
    if budget.communication_wait is None or budget.communication_transfer is None:
        found.append(("communication", budget.communication))
    else:
        found.append(("communication_transfer", budget.communication_transfer))
        found.append(("communication_wait", budget.communication_wait))
    found.append(("memcpy", budget.memcpy))
    if budget.idle is not None:
        found += _idle_parts(
            budget.idle, {} if idle is None else msgspec.structs.asdict(idle)
        )
    return [(name, value) for name, value in found if value > 0]


def _idle_parts(
    idle_ms: float, causes: Mapping[str, float | None]
) -> list[tuple[str, float]]:
    named = [(name, value) for name, value in causes.items() if value is not None]
    rest = idle_ms - sum(value for _, value in named)
    # What rounding leaves is no part.
    return [*named, ("idle", rest if rest > 1e-6 * max(idle_ms, 1e-9) else 0.0)]


def _bar_label(one: Traced, rank: Rank, several: bool) -> str:
    return f"{one.label}, rank {rank.rank}" if several else one.label


def _budget_rows(traced: "list[Traced]") -> tuple[list[dict[str, object]], list[str]]:
    """Return a row for each part of each bar, and the bars in order."""
    rows: list[dict[str, object]] = []
    order: list[str] = []
    for one in traced:
        for rank in one.result.ranks:
            bar = _bar_label(one, rank, len(one.result.ranks) > 1)
            parts = _parts(rank)
            order += [bar] if parts else []
            rows += _bar_rows(bar, parts)
    return rows, order


def _bar_rows(
    bar: str, parts: Sequence[tuple[str, float]]
) -> Iterator[dict[str, object]]:
    """Yield a row for each part of a bar, from left to right."""
    total = sum(value for _, value in parts)
    for place, (name, value) in enumerate(parts):
        part = _PARTS[name][1]
        text = f"{bar}: {part} {number(value)} ms"
        text += f", {number(100 * value / total)} % of {number(total)} ms"
        yield {"bar": bar, "v": value, "k": part, "o": place, "text": text}


def budget_figure(traced: "list[Traced]") -> Figure | None:
    """Return a bar for each rank of each capture; None where no step was found."""
    return bars_figure(*_budget_rows(traced))


def run_figure(traced: Sequence[TracedStep]) -> Figure | None:
    """Return the same for the captures of a run, told by configuration and load."""
    rows: list[dict[str, object]] = []
    order: list[str] = []
    for one in traced:
        for rank in one.ranks:
            at = "" if one.concurrency is None else f" at {one.concurrency}"
            bar = f"{clipped(one.configuration, 30)}{at}"
            if one.n_ranks > 1:
                bar += f", rank {rank.rank}"
            parts = _run_parts(rank)
            order += [bar] if parts else []
            rows += _bar_rows(bar, parts)
    return bars_figure(rows, order)


def _run_parts(rank: RankBudget) -> list[tuple[str, float]]:
    """Return the parts of a run's traced step, as ``_parts`` does."""
    found = [("compute", rank.compute_ms)]
    if rank.communication_wait_ms is None:
        found.append(("communication", rank.communication_ms))
    else:
        moved = rank.communication_ms - rank.communication_wait_ms
        found.append(("communication_transfer", moved))
        found.append(("communication_wait", rank.communication_wait_ms))
    found.append(("memcpy", rank.memcpy_ms))
    if rank.idle_ms is not None:
        found += _idle_parts(rank.idle_ms, rank.idle_by_cause)
    return [(name, value) for name, value in found if value > 0]


def bars_figure(
    rows: Sequence[dict[str, object]], order: Sequence[str]
) -> Figure | None:
    """Return the parts of steps as stacked bars; None where there are none.

    Args:
        rows: From ``_bar_rows``.
        order: The bars from top to bottom.
    """
    if not rows:
        return None
    used = [look for look in _PARTS.values() if any(r["k"] == look[1] for r in rows)]
    return Figure(
        name="trace-budget",
        title="Where a step goes",
        alt="Mean milliseconds of a step. " + "; ".join(str(r["text"]) for r in rows),
        spec=_bars_spec(rows, order, used),
        note="Means over whole steps. Computation hides communication, and both hide"
        " copies, so the parts sum to the period. A rank that waits in a collective is"
        " busy; without the other ranks' traces waiting is not told from transfer. A"
        " trace that is not fit for idle time has no idle part.",
    )


def _bars_spec(
    rows: Sequence[dict[str, object]],
    order: Sequence[str],
    used: Sequence[tuple[str, str]],
) -> dict[str, object]:
    return {
        "width": _WIDTH,
        "height": {"step": 26},
        # The page's font may be wider than the one that labels were measured in.
        "padding": {"left": 5 + max(len(bar) for bar in order), "right": 5},
        "data": {"values": list(rows)},
        "mark": {"type": "bar", "height": 17},
        "encoding": {
            "y": {
                "field": "bar",
                "type": "nominal",
                "title": None,
                "sort": list(order),
                "axis": {"labelLimit": 300},
            },
            "x": {"field": "v", "type": "quantitative", "title": "ms of a step"},
            "order": {"field": "o", "type": "ordinal"},
            "color": {
                "field": "k",
                "type": "nominal",
                "scale": {
                    "domain": [text for _, text in used],
                    "range": [COLOURS[colour] for colour, _ in used],
                },
                "legend": {
                    "title": None,
                    "columns": 2,
                    "columnPadding": 48,
                    "labelLimit": 0,
                },
            },
            "description": {"field": "text"},
        },
    }


def gap_figure(one: Traced, index: int) -> Figure | None:
    """Return the gaps of a capture's first rank by length; None where unknown."""
    ranks = [rank for rank in one.result.ranks if rank.gap_histogram]
    if not ranks or not any(b.count_per_step for b in ranks[0].gap_histogram):
        return None
    rows = []
    for bin_ in ranks[0].gap_histogram:
        upper = "and more" if bin_.to_us is None else f"to {bin_.to_us:g}"
        length = f"{bin_.from_us:g} {upper}"
        said = f"{number(bin_.count_per_step)} gaps of {length} us a step,"
        rows.append(
            {
                "bin": length,
                "v": bin_.ms_per_step,
                "n": number(bin_.count_per_step) if bin_.count_per_step else "",
                "text": f"{said} {number(bin_.ms_per_step)} ms together",
            }
        )
    while rows and not rows[-1]["v"]:
        rows.pop()
    x = {
        "field": "bin",
        "type": "ordinal",
        "sort": None,
        "title": "length of a gap (us)",
        "axis": {"labelAngle": -35, "grid": False},
    }
    y = {"field": "v", "type": "quantitative", "title": "ms of a step"}
    return Figure(
        name=f"trace-gaps-{index:02d}",
        title=f"Gaps between operations, {one.label}",
        alt="; ".join(str(row["text"]) for row in rows),
        spec={
            "width": _WIDTH,
            "height": 190,
            "data": {"values": rows},
            "layer": [
                {
                    "mark": {"type": "bar", "color": COLOURS["s1"]},
                    "encoding": {"x": x, "y": y, "description": {"field": "text"}},
                },
                {
                    "mark": {"type": "text", "dy": -6, "color": COLOURS["ink"]},
                    "encoding": {
                        "x": x,
                        "y": y,
                        "text": {"field": "n"},
                        "description": {"field": "text"},
                    },
                },
            ],
        },
        note="Height: what all gaps of a length cost in a step; the number above a bar:"
        " how many there are. Many short gaps and few long ones have different causes."
        + (
            f" Rank {ranks[0].rank} of {len(one.result.ranks)}."
            if len(ranks) > 1
            else ""
        ),
    )
