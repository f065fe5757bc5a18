"""The figure of TPOT as a stack of parts over concurrency, the floor drawn in."""

from collections.abc import Sequence

from stepscope.analysis.across.records import TokenStack
from stepscope.board.claims import number
from stepscope.report.figure import COLOURS, SERIES, Figure

_WIDTH, _HEIGHT = 440, 260


def token_stack(
    configuration: str, stacks: Sequence[TokenStack], index: int
) -> Figure | None:
    """Return TPOT over concurrency as stacked bars, from the device outwards.

    Args:
        configuration: Whose.
        stacks: All; those of other configurations are left out.
        index: Position of the configuration, for the figure's name.

    Returns:
        None where no TPOT is known.
    """
    own = sorted(
        (s for s in stacks if s.configuration == configuration),
        key=lambda s: s.concurrency,
    )
    if not own:
        return None
    names = list(dict.fromkeys(part.name for stack in own for part in stack.parts))
    names.sort(key=_outwards)
    rows = [
        {
            "c": str(stack.concurrency),
            "ms": part.ms,
            "k": part.name,
            "o": names.index(part.name),
            "text": f"{part.name}: {number(part.ms)} ms,"
            f" {number(100 * part.ms / stack.tpot_ms)} % of TPOT at"
            f" concurrency {stack.concurrency}",
        }
        for stack in own
        for part in stack.parts
    ]
    floors = [
        {
            "c": str(stack.concurrency),
            "ms": stack.floor_ms,
            "text": f"byte floor {number(stack.floor_ms)} ms at concurrency"
            f" {stack.concurrency}",
        }
        for stack in own
        if stack.floor_ms is not None
    ]
    title = f"Where a token's time goes: {configuration}"
    order = [str(stack.concurrency) for stack in own]
    return Figure(
        name=f"stack-{index}",
        title=title,
        alt=f"{title}. " + "; ".join(str(row["text"]) for row in rows),
        spec=_spec(rows, floors, names, order),
        note="From the device outwards; the parts sum to the client's mean TPOT."
        + (
            " The rule is the byte floor at the data sheet's bandwidth."
            if floors
            else ""
        )
        + _of_ranks(own)
        + _untraced(own)
        + " Bars stand side by side whatever the distance of their concurrencies.",
    )


def _of_ranks(own: Sequence[TokenStack]) -> str:
    """Say whose parts are told where several ranks share the step."""
    told = [(s.concurrency, s.rank) for s in own if s.rank is not None]
    if not told:
        return ""
    each = ", ".join(f"of rank {rank} at {concurrency}" for concurrency, rank in told)
    return f" What a timeline splits is {each}; other ranks may wait where it works."


def _untraced(own: Sequence[TokenStack]) -> str:
    missing = [str(s.concurrency) for s in own if not s.traced]
    if not missing:
        return ""
    floor = any(stack.floor_ms is not None for stack in own)
    what = "what lies above the floor" if floor else "the decode step"
    return f" At concurrency {', '.join(missing)} no timeline splits {what}."


#: Colours of parts: more than the series of other pictures, for two parts of one bar
#: must not look alike.
_PARTS = (*SERIES, *(COLOURS[name] for name in ("window", "rule", "ink", "grid")))
_ORDER = ("floor: other", "floor: experts", "device busy", "waiting for", "idle")
_LAST = ("decode step", "steps slower", "after the server")


def _outwards(name: str) -> int:
    for place, head in enumerate((*_ORDER, *_LAST)):
        if name.startswith(head):
            return place
    return len(_ORDER)


def _spec(
    rows: Sequence[dict[str, object]],
    floors: Sequence[dict[str, object]],
    names: Sequence[str],
    order: Sequence[str],
) -> dict[str, object]:
    x = {"field": "c", "type": "nominal", "sort": list(order), "title": "concurrency"}
    told = [name for name in names if "no timeline" not in name]
    colours = [
        _PARTS[told.index(name) % len(_PARTS)] if name in told else COLOURS["void"]
        for name in names
    ]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "encoding": {"x": {**x, "axis": {"labelAngle": 0}}},
        "layer": [
            {
                "data": {"values": list(rows)},
                "mark": {"type": "bar", "width": {"band": 0.8}},
                "encoding": {
                    "y": {
                        "field": "ms",
                        "type": "quantitative",
                        "stack": "zero",
                        "title": "ms a token",
                    },
                    "order": {"field": "o", "type": "quantitative"},
                    "color": {
                        "field": "k",
                        "type": "nominal",
                        "scale": {"domain": list(names), "range": colours},
                        "legend": {
                            "orient": "bottom",
                            "columns": 2,
                            "columnPadding": 40,
                            "title": None,
                            "labelLimit": 260,
                        },
                    },
                    "description": {"field": "text"},
                },
            },
            {
                "data": {"values": list(floors)},
                "mark": {"type": "tick", "thickness": 2, "color": COLOURS["ink"]},
                "encoding": {
                    "y": {"field": "ms", "type": "quantitative"},
                    "description": {"field": "text"},
                },
            },
        ],
    }
