"""The figure of step time over sequences a rank: measured, model, byte floor."""

import math
from collections.abc import Sequence

from stepscope.analysis.across.records import FloorPoint, StepModel
from stepscope.analysis.floor import refuted
from stepscope.board.claims import number
from stepscope.report.figure import Figure, series

_WIDTH, _HEIGHT = 440, 260


def step_time(
    configuration: str,
    model: StepModel | None,
    floor: Sequence[FloorPoint],
    index: int,
) -> Figure | None:
    """Return step time over sequences a rank with the fitted curve and the floor.

    Args:
        configuration: Whose steps.
        model: Its fit; None where none was accepted.
        floor: All floor points; those of other configurations are left out.
        index: Position of the configuration, for the figure's name.

    Returns:
        None where no step time is known.
    """
    own = [p for p in floor if p.configuration == configuration]
    points = model.points if model is not None and model.points else _measured(own)
    if not points:
        return None
    rows: list[dict[str, object]] = [
        {"x": x, "y": y, "k": "measured", "text": f"{number(y)} ms at {number(x)}"}
        for x, y in points
    ]
    kind = model.kind if model is not None else "none"
    curve = [
        {"x": x, "y": y, "k": f"model: {kind}"}
        for x, y in (model.curve if model is not None else ())
    ]
    floors = _floors(own)
    title = f"Step time of {configuration}"
    return Figure(
        name=f"step-{index}",
        title=title,
        alt=f"{title}: " + "; ".join(str(row["text"]) for row in (*rows, *floors)),
        spec=_spec(rows, curve, floors, kind),
        note=_note(kind if curve else None, floor=bool(floors)),
    )


def _note(kind: str | None, *, floor: bool) -> str:
    """Return what the picture does not show, of what is in it."""
    said = "Points are measured"
    if kind is not None:
        said += f"; the line is the model ({kind})"
    if floor:
        said += (
            "; dashes are the byte floor, which assumes that each byte is moved once"
        )
    return (
        f"{said}. The horizontal axis is logarithmic: a straight line over sequences"
        " is drawn bent."
    )


def _floors(own: Sequence[FloorPoint]) -> list[dict[str, object]]:
    return [
        {
            "x": point.seqs_per_rank,
            "y": point.floor_ms,
            "k": "byte floor",
            "text": f"floor {number(point.floor_ms)} ms at"
            f" {number(point.seqs_per_rank)}",
        }
        for point in sorted(own, key=lambda p: p.seqs_per_rank)
        if not refuted(point)
    ]


def _spec(
    rows: Sequence[dict[str, object]],
    curve: Sequence[dict[str, object]],
    floors: Sequence[dict[str, object]],
    kind: str,
) -> dict[str, object]:
    names = ["measured", f"model: {kind}", *(["byte floor"] if floors else [])]
    scale = {"domain": names, "range": [series(0), series(0), series(1)][: len(names)]}
    ticks = sorted({2 ** _log2(float(str(row["x"]))) for row in (*rows, *floors)})
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "title": "sequences a rank",
                "scale": {"type": "log", "base": 2, "nice": False, "padding": 12},
                "axis": {"values": ticks, "format": "d", "grid": False},
            },
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": "step (ms)",
                "scale": {"zero": True},
            },
            "color": {"field": "k", "type": "nominal", "scale": scale, "legend": None},
        },
        "layer": [
            _drawn(curve, {"type": "line", "strokeWidth": 1.5}),
            _drawn(floors, {"type": "line", "strokeDash": [4, 3]}),
            _drawn(floors, {"type": "point", "size": 20, "opacity": 1}),
            _drawn(rows, {"type": "point", "filled": True, "size": 52, "opacity": 1}),
        ],
    }


def _measured(points: Sequence[FloorPoint]) -> tuple[tuple[float, float], ...]:
    return tuple((p.seqs_per_rank, p.step_ms) for p in points if p.step_ms is not None)


def _log2(x: float) -> int:
    return max(round(math.log2(x)), 0) if x > 0 else 0


def _drawn(
    rows: Sequence[dict[str, object]], mark: dict[str, object]
) -> dict[str, object]:
    return {
        "data": {"values": list(rows)},
        "mark": mark,
        "encoding": {
            "description": {"field": "text" if rows and "text" in rows[0] else "k"}
        },
    }
