"""Curves over time as panels of one figure: shared by a cell's and a session's."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepscope.board.claims import number
from stepscope.report.downsample import bins
from stepscope.report.figure import series
from stepscope.run.samples import GpuSample, HostSample, ProcessSample
from stepscope.units import gib, seconds

Layer = dict[str, object]
Reading = Callable[[GpuSample], float | None]
#: Samples further apart than so many usual distances have a hole between them.
_HOLE_TIMES = 5.0
_LEGEND = {
    "title": None,
    "orient": "right",
    "symbolType": "stroke",
    "symbolOpacity": 1,
    "symbolStrokeWidth": 2,
}


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve: (seconds since the figure's zero, value)."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where panels are drawn: pixels, bins, and the seconds that all of them show."""

    width: int
    height: int
    n_bins: int
    from_s: float
    to_s: float


def gpu_series(
    samples: Sequence[GpuSample], zero_ns: int, readings: Mapping[str, Reading]
) -> list[Series]:
    """Return one curve for each reading; empty where the driver never gave it."""
    return [
        Series(
            name,
            [
                (seconds(s.at_ns - zero_ns), value)
                for s in samples
                if (value := read(s)) is not None
            ],
        )
        for name, read in readings.items()
    ]


def process_series(samples: Sequence[ProcessSample], zero_ns: int) -> Iterator[Series]:
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
        yield Series(
            role, [(seconds(at - zero_ns), v) for at, v in sorted(of_role.items())]
        )


def host_cpu(
    samples: Sequence[HostSample], zero_ns: int
) -> Iterator[tuple[float, float]]:
    """Yield (s, percent of all cores) between two samples."""
    for before, after in itertools.pairwise(samples):
        if None in (before.cpu_busy_ns, after.cpu_busy_ns):
            continue
        if before.cpu_total_ns is None or after.cpu_total_ns is None:
            continue
        total = after.cpu_total_ns - before.cpu_total_ns
        busy = (after.cpu_busy_ns or 0) - (before.cpu_busy_ns or 0)
        if total > 0:
            yield seconds(after.at_ns - zero_ns), 100 * busy / total


def host_memory(
    samples: Sequence[HostSample], zero_ns: int
) -> Iterator[tuple[float, float]]:
    """Yield (s, GiB): the container's where it has a count of its own."""
    for sample in samples:
        used = sample.cgroup_memory_bytes or sample.memory_used_bytes
        if used is not None:
            yield seconds(sample.at_ns - zero_ns), gib(used)


def spoken(title: str, all_: Sequence[Series]) -> str:
    """Return a panel in words: mean, least and greatest value of each curve."""
    parts = []
    for one in all_:
        values = [v for _, v in one.points]
        mean = sum(values) / len(values)
        parts.append(
            f"{one.name} mean {number(mean)} ({number(min(values))} to"
            f" {number(max(values))})"
        )
    return f"{title}: {', '.join(parts)}"


def time_axis(frame: Frame, ticks: int = 8) -> dict[str, object]:
    """Return the horizontal encoding: the same seconds in every panel."""
    return {
        "field": "t",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [frame.from_s, frame.to_s], "nice": False},
        "axis": {"grid": False, "tickCount": ticks},
    }


def _rows(one: Series, n_bins: int) -> Iterator[dict[str, object]]:
    """Yield a row for each bin, and an empty one where samples are missing.

    A line across a hole would say what nobody saw.
    """
    found = bins(one.points, n_bins)
    steps = sorted(b.at_s - a.at_s for a, b in itertools.pairwise(found))
    usual = steps[len(steps) // 2] if steps else 0.0
    for before, b in zip((None, *found), found, strict=False):
        if before is not None and b.at_s - before.at_s > _HOLE_TIMES * usual:
            at = (before.at_s + b.at_s) / 2
            yield {"t": at, "v": None, "low": None, "high": None, "k": one.name}
        yield {"t": b.at_s, "v": b.mean, "low": b.low, "high": b.high, "k": one.name}


def panel(
    title: str, all_: Sequence[Series], frame: Frame, below: Sequence[Layer] = ()
) -> dict[str, object]:
    """Return one panel: for each curve the mean of each bin in a band of its extremes.

    Args:
        title: Its heading, with the unit.
        all_: Curves, none of them empty.
        frame: Where.
        below: Layers under the curves.
    """
    rows = [row for one in all_ for row in _rows(one, frame.n_bins)]
    names = [one.name for one in all_]
    colour = {
        "field": "k",
        "type": "nominal",
        "scale": {"domain": names, "range": [series(i) for i in range(len(names))]},
        "legend": _LEGEND if len(names) > 1 else None,
    }
    x = time_axis(frame)
    y = {"type": "quantitative", "title": None, "axis": {"tickCount": 3}}
    spread: Layer = {
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
    mean: Layer = {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.2},
        "encoding": {
            "x": x,
            "y": {**y, "field": "v"},
            "color": colour,
            "description": {"field": "k"},
        },
    }
    return {
        "width": frame.width,
        "height": frame.height,
        "title": title,
        "layer": [*below, spread, mean],
    }
