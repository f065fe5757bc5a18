"""The figure of a GPU's memory at each start: what was asked for and who took it."""

from collections.abc import Iterator, Mapping, Sequence

from stepscope.analysis.boot.records import BootResult
from stepscope.board.claims import number
from stepscope.report.figure import COLOURS, Figure

_WIDTH = 640
_LABEL = 34
#: part -> (colour, what the legend calls it), from left to right.
_PARTS = {
    "weights": ("s0", "weights"),
    "non_torch": ("rule", "outside torch"),
    "activation": ("s1", "activation peak"),
    "graphs": ("s3", "graphs"),
    "kv": ("s2", "KV cache"),
    "unaccounted": ("window", "not told apart by the log"),
    "graphs_outside": ("s4", "graphs, outside the request"),
    "free": ("grid", "not requested, or free"),
}
#: What rounding of printed figures leaves is no part.
_LEAST_GIB = 0.05


def memory_ledger(boots: Sequence[BootResult]) -> Figure | None:
    """Return the memory of one GPU as a stacked bar for each launch.

    Args:
        boots: All launches; one whose log has no figures is named in the note.

    Returns:
        None where no log tells of memory.
    """
    rows: list[dict[str, object]] = []
    rules: list[dict[str, object]] = []
    labels: list[str] = []
    silent: list[str] = []
    for boot in boots:
        parts = list(_parts(boot.ledger))
        if not parts:
            silent.append(_label(boot))
            continue
        label = _label(boot)
        labels.append(label)
        rows += _rows(label, parts, boot.ledger)
        requested = _figure(boot.ledger, "requested_gib")
        if requested is not None:
            text = f"{label}: {number(requested)} GiB requested"
            rules.append({"bar": label, "v": requested, "text": text})
    if not rows:
        return None
    used = [look for look in _PARTS.values() if any(r["k"] == look[1] for r in rows)]
    title = "Memory of one GPU at each start"
    return Figure(
        name="memory-ledger",
        title=title,
        alt=f"{title}, GiB. " + "; ".join(str(r["text"]) for r in (*rows, *rules)),
        spec=_spec(rows, rules, labels, used),
        note="By each server's own log, of the rank with the least cache. The rule is"
        " what was requested; parts left of it were taken off the cache, so the cache"
        " is what they left. A bar that crosses the rule asked for more than there was."
        + (f" Logs without figures: {', '.join(silent)}." if silent else ""),
    )


def _label(boot: BootResult) -> str:
    name = boot.launch if len(boot.launch) <= _LABEL else f"{boot.launch[:_LABEL]}…"
    return name if boot.ready else f"{name} (failed)"


def _figure(ledger: Mapping[str, object], name: str) -> float | None:
    value = ledger.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _parts(ledger: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Yield (part, GiB), left to right.

    Source: the ledger's two laws (``run.serverlog.Ledger``): what was requested, or
        what was free at the start, is the sum of its parts.
    """
    known = {name: _figure(ledger, f"{name}_gib") for name in _NAMES}
    applied = ledger.get("graph_estimate_applied") is True
    requested, device = known["requested"], known["device"]
    estimate, actual = known["graph_estimate"], known["graph_actual"]
    inside = estimate if requested is not None and applied else None
    inside = actual if requested is None else inside
    outside = actual if requested is not None and not applied else None
    told = (
        ("weights", known["weights"]),
        ("non_torch", known["non_torch"]),
        ("activation", known["activation_peak"]),
        ("graphs", inside),
        ("kv", known["kv"]),
        ("unaccounted", known["unaccounted"]),
        ("graphs_outside", outside),
    )
    if all(value is None for _, value in told):
        return
    found = [(name, value) for name, value in told if value and value >= _LEAST_GIB]
    yield from found
    free = known["free_at_end"]
    if requested is not None and device is not None:
        free = device - requested - (outside or 0.0)
    if free is not None and free >= _LEAST_GIB:
        yield "free", free


_NAMES = (
    "weights", "non_torch", "activation_peak", "graph_estimate", "graph_actual", "kv",
    "unaccounted", "requested", "device", "free_at_end",
)  # fmt: skip


def _rows(
    label: str, parts: Sequence[tuple[str, float]], ledger: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    actual = _figure(ledger, "graph_actual_gib")
    for place, (name, value) in enumerate(parts):
        text = f"{label}: {_PARTS[name][1]} {number(value)} GiB"
        if name == "graphs" and actual is not None:
            text += f" (estimate; capture took {number(actual)})"
        yield {"bar": label, "v": value, "k": _PARTS[name][1], "o": place, "text": text}


def _spec(
    rows: Sequence[dict[str, object]],
    rules: Sequence[dict[str, object]],
    labels: Sequence[str],
    used: Sequence[tuple[str, str]],
) -> dict[str, object]:
    y = {"field": "bar", "type": "nominal", "title": None, "sort": list(labels),
         "axis": {"labelLimit": 260}}  # fmt: skip
    colour = {
        "field": "k",
        "type": "nominal",
        "scale": {
            "domain": [text for _, text in used],
            "range": [COLOURS[name] for name, _ in used],
        },
        "legend": {"title": None, "columns": 4, "labelLimit": 0, "columnPadding": 30},
    }
    bars = {
        "data": {"values": list(rows)},
        "mark": {"type": "bar", "height": 18},
        "encoding": {
            "y": y,
            "x": {
                "field": "v",
                "type": "quantitative",
                "stack": "zero",
                "title": "GiB of one GPU",
            },
            "order": {"field": "o", "type": "ordinal"},
            "color": colour,
            "description": {"field": "text"},
        },
    }
    ticks = {
        "data": {"values": list(rules)},
        "mark": {"type": "tick", "thickness": 2, "size": 24, "color": COLOURS["ink"]},
        "encoding": {
            "y": y,
            "x": {"field": "v", "type": "quantitative"},
            "description": {"field": "text"},
        },
    }
    return {
        "width": _WIDTH,
        "height": {"step": 28},
        "padding": {"left": 5 + max(len(bar) for bar in labels), "right": 5},
        "layer": [bars, ticks] if rules else [bars],
    }
