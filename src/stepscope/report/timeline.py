"""What the machine did while a cell ran: one figure of several panels a cell."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.window import cell_span, telemetry_window
from stepscope.board.claims import number
from stepscope.report.downsample import bins
from stepscope.report.figure import COLOURS, Figure, series
from stepscope.run.run import Cell, Run
from stepscope.run.samples import GpuSample, HostSample, ProcessSample
from stepscope.units import gib, ns, seconds

_N_BINS = 160
_MARGIN_NS = ns(1.0)
_WIDTH, _HEIGHT = 560, 74
_LEGEND = {
    "title": None,
    "orient": "right",
    "symbolType": "stroke",
    "symbolOpacity": 1,
    "symbolStrokeWidth": 2,
}


@dataclass(frozen=True, slots=True)
class _Span:
    """The stretch drawn and the telemetry window inside it; zero is the first send."""

    from_ns: int
    to_ns: int
    window: tuple[int, int] | None
    zero_ns: int


@dataclass(frozen=True, slots=True)
class _Series:
    """A named curve: (seconds since the first send, value)."""

    name: str
    points: list[tuple[float, float]]


def figure_name(cell: Cell, index: int) -> str:
    """Return the name of a cell's figure: unique, and safe as id and file name."""
    return f"telemetry-{index:02d}-{re.sub(r'[^A-Za-z0-9]+', '-', cell.name)}"[:60]


def telemetry(run: Run, cell: Cell, index: int) -> Figure | None:
    """Return utilization, power, clocks, memory and CPU of one cell over time.

    Args:
        run: The run, for its samples.
        cell: The cell.
        index: Position of the cell, for the figure's name.

    Returns:
        None where nothing was sampled during the cell.
    """
    span = _span(cell)
    if span is None:
        return None
    gpu = [s for s in run.samples.gpu if span.from_ns <= s.at_ns <= span.to_ns]
    host = [s for s in run.samples.host if span.from_ns <= s.at_ns <= span.to_ns]
    process = [s for s in run.samples.process if span.from_ns <= s.at_ns <= span.to_ns]
    panels = [
        ("busy (%)", _gpu_series(gpu, span, _BUSY)),
        ("power (W)", _gpu_series(gpu, span, _POWER)),
        ("SM clock (MHz)", _gpu_series(gpu, span, _CLOCK)),
        ("GPU memory (GiB)", _gpu_series(gpu, span, _MEMORY)),
        ("CPU (% of a core)", list(_process_series(process, span))),
        ("host CPU (%)", [_Series("all cores", list(_host_cpu(host, span)))]),
        ("host memory (GiB)", [_Series("used", list(_host_memory(host, span)))]),
    ]
    drawn = [(t, [s for s in all_ if s.points]) for t, all_ in panels]
    drawn = [(title, all_) for title, all_ in drawn if all_]
    if not drawn:
        return None
    return Figure(
        name=figure_name(cell, index),
        title=f"The machine during {cell.name}",
        alt="Over time: " + "; ".join(_spoken(t, all_) for t, all_ in drawn),
        spec={
            "vconcat": [_panel(title, all_, span) for title, all_ in drawn],
            "spacing": 10,
            "resolve": {"scale": {"color": "independent"}},
        },
        note=f"Seconds since the first send. At most {_N_BINS} bins a curve: the line"
        " is the mean of a bin over samples and GPUs, the band its least and greatest"
        " value. The shaded stretch is the telemetry window; every mean in the tables"
        " is taken inside it.",
    )


def _span(cell: Cell) -> _Span | None:
    table = columns(cell.requests) if cell.requests else None
    whole = cell_span(table) if table is not None else None
    if table is not None and whole is not None:
        inner = telemetry_window(table, whole, cell.workload.concurrency)
        return _Span(
            from_ns=whole.from_ns - _MARGIN_NS,
            to_ns=whole.to_ns + _MARGIN_NS,
            window=(inner.from_ns, inner.to_ns),
            zero_ns=whole.from_ns,
        )
    if cell.started_at_ns is None or cell.ended_at_ns is None:
        return None
    return _Span(cell.started_at_ns, cell.ended_at_ns, None, cell.started_at_ns)


_Reading = Callable[[GpuSample], float | None]
_BUSY: dict[str, _Reading] = {
    "utilization": lambda s: s.util_pct,
    "SM active": lambda s: s.sm_active_pct,
    "DRAM": lambda s: s.dram_bw_pct,
    "tensor": lambda s: s.tensor_pct,
}
_POWER: dict[str, _Reading] = {
    "power": lambda s: s.power_w,
    "cap": lambda s: s.power_limit_w,
}
_CLOCK: dict[str, _Reading] = {
    "SM clock": lambda s: s.sm_clock_mhz,
    "maximum": lambda s: s.sm_clock_max_mhz,
}
_MEMORY: dict[str, _Reading] = {
    "used": lambda s: None if s.memory_used_bytes is None else gib(s.memory_used_bytes)
}


def _gpu_series(
    samples: Sequence[GpuSample], span: _Span, readings: dict[str, _Reading]
) -> list[_Series]:
    return [
        _Series(
            name,
            [
                (seconds(s.at_ns - span.zero_ns), value)
                for s in samples
                if (value := read(s)) is not None
            ],
        )
        for name, read in readings.items()
    ]


def _process_series(samples: Sequence[ProcessSample], span: _Span) -> Iterator[_Series]:
    """Yield each role's CPU between two samples, summed over its processes."""
    last: dict[int, ProcessSample] = {}
    by_role: dict[str, dict[int, float]] = {}
    for sample in samples:
        before = last.get(sample.pid)
        last[sample.pid] = sample
        if before is None or sample.at_ns <= before.at_ns:
            continue
        used = 100 * (sample.cpu_ns - before.cpu_ns) / (sample.at_ns - before.at_ns)
        points = by_role.setdefault(sample.role, {})
        points[sample.at_ns] = points.get(sample.at_ns, 0.0) + max(used, 0.0)
    for role, of_role in by_role.items():
        yield _Series(
            role, [(seconds(at - span.zero_ns), v) for at, v in sorted(of_role.items())]
        )


def _host_cpu(
    samples: Sequence[HostSample], span: _Span
) -> Iterator[tuple[float, float]]:
    for before, after in itertools.pairwise(samples):
        if None in (before.cpu_busy_ns, after.cpu_busy_ns):
            continue
        if before.cpu_total_ns is None or after.cpu_total_ns is None:
            continue
        total = after.cpu_total_ns - before.cpu_total_ns
        busy = (after.cpu_busy_ns or 0) - (before.cpu_busy_ns or 0)
        if total > 0:
            yield seconds(after.at_ns - span.zero_ns), 100 * busy / total


def _host_memory(
    samples: Sequence[HostSample], span: _Span
) -> Iterator[tuple[float, float]]:
    for sample in samples:
        used = sample.cgroup_memory_bytes or sample.memory_used_bytes
        if used is not None:
            yield seconds(sample.at_ns - span.zero_ns), gib(used)


def _spoken(title: str, all_: Sequence[_Series]) -> str:
    parts = []
    for one in all_:
        values = [v for _, v in one.points]
        mean = sum(values) / len(values)
        parts.append(
            f"{one.name} mean {number(mean)} ({number(min(values))} to"
            f" {number(max(values))})"
        )
    return f"{title}: {', '.join(parts)}"


def _panel(title: str, all_: Sequence[_Series], span: _Span) -> dict[str, object]:
    rows = [
        {"t": b.at_s, "v": b.mean, "low": b.low, "high": b.high, "k": one.name}
        for one in all_
        for b in bins(one.points, _N_BINS)
    ]
    names = [one.name for one in all_]
    scale = {"domain": names, "range": [series(i) for i in range(len(names))]}
    colour = {
        "field": "k",
        "type": "nominal",
        "scale": scale,
        "legend": _LEGEND if len(names) > 1 else None,
    }
    layers: list[dict[str, object]] = []
    if span.window is not None:
        edges = [seconds(at - span.zero_ns) for at in span.window]
        layers.append(
            {
                "data": {"values": [{"t": edges[0], "t2": edges[1], "k": "window"}]},
                "mark": {"type": "rect", "color": COLOURS["window"], "opacity": 0.35},
                "encoding": {
                    "x": {"field": "t", "type": "quantitative"},
                    "x2": {"field": "t2"},
                    "description": {"value": "telemetry window"},
                },
            }
        )
    x = {
        "field": "t",
        "type": "quantitative",
        "title": None,
        "scale": {
            "domain": [seconds(at - span.zero_ns) for at in (span.from_ns, span.to_ns)],
            "nice": False,
        },
        "axis": {"grid": False, "tickCount": 8},
    }
    y = {"type": "quantitative", "title": None, "axis": {"tickCount": 3}}
    layers.append(
        {
            "data": {"values": rows},
            "mark": {"type": "area", "opacity": 0.25},
            "encoding": {
                "x": x,
                "y": {**y, "field": "low"},
                "y2": {"field": "high"},
                "color": colour,
                "description": {"field": "k"},
            },
        }
    )
    layers.append(
        {
            "data": {"values": rows},
            "mark": {"type": "line", "strokeWidth": 1.2},
            "encoding": {
                "x": x,
                "y": {**y, "field": "v"},
                "color": colour,
                "description": {"field": "k"},
            },
        }
    )
    return {"width": _WIDTH, "height": _HEIGHT, "title": title, "layer": layers}
