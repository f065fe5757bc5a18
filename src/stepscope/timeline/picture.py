"""One step as lanes of marks, reduced to what a picture of given width can show."""

from collections import Counter

import msgspec
import numpy as np

from stepscope.timeline.choose import chosen_steps
from stepscope.timeline.columns import I64, KERNEL, Bool, Ints
from stepscope.timeline.device import Device
from stepscope.timeline.layers import find_layers
from stepscope.timeline.names import communication_mask, short_name

_KINDS = ("compute", "communication", "memcpy")
_MOST_THREADS = 3
#: A captured graph with branches runs each of them on a stream of its own, dozens of
#: them in a step. Above so many, streams that take turns share a lane.
_MOST_STREAMS = 6


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation, or a run of operations each too short to be seen.

    ``start_us`` and ``end_us`` count from the start of the step; ``busy_us`` is how
    long an operation was active between them.
    """

    kind: str
    name: str
    start_us: float
    end_us: float
    n: int = 1
    busy_us: float


class Lane(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the picture."""

    name: str
    marks: tuple[Mark, ...]


class StepPicture(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A step to be drawn.

    Attributes:
        rank: Its rank; None where the trace does not say.
        kind: Kind of step.
        index: Which of the rank's whole steps of this kind, from 0.
        length_us: Its period.
        pixel_us: Operations shorter than this were joined to runs.
        n_ops: Device operations in it.
        lanes: Host threads first, then layers, streams and collectives.
    """

    rank: int | None
    kind: str
    index: int
    length_us: float
    pixel_us: float
    n_ops: int
    lanes: tuple[Lane, ...]


def step_picture(device: Device, width: int = 800) -> StepPicture:
    """Return the median step of a rank as it can be drawn ``width`` pixels wide.

    Raises:
        RefusedError: The trace has no whole step.
    """
    index = int(chosen_steps(device)[0])
    lo, hi = int(device.start[index]), int(device.end[index])
    pixel = max((hi - lo) // width, 1)
    ops = device.trace.ops
    inside = np.flatnonzero((ops.start_ns < hi) & (ops.end_ns > lo))
    lanes = [
        *_host_lanes(device, (lo, hi), pixel),
        *_layer_lane(device, inside, (lo, hi)),
        *_device_lanes(device, inside, (lo, hi), pixel),
    ]
    return StepPicture(
        rank=device.trace.rank,
        kind=device.kind or "step",
        index=index,
        length_us=(hi - lo) / 1000,
        pixel_us=pixel / 1000,
        n_ops=int(((ops.start_ns >= lo) & (ops.start_ns < hi)).sum()),
        lanes=tuple(lanes),
    )


def _device_lanes(
    device: Device, inside: I64, window: tuple[int, int], pixel: int
) -> list[Lane]:
    trace = device.trace
    ops = trace.ops
    talk = communication_mask(trace, ops)[inside]
    kind = np.where(talk, 1, np.where(ops.kind[inside] == KERNEL, 0, 2))
    names = [short_name(trace.names[i]) for i in ops.name[inside].tolist()]
    found = []
    spans = np.stack([ops.start_ns[inside], ops.end_ns[inside]], axis=1)
    for streams, mine in _shared_lanes(ops.stream[inside], ~talk, spans):
        rows = _rows(device, inside, mine, kind, names)
        found.append(Lane(name=_called(streams), marks=_joined(rows, window, pixel)))
    if talk.any():
        rows = _rows(device, inside, np.flatnonzero(talk), kind, names)
        found.append(Lane(name="collectives", marks=_joined(rows, window, pixel)))
    return found


def _shared_lanes(stream: Ints, shown: Bool, spans: I64) -> list[tuple[list[int], I64]]:
    """Return the streams of each lane and their operations, in order of time."""
    each = [
        (number, np.flatnonzero((stream == number) & shown))
        for number in np.unique(stream[shown]).tolist()
    ]
    if len(each) <= _MOST_STREAMS:
        return [([number], mine) for number, mine in each]
    lanes: list[tuple[list[int], I64]] = []
    # The stream with most operations first: it is the one that the others leave.
    for number, mine in sorted(each, key=lambda pair: (-len(pair[1]), pair[0])):
        for i, (streams, held) in enumerate(lanes):
            both = np.sort(np.concatenate([held, mine]))
            if i and _overlaps(spans[both]) == _overlaps(spans[held]) + _overlaps(
                spans[mine]
            ):
                lanes[i] = [*streams, number], both
                break
        else:
            lanes.append(([number], mine))
    return lanes


def _overlaps(spans: I64) -> int:
    """Return how many of the ascending spans begin before an earlier one has ended."""
    reach = np.maximum.accumulate(spans[:, 1])
    return int((spans[1:, 0] < reach[:-1]).sum())


def _called(streams: list[int]) -> str:
    if len(streams) == 1:
        return f"stream {streams[0]}"
    return f"{len(streams)} streams, {min(streams)} to {max(streams)}"


_Row = tuple[int, int, str, str]


def _rows(
    device: Device, inside: I64, mine: I64, kind: I64, names: list[str]
) -> list[_Row]:
    ops = device.trace.ops
    return [
        (
            int(ops.start_ns[inside[i]]),
            int(ops.end_ns[inside[i]]),
            _KINDS[kind[i]],
            names[i],
        )
        for i in mine.tolist()
    ]


def _joined(rows: list[_Row], window: tuple[int, int], pixel: int) -> tuple[Mark, ...]:
    """Join neighbours of one kind that are each shorter than a pixel and as close."""
    lo, hi = window
    runs: list[list[_Row]] = []
    for start, end, kind, name in rows:
        row = (max(start, lo), min(end, hi), kind, name)
        last = runs[-1] if runs else None
        short = row[1] - row[0] < pixel
        if (
            last is not None
            and short
            and last[-1][2] == kind
            and last[-1][1] - last[-1][0] < pixel
            and row[0] - max(r[1] for r in last[-3:]) < pixel
        ):
            last.append(row)
        else:
            runs.append([row])
    return tuple(_mark(run, lo) for run in runs)


def _mark(run: list[_Row], lo: int) -> Mark:
    counts = Counter(name for *_, name in run)
    name = ", ".join(
        f"{n} x {what}" if n > 1 else what for what, n in counts.most_common(6)
    )
    if len(counts) > 6:
        name += f" and {len(counts) - 6} other kinds"
    start, end = run[0][0], max(row[1] for row in run)
    busy, reach = 0, start
    for row in run:
        busy += max(row[1] - max(row[0], reach), 0)
        reach = max(reach, row[1])
    return Mark(
        kind=run[0][2],
        name=name,
        start_us=(start - lo) / 1000,
        end_us=(end - lo) / 1000,
        n=len(run),
        busy_us=busy / 1000,
    )


def _host_lanes(device: Device, window: tuple[int, int], pixel: int) -> list[Lane]:
    """Return annotations and API calls of the busiest threads, in the device's time."""
    if device.has("host-clock-skew"):
        return []
    trace = device.trace
    found = []
    for table, label in ((trace.spans, "annotations"), (trace.calls, "API calls")):
        near = (table.start_ns < window[1]) & (table.end_ns > window[0])
        if label == "annotations":
            near &= trace.spans.is_annotation
        index = np.flatnonzero(near)
        threads = Counter(table.thread[index].tolist()).most_common(_MOST_THREADS)
        for number, (thread, _) in enumerate(threads):
            rows = [
                (
                    int(table.start_ns[i]),
                    int(table.end_ns[i]),
                    _host_kind(device, label, i),
                    trace.names[table.name[i]],
                )
                for i in index[table.thread[index] == thread].tolist()
            ]
            name = label if number == 0 else f"{label} ({number + 1})"
            found.append(Lane(name=name, marks=_joined(rows, window, pixel)))
    return found


def _host_kind(device: Device, label: str, i: int) -> str:
    if label == "annotations":
        return "annotation"
    if device.trace.calls.is_graph[i]:
        return "graph launch"
    name = device.trace.names[device.trace.calls.name[i]]
    return "wait" if "ynchronize" in name else "call"


def _layer_lane(device: Device, inside: I64, window: tuple[int, int]) -> list[Lane]:
    """Return the repeats of a layer, where this step runs those kernels."""
    run = find_layers(device.trace, *(device.first_period or window))
    ops = device.trace.ops
    kernels = inside[(ops.kind[inside] == KERNEL) & (ops.start_ns[inside] >= window[0])]
    if run is None:
        return []
    kernels = kernels[run.in_order(device.trace, kernels)]
    if not run.stands_in(ops.name[kernels]):
        return []
    starts = ops.start_ns[kernels]
    heads = range(run.at, run.at + run.n_blocks * run.width, run.width)
    marks = []
    for number, head in enumerate(heads):
        after = head + run.width
        end = int(starts[after]) if after < len(starts) else window[1]
        start = int(starts[head])
        marks.append(
            Mark(
                kind=f"layer {number % 2}",
                name=f"repeat {number + 1} of {run.n_blocks}, {run.width} kernels",
                start_us=(start - window[0]) / 1000,
                end_us=(end - window[0]) / 1000,
                busy_us=(end - start) / 1000,
            )
        )
    return [Lane(name="layers", marks=tuple(marks))]
