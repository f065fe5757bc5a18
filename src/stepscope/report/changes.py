"""The figure of changes tested: each difference with its interval."""

from collections.abc import Sequence

from stepscope.analysis.compare.records import Comparison, PooledComparison
from stepscope.report.figure import COLOURS, Figure

_WIDTH = 420
_LABEL = 30
#: A pair of configurations with more rows than this is told by its table.
_MOST_ROWS = 60
_METRICS = {
    "output_tokens_per_s": "output tokens/s",
    "tpot_ms": "TPOT",
    "ttft_ms": "TTFT",
}
_VERDICTS = {"faster": "s2", "slower": "s4", "same": "s0", "undetermined": "void"}


def changes(
    comparisons: Sequence[Comparison], pooled: Sequence[PooledComparison]
) -> tuple[Figure, ...]:
    """Return, for each metric, every difference that was tested with its interval.

    A difference without an interval is a hollow point and says nothing.
    """
    made = []
    for metric in dict.fromkeys(c.metric for c in comparisons):
        rows = [c for c in comparisons if c.metric == metric]
        means = [p for p in pooled if p.metric == metric]
        naming = _Naming(rows)
        drawn = [_row(c, naming) for c in rows] + [_mean(p, naming) for p in means]
        known = [row for row in drawn if row is not None][:_MOST_ROWS]
        if known:
            made.append(_figure(metric, naming.pair, known))
    return tuple(made)


class _Naming:
    """Labels of rows: what all rows share is said once, in the title.

    Attributes:
        pair: ``B over A`` where there is one pair; empty otherwise.
    """

    def __init__(self, rows: Sequence[Comparison]) -> None:
        pairs = {(c.a, c.b) for c in rows}
        shapes = {(c.input_tokens, c.output_tokens) for c in rows}
        self.pair = "" if len(pairs) > 1 else self._pair(rows[0].a, rows[0].b)
        self._one_shape = len(shapes) == 1

    def _pair(self, a: str, b: str) -> str:
        return f"{_short(b)} over {_short(a)}"

    def of(self, a: str, b: str, at: str) -> str:
        """Return the label of a row."""
        return at if self.pair else f"{self._pair(a, b)}, {at}"

    def at(self, c: Comparison) -> str:
        """Return where a row was measured."""
        shape = ""
        if not self._one_shape and c.input_tokens is not None:
            shape = f" ({c.input_tokens} in, {c.output_tokens} out)"
        if c.concurrency is not None:
            return f"{c.concurrency} in flight{shape}"
        rate = "open loop" if c.request_rate is None else f"{c.request_rate:g}/s"
        return f"{rate}{shape}"


def _short(name: str) -> str:
    return name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"


def _row(c: Comparison, naming: _Naming) -> dict[str, object] | None:
    if c.delta_pct is None:
        return None
    label = naming.of(c.a, c.b, naming.at(c))
    return _entry(label, c.delta_pct, c.ci95_pct, c.verdict)


def _mean(p: PooledComparison, naming: _Naming) -> dict[str, object] | None:
    if p.delta_pct is None:
        return None
    told = "undetermined" if p.rows_agree is False else p.verdict
    return _entry(
        naming.of(p.a, p.b, f"mean of {p.n_rows} rows"), p.delta_pct, p.ci95_pct, told
    )


def _entry(
    label: str, delta: float, ci: tuple[float, float] | None, verdict: str
) -> dict[str, object]:
    said = "no interval" if ci is None else f"95 % {ci[0]:+.2f} to {ci[1]:+.2f} %"
    return {
        "row": label,
        "v": delta,
        "low": None if ci is None else ci[0],
        "high": None if ci is None else ci[1],
        "k": verdict,
        "text": f"{label}: {delta:+.2f} %, {said}, {verdict}",
    }


def _figure(metric: str, pair: str, rows: Sequence[dict[str, object]]) -> Figure:
    labels = list(dict.fromkeys(str(row["row"]) for row in rows))
    name = _METRICS.get(metric, metric)
    title = f"Changes tested: {name}" + (f", {pair}" if pair else "")
    return Figure(
        name=f"changes-{metric.replace('_', '-')}",
        title=title,
        alt=f"{title}. " + "; ".join(str(row["text"]) for row in rows),
        spec=_spec(rows, labels, name),
        note="B over A, percent; the line at 0 is no difference. A bar is the 95 %"
        " interval over launches or runs; a hollow point has none, since one run"
        " has no spread; one that leaves the picture is wider than it. Colour is the"
        " verdict over all rows of the pair, which is stricter than one bar that misses"
        " 0.",
    )


def _range(rows: Sequence[dict[str, object]]) -> tuple[float, float]:
    """Return what the axis shows: all differences, and intervals within reason.

    The interval of two repeats that differ spans hundreds of percent.
    """
    deltas = [float(str(row["v"])) for row in rows]
    ends = [float(str(row[end])) for row in rows for end in ("low", "high") if row[end]]
    most = max(3.0 * max(abs(delta) for delta in deltas), 1.0)
    low = max(min([*deltas, *ends, 0.0]), -most)
    high = min(max([*deltas, *ends, 0.0]), most)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _spec(
    rows: Sequence[dict[str, object]], labels: Sequence[str], name: str
) -> dict[str, object]:
    used = [v for v in _VERDICTS if any(row["k"] == v for row in rows)]
    y: dict[str, object] = {
        "field": "row",
        "type": "nominal",
        "title": None,
        "sort": list(labels),
        "axis": {"labelLimit": 340},
    }
    colour: dict[str, object] = {
        "field": "k",
        "type": "nominal",
        "scale": {"domain": used, "range": [COLOURS[_VERDICTS[v]] for v in used]},
        "legend": {"title": None, "symbolType": "circle", "symbolFillColor": None},
    }
    x: dict[str, object] = {
        "type": "quantitative",
        "title": f"difference of {name} (%)",
        "scale": {"domain": _range(rows)},
    }
    known = [row for row in rows if row["low"] is not None]
    return {
        "width": _WIDTH,
        "height": {"step": 24},
        "padding": {"left": 5 + max(len(label) for label in labels), "right": 5},
        "layer": [
            {
                "data": {"values": [{"z": 0}]},
                "mark": {"type": "rule", "color": COLOURS["rule"]},
                "encoding": {"x": {"field": "z", "type": "quantitative"}},
            },
            _intervals(known, {"y": y, "color": colour}, x),
            _points(rows, {"y": y, "color": colour}, x),
        ],
    }


def _intervals(
    rows: Sequence[dict[str, object]],
    shared: dict[str, dict[str, object]],
    x: dict[str, object],
) -> dict[str, object]:
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.6, "clip": True},
        "encoding": {
            **shared,
            "x": {**x, "field": "low"},
            "x2": {"field": "high"},
            "description": {"field": "text"},
        },
    }


def _points(
    rows: Sequence[dict[str, object]],
    shared: dict[str, dict[str, object]],
    x: dict[str, object],
) -> dict[str, object]:
    return {
        "data": {"values": list(rows)},
        "mark": {"type": "point", "size": 46, "opacity": 1},
        "encoding": {
            **shared,
            "x": {**x, "field": "v"},
            "fill": {
                "condition": {"test": "datum.low === null", "value": None},
                "field": "k",
                "type": "nominal",
                "scale": shared["color"]["scale"],
                "legend": None,
            },
            "description": {"field": "text"},
        },
    }
