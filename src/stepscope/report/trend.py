"""The page of many runs: one figure a metric, where sessions changed, what moved."""

from collections.abc import Sequence
from datetime import UTC, datetime

from markupsafe import Markup

from stepscope.analysis.trend.records import TrendDocument, TrendSeries
from stepscope.analysis.trend.trend import number_of_runs
from stepscope.board.claims import number
from stepscope.report.figure import COLOURS, Figure, series
from stepscope.report.svg import render
from stepscope.report.template import css, template

_WIDTH, _HEIGHT = 640, 240
LABELS = {
    "output_tokens_per_s": "output tokens/s",
    "tpot_ms": "TPOT (ms)",
    "ttft_ms": "TTFT (ms)",
}


def trend_html(document: TrendDocument) -> str:
    """Return the page; nothing in it is fetched and nothing in it runs."""
    made = trend_figures(document)
    return template("trend.html.j2").render(
        document=document,
        # Our own SVG, rewritten from an allow list by svg.inline.
        figures=[(f, Markup(render(f))) for f in made],  # noqa: S704
        css=css(),
        when=when,
        number=number,
        where=where,
        runs=number_of_runs,
        label=lambda metric: LABELS.get(metric, metric),
    )


def when(at_unix_ns: int) -> str:
    """Return an instant as people write it, UTC."""
    return datetime.fromtimestamp(at_unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def where(one: TrendSeries) -> str:
    """Return the workload point of a series in words."""
    at = f"concurrency {one.concurrency}"
    if one.concurrency is None:
        rate = one.request_rate
        at = "open loop" if rate is None else f"{rate:g} requests/s"
    tokens = ""
    if one.input_tokens is not None and one.output_tokens is not None:
        tokens = f", {one.input_tokens} in, {one.output_tokens} out"
    return f"{one.configuration} at {at}{tokens}"


def trend_figures(document: TrendDocument) -> tuple[Figure, ...]:
    """Return one figure a metric and configuration, as percent of each series' mean."""
    groups: dict[tuple[str, str], list[TrendSeries]] = {}
    for one in document.series:
        if len(one.points) > 1:
            groups.setdefault((one.metric, one.configuration), []).append(one)
    order = {run.id: i + 1 for i, run in enumerate(document.runs)}
    marks = sorted({order[c.run] for c in document.identity_changes})
    return tuple(
        _figure(f"trend-{i}", key, members, order, marks)
        for i, (key, members) in enumerate(groups.items())
    )


def _figure(
    name: str,
    key: tuple[str, str],
    members: Sequence[TrendSeries],
    order: dict[str, int],
    marks: Sequence[int],
) -> Figure:
    metric, configuration = key
    label = LABELS.get(metric, metric)
    names = [where(m) for m in members]
    rows = [
        {
            "n": order[p.run],
            "v": 100 * p.value / one.mean,
            "k": where(one),
            "text": f"{p.run}, {when(p.at_unix_ns)}: {number(p.value)} {label},"
            f" {where(one)}",
        }
        for one in members
        for p in one.points
    ]
    title = f"{label} of {configuration} over runs"
    colour: dict[str, object] = {
        "field": "k",
        "type": "nominal",
        "scale": {"domain": names, "range": [series(i) for i in range(len(names))]},
        "legend": {"title": None, "labelLimit": 400} if len(names) > 1 else None,
    }
    return Figure(
        name=name,
        title=title,
        alt=f"{title}, percent of each series' mean: "
        + "; ".join(str(row["text"]) for row in rows),
        spec=_spec(rows, colour, marks),
        note="Runs stand at equal distances, whatever time lies between them. Dashed"
        " lines: from there on something recorded of the session is different. Each"
        " point is the mean of a run's repeats; a line between points is no"
        " measurement.",
    )


def _spec(
    rows: Sequence[dict[str, object]], colour: dict[str, object], marks: Sequence[int]
) -> dict[str, object]:
    lines: dict[str, object] = {
        "data": {"values": list(rows)},
        "encoding": {"color": colour, "description": {"field": "k"}},
    }
    rules: list[dict[str, object]] = [
        {
            "data": {"values": [{"n": n - 0.5} for n in marks]},
            "mark": {"type": "rule", "strokeDash": [4, 3], "color": COLOURS["rule"]},
            "encoding": {"y": None},
        }
    ]
    points = {
        **lines,
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
        "encoding": {"color": colour, "description": {"field": "text"}},
    }
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "encoding": {
            "x": {
                "field": "n",
                "type": "quantitative",
                "title": "run, in order of time",
                "scale": {"nice": False, "padding": 12},
                "axis": {"format": "d", "tickMinStep": 1, "grid": False},
            },
            "y": {
                "field": "v",
                "type": "quantitative",
                "title": "% of the mean",
                "scale": {"zero": False},
            },
        },
        "layer": [
            *(rules if marks else []),
            {**lines, "mark": {"type": "line", "strokeWidth": 1.2}},
            points,
        ],
    }
