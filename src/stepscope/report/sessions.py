"""A whole session on one picture: what was done, and what the machine did meanwhile."""

from collections.abc import Sequence

from stepscope.analysis.records import Analysis
from stepscope.report.figure import COLOURS, Figure
from stepscope.report.lanes import (
    Frame,
    Layer,
    Reading,
    Series,
    gpu_series,
    host_memory,
    panel,
    spoken,
    time_axis,
)
from stepscope.report.phases import KINDS, Span, sessions, spans
from stepscope.run.run import Launch, Run
from stepscope.units import seconds

_WIDTH, _HEIGHT, _ROW = 860, 62, 20
_N_BINS = 320
#: A name is written into its span where it has this share of the width a letter.
_LETTER = 6.4 / _WIDTH
_COLOURS = {
    "boot": "grid", "phase": "s2", "failed": "s4", "warm-up": "window", "cell": "s0",
    "void": "void", "traced": "s3", "stop": "ink",
}  # fmt: skip
_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
_POWER: dict[str, Reading] = {
    "power": lambda s: s.power_w,
    "cap": lambda s: s.power_limit_w,
}
_SHARES: dict[str, Reading] = {
    "utilization": lambda s: s.util_pct,
    "SM active": lambda s: s.sm_active_pct,
    "DRAM": lambda s: s.dram_bw_pct,
}


def session_lanes(run: Run, analysis: Analysis) -> tuple[Figure, ...]:
    """Return, for each session, telemetry over all of it above one axis with phases.

    A session whose instants are not known, as of most imports, has no figure.
    """
    made = []
    for index, session in enumerate(sessions(run)):
        found = spans(run, analysis, session)
        if found:
            made.append(_figure(run, session, found, index))
    return tuple(made)


def _figure(run: Run, session: str, found: Sequence[Span], index: int) -> Figure:
    zero = min(span.from_ns for span in found)
    last = max(span.to_ns for span in found)
    frame = Frame(
        width=_WIDTH,
        height=_HEIGHT,
        n_bins=_N_BINS,
        from_s=0.0,
        to_s=max(seconds(last - zero), 1e-3),
    )
    launches = [launch for launch in run.launches if launch.session == session]
    drawn = _panels(run, launches, (zero, last))
    title = f"Session {session}, whole"
    shade = _shade(found, zero)
    said = "; ".join(
        f"{KINDS[span.kind]} {span.name} from {seconds(span.from_ns - zero):.0f}"
        f" to {seconds(span.to_ns - zero):.0f} s"
        for span in found
    )
    return Figure(
        name=f"session-{index:02d}",
        title=title,
        alt=f"{said}. " + "; ".join(spoken(t, all_) for t, all_ in drawn),
        spec={
            "vconcat": [
                _strip(found, frame, zero),
                *(panel(t, all_, frame, shade) for t, all_ in drawn),
            ],
            "spacing": 12,
            "resolve": {"scale": {"color": "independent"}},
        },
        note=f"Seconds since the first server was started. At most {_N_BINS} bins a"
        " curve: mean, and a band from least to greatest, over samples and GPUs. Boot"
        " phases are the server log's, which mostly counts whole seconds; where two"
        " overlap the later hides the earlier. KV use is read where the engine's"
        " metrics were scraped, so a peak between two is not seen. Under the curves,"
        " boots are grey and warm-ups are yellow.",
    )


def _panels(
    run: Run, launches: Sequence[Launch], between: tuple[int, int]
) -> list[tuple[str, list[Series]]]:
    zero, last = between
    gpu = [s for s in run.samples.gpu if zero <= s.at_ns <= last]
    host = [s for s in run.samples.host if zero <= s.at_ns <= last]
    panels = [
        ("power (W)", gpu_series(gpu, zero, _POWER)),
        ("utilization, counters (%)", gpu_series(gpu, zero, _SHARES)),
        ("host memory (GiB)", [Series("used", list(host_memory(host, zero)))]),
        ("KV cache in use (%)", [Series("in use", _kv(run, launches, between))]),
    ]
    drawn = [(title, [s for s in all_ if s.points]) for title, all_ in panels]
    return [(title, all_) for title, all_ in drawn if all_]


def _kv(
    run: Run, launches: Sequence[Launch], between: tuple[int, int]
) -> list[tuple[float, float]]:
    """Return (s, percent) from scrapes; from the log's own lines where there are none.

    Of several engines behind one address the fullest counts.
    """
    zero, last = between
    points = []
    for shot in run.samples.metrics:
        values = [v.value for v in shot.values if v.name in _USAGE]
        if values and zero <= shot.at_ns <= last:
            points.append((seconds(shot.at_ns - zero), 100 * max(values)))
    if points:
        return points
    return [
        (seconds(event.at_ns - zero), event.numbers["kv_usage_pct"])
        for launch in launches
        if launch.log is not None
        for event in launch.log.events
        if event.at_ns is not None
        and "kv_usage_pct" in event.numbers
        and zero <= event.at_ns <= last
    ]


def _strip(found: Sequence[Span], frame: Frame, zero: int) -> dict[str, object]:
    """Return the panel of phases: a lane for the server, one for the load."""
    rows = [
        {
            "t": seconds(span.from_ns - zero),
            "t2": seconds(span.to_ns - zero),
            "lane": span.lane,
            "k": KINDS[span.kind],
            "name": span.name,
            "text": f"{KINDS[span.kind]} {span.name} ({span.launch}):"
            f" {seconds(span.from_ns - zero):.1f} to"
            f" {seconds(span.to_ns - zero):.1f} s",
        }
        for span in found
    ]
    used = [kind for kind in KINDS if any(span.kind == kind for span in found)]
    y = {"field": "lane", "type": "nominal", "title": None, "sort": ["boot", "load"],
         "axis": {"ticks": False, "domain": False}}  # fmt: skip
    bars: Layer = {
        "data": {"values": rows},
        "mark": {
            "type": "bar",
            "height": 16,
            "stroke": COLOURS["grid"],
            "strokeWidth": 0.5,
        },
        "encoding": {
            "x": time_axis(frame, 12),
            "x2": {"field": "t2"},
            "y": y,
            "color": {
                "field": "k",
                "type": "nominal",
                "scale": {
                    "domain": [KINDS[kind] for kind in used],
                    "range": [COLOURS[_COLOURS[kind]] for kind in used],
                },
                "legend": {
                    "title": None, "orient": "top", "columns": 8, "labelLimit": 0,
                },
            },
            "description": {"field": "text"},
        },
    }  # fmt: skip
    return {
        "width": frame.width,
        "height": {"step": _ROW},
        "title": "what was done",
        "layer": [bars, _names(found, frame, zero)],
    }


def _shade(found: Sequence[Span], zero: int) -> list[Layer]:
    """Return what lies under the curves: boots and warm-ups, so that panels align."""
    layers: list[Layer] = []
    for kinds, colour in ((("boot", "failed"), "grid"), (("warm-up",), "window")):
        rows = [
            {"t": seconds(s.from_ns - zero), "t2": seconds(s.to_ns - zero)}
            for s in found
            if s.kind in kinds
        ]
        if rows:
            layers.append(
                {
                    "data": {"values": rows},
                    "mark": {"type": "rect", "color": COLOURS[colour], "opacity": 0.4},
                    "encoding": {
                        "x": {"field": "t", "type": "quantitative"},
                        "x2": {"field": "t2"},
                        "description": {"value": kinds[0]},
                    },
                }
            )
    return layers


def _names(found: Sequence[Span], frame: Frame, zero: int) -> Layer:
    """Return names of launches at their starts, where they fit until the next one."""
    starts = [s for s in found if s.kind in ("boot", "failed")]
    ends = [*(seconds(s.from_ns - zero) for s in starts[1:]), frame.to_s]
    rows = []
    for span, end in zip(starts, ends[: len(starts)], strict=True):
        at = seconds(span.from_ns - zero)
        room = int((end - at) / frame.to_s / _LETTER)
        name = span.name if len(span.name) <= room else f"{span.name[: room - 1]}…"
        if room >= 4:
            rows.append({"t": at, "name": name})
    return {
        "data": {"values": rows},
        "mark": {
            "type": "text", "align": "left", "y": -7, "fontSize": 10,
            "color": COLOURS["ink"],
        },
        "encoding": {
            "x": {"field": "t", "type": "quantitative"},
            "text": {"field": "name"},
        },
    }  # fmt: skip
