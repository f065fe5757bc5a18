"""Figures over concurrency, or over the rate of open loops: throughput and latency."""

import math
from collections.abc import Sequence
from typing import Literal

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis, CellResult, Stats
from stepscope.board.claims import number
from stepscope.report.figure import COLOURS, Figure, series

Axis = Literal["concurrency", "request_rate"]
_WIDTH, _HEIGHT = 440, 260
#: An interval may stretch the axis by this factor beyond the values.
_MOST_BEYOND = 1.5


#: Metric to its name in words and in the figure's.
_LABELS = {
    "output_tokens_per_s": ("output tokens/s", "throughput"),
    "tpot_ms": ("TPOT (ms)", "tpot"),
    "ttft_ms": ("TTFT (ms)", "ttft"),
}
#: What a sweep goes over, to its words and the unit in a sentence.
_AXES: dict[Axis, tuple[str, str]] = {
    "concurrency": ("concurrency", "at concurrency {:g}"),
    "request_rate": ("requests/s offered", "at {:g} requests/s"),
}


def _value(cell: CellResult, metric: str) -> float | None:
    found = getattr(cell, metric)
    return found.mean if isinstance(found, Stats) else found


def _x(of: CellResult | RepeatGroup, axis: Axis) -> float | None:
    return of.concurrency if axis == "concurrency" else of.request_rate


def sweep(analysis: Analysis, metric: str, axis: Axis = "concurrency") -> Figure | None:
    """Return throughput or a latency over the load; None where there is none.

    Args:
        analysis: The run's figures.
        metric: ``output_tokens_per_s``, ``tpot_ms`` or ``ttft_ms``.
        axis: ``concurrency`` of closed loops, or ``request_rate`` of open ones.
    """
    label, name = _LABELS[metric]
    cells = [
        cell
        for cell in analysis.cells
        if not cell.warm_up and _x(cell, axis) and _value(cell, metric)
    ]
    loads = sorted({_x(cell, axis) or 0 for cell in cells})
    if not loads:
        return None
    names = list(dict.fromkeys(cell.configuration for cell in cells))
    groups = [group for group in analysis.groups if _x(group, axis)]
    rows = [_row(cell, metric, axis) for cell in cells]
    scale: dict[str, object] = {
        "domain": names,
        "range": [series(i) for i in range(len(names))],
    }
    layers = [
        _line(_means(groups, metric, axis), scale, len(names) > 1),
        *_bars(groups, metric, axis, scale),
        _points(rows, scale),
    ]
    values = [_value(cell, metric) or 0.0 for cell in cells]
    low, high = _range(values, groups, metric)
    title = f"{label} over {_AXES[axis][0]}"
    return Figure(
        name=f"sweep-{name}" if axis == "concurrency" else f"sweep-rate-{name}",
        title=title,
        alt=f"{title}, both axes logarithmic. "
        + "; ".join(str(row["text"]) for row in rows),
        spec={
            "width": _WIDTH,
            "height": _HEIGHT,
            "encoding": _axes(label, axis, loads, (low, high)),
            "layer": layers,
        },
        note="Both axes are logarithmic. The line joins the means of sound repeats, of"
        " whole waves where points of several shapes share a load; a bar is a 95 %"
        " interval and is drawn only where there are repeats; one that leaves the"
        " picture is wider than it. Grey, hollow points are void.",
    )


def _axes(
    label: str, axis: Axis, loads: Sequence[float], shown: tuple[float, float]
) -> dict[str, object]:
    return {
        "x": {
            "field": "c",
            "type": "quantitative",
            "title": _AXES[axis][0],
            "scale": {"type": "log", "base": 2, "nice": False, "padding": 12},
            "axis": {"values": list(loads), "format": "~g", "grid": False},
        },
        "y": {
            "field": "v",
            "type": "quantitative",
            "title": label,
            "scale": {"type": "log", "nice": False, "domain": list(shown)},
            "axis": {"format": "~s", "values": _ticks(*shown)},
        },
    }


def _range(
    values: Sequence[float], groups: Sequence[RepeatGroup], metric: str
) -> tuple[float, float]:
    """Return what the vertical axis shows: all values, and intervals within reason.

    The interval of two repeats that differ spans decades; it would flatten all else.
    """
    ends = [
        end
        for group in groups
        if group.metric == metric and group.ci95 is not None
        for end in group.ci95
    ]
    low, high = min(values), max(values)
    return (
        max(min([*ends, low]), low / _MOST_BEYOND) * 0.85,
        min(max([*ends, high]), high * _MOST_BEYOND) * 1.18,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers inside the range: sparse ones where it spans decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        every = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        inside = [tick for tick in every if low <= tick <= high]
        if len(inside) >= 3:
            return inside
    return [float(f"{low:.3g}"), float(f"{high:.3g}")]


def _row(cell: CellResult, metric: str, axis: Axis) -> dict[str, object]:
    value = _value(cell, metric) or 0.0
    where = _AXES[axis][1].format(_x(cell, axis))
    text = f"{cell.name}: {number(value)} {_LABELS[metric][0]} {where}"
    if not cell.valid:
        text += f", void ({', '.join(cell.void_reasons)})"
    return {
        "c": _x(cell, axis),
        "v": value,
        "k": cell.configuration,
        "void": not cell.valid,
        "text": text,
    }


def _means(
    groups: Sequence[RepeatGroup], metric: str, axis: Axis
) -> list[dict[str, object]]:
    """Return the mean of repeats at each load, one point a configuration and load.

    Points that differ in prompts or lengths are no repeats of each other: where
    several share a load the line takes that of whole waves, then of most repeats.
    """
    chosen: dict[tuple[str, float], RepeatGroup] = {}
    for group in groups:
        load = _x(group, axis)
        if group.metric != metric or not load or not group.mean:
            continue
        key = (group.configuration, load)
        if key not in chosen or _weight(group) > _weight(chosen[key]):
            chosen[key] = group
    return [
        {"c": c, "v": group.mean, "k": name}
        for (name, c), group in sorted(chosen.items(), key=lambda item: item[0][1])
    ]


def _weight(group: RepeatGroup) -> tuple[bool, int]:
    asked, slots = group.n_prompts, group.concurrency
    whole = asked is None or not slots or asked % slots == 0
    return whole, len(group.values)


def _line(
    rows: list[dict[str, object]], scale: dict[str, object], legend: bool
) -> dict[str, object]:
    colour: dict[str, object] = {
        "field": "k",
        "type": "nominal",
        "scale": scale,
        "legend": {"title": None, "symbolType": "stroke"} if legend else None,
    }
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.5},
        "encoding": {"color": colour, "description": {"field": "k"}},
    }


def _bars(
    groups: Sequence[RepeatGroup], metric: str, axis: Axis, scale: dict[str, object]
) -> list[dict[str, object]]:
    rows = [
        {
            "c": _x(group, axis),
            "v": group.ci95[0],
            "v2": group.ci95[1],
            "k": group.configuration,
            "text": f"{len(group.values)} repeats, mean {number(group.mean)}, 95 %"
            f" interval {number(group.ci95[0])} to {number(group.ci95[1])}",
        }
        for group in groups
        if group.metric == metric and group.ci95 is not None and group.ci95[0] > 0
    ]
    if not rows:
        return []
    return [
        {
            "data": {"values": rows},
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.55, "clip": True},
            "encoding": {
                "y2": {"field": "v2"},
                "color": {
                    "field": "k",
                    "type": "nominal",
                    "scale": scale,
                    "legend": None,
                },
                "description": {"field": "text"},
            },
        }
    ]


def _points(
    rows: list[dict[str, object]], scale: dict[str, object]
) -> dict[str, object]:
    return {
        "data": {"values": rows},
        "mark": {"type": "point", "size": 46, "strokeWidth": 1.5, "opacity": 1},
        "encoding": {
            "color": {
                "condition": {"test": "datum.void", "value": COLOURS["void"]},
                "field": "k",
                "type": "nominal",
                "scale": scale,
                "legend": None,
            },
            "fill": {
                "condition": {"test": "datum.void", "value": None},
                "field": "k",
                "type": "nominal",
                "scale": scale,
                "legend": None,
            },
            "description": {"field": "text"},
        },
    }
