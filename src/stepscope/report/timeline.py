"""What the machine did while a cell ran: one figure of several panels a cell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.window import cell_span, telemetry_window
from stepscope.report.figure import COLOURS, Figure
from stepscope.report.lanes import (
    Frame,
    Layer,
    Reading,
    Series,
    gpu_series,
    host_cpu,
    host_memory,
    panel,
    process_series,
    spoken,
)
from stepscope.run.run import Cell, Run
from stepscope.units import gib, ns, seconds

_N_BINS = 120
_MARGIN_NS = ns(1.0)
_WIDTH, _HEIGHT = 560, 74


@dataclass(frozen=True, slots=True)
class _Span:
    """The stretch drawn and the telemetry window inside it; zero is the first send."""

    from_ns: int
    to_ns: int
    window: tuple[int, int] | None
    zero_ns: int


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
    drawn = _panels(run, span)
    if not drawn:
        return None
    frame = Frame(
        width=_WIDTH,
        height=_HEIGHT,
        n_bins=_N_BINS,
        from_s=seconds(span.from_ns - span.zero_ns),
        to_s=seconds(span.to_ns - span.zero_ns),
    )
    return Figure(
        name=figure_name(cell, index),
        title=f"The machine during {cell.name}",
        alt="Over time: " + "; ".join(spoken(t, all_) for t, all_ in drawn),
        spec={
            "vconcat": [panel(t, all_, frame, _window(span)) for t, all_ in drawn],
            "spacing": 10,
            "resolve": {"scale": {"color": "independent"}},
        },
        note=f"Seconds since the first send. At most {_N_BINS} bins a curve: the line"
        " is the mean of a bin over samples and GPUs, the band its least and greatest"
        " value. The shaded stretch is the telemetry window; every mean in the tables"
        " is taken inside it.",
    )


def _span(cell: Cell) -> _Span | None:
    table = columns(cell.requests, cell.chunks) if cell.requests else None
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


_SHARES: dict[str, Reading] = {
    "utilization": lambda s: s.util_pct,
    "SM active": lambda s: s.sm_active_pct,
    "DRAM": lambda s: s.dram_bw_pct,
    "tensor": lambda s: s.tensor_pct,
}
_POWER: dict[str, Reading] = {
    "power": lambda s: s.power_w,
    "cap": lambda s: s.power_limit_w,
}
_CLOCK: dict[str, Reading] = {
    "SM clock": lambda s: s.sm_clock_mhz,
    "maximum": lambda s: s.sm_clock_max_mhz,
}
_MEMORY: dict[str, Reading] = {
    "used": lambda s: None if s.memory_used_bytes is None else gib(s.memory_used_bytes)
}


def _panels(run: Run, span: _Span) -> list[tuple[str, Sequence[Series]]]:
    """Return (title, curves) of every panel that has one."""
    zero = span.zero_ns
    gpu = [s for s in run.samples.gpu if span.from_ns <= s.at_ns <= span.to_ns]
    host = [s for s in run.samples.host if span.from_ns <= s.at_ns <= span.to_ns]
    process = [s for s in run.samples.process if span.from_ns <= s.at_ns <= span.to_ns]
    panels = [
        ("utilization, counters (%)", gpu_series(gpu, zero, _SHARES)),
        ("power (W)", gpu_series(gpu, zero, _POWER)),
        ("SM clock (MHz)", gpu_series(gpu, zero, _CLOCK)),
        ("GPU memory (GiB)", gpu_series(gpu, zero, _MEMORY)),
        ("CPU (% of a core)", list(process_series(process, zero))),
        ("host CPU (%)", [Series("all cores", list(host_cpu(host, zero)))]),
        ("host memory (GiB)", [Series("used", list(host_memory(host, zero)))]),
    ]
    drawn = [(title, [s for s in all_ if s.points]) for title, all_ in panels]
    return [(title, all_) for title, all_ in drawn if all_]


def _window(span: _Span) -> list[Layer]:
    if span.window is None:
        return []
    since, to = (seconds(at - span.zero_ns) for at in span.window)
    return [
        {
            "data": {"values": [{"t": since, "t2": to, "k": "window"}]},
            "mark": {"type": "rect", "color": COLOURS["window"], "opacity": 0.35},
            "encoding": {
                "x": {"field": "t", "type": "quantitative"},
                "x2": {"field": "t2"},
                "description": {"value": "telemetry window"},
            },
        }
    ]
