"""A few steps of a trace as a small trace-event file that Perfetto opens.

It holds the device operations of the steps, the calls that launched them, calls that
waited, and the annotations around; and it marks where each step begins and ends, so
that reading it back gives the same budget.

What the format asks for beyond its fields: slices of one row must nest, else a viewer
drops or moves them; a row is known by its thread id, of which 0 stands for the process
id; rows are shown in ascending order of it; an arrow binds to the slice that was read
last on its row, and its id is one of the whole file.
"""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from stepscope.timeline.choose import same_steps
from stepscope.timeline.columns import I64, KERNEL, MEMCPY, STEP_MARK, Trace
from stepscope.timeline.device import Device, read_devices
from stepscope.timeline.graphs import call_of_ops
from stepscope.timeline.ranks import match_ranks

_CATEGORY = {KERNEL: "kernel", MEMCPY: "gpu_memcpy"}
#: The first row's thread id: neither 0 nor a process id, which name other rows.
_FIRST_ROW = 101
_Event = dict[str, object]


@dataclass(slots=True)
class _Slice:
    """A span of time in a row; ``event`` is what is written of it besides."""

    start_ns: int
    end_ns: int
    event: _Event


@dataclass(slots=True)
class _Process:
    """Rows of a process by name, in the order in which they are shown.

    ``nests`` says whether slices of a row may lie within each other.
    """

    pid: int | str
    name: str
    place: int
    nests: bool
    rows: dict[str, list[_Slice]] = field(default_factory=dict)


def perfetto(
    devices: Sequence[Device], n_steps: int = 1, offsets_ns: Sequence[int] = ()
) -> bytes:
    """Return ``n_steps`` steps around the median one as gzip of trace-event JSON.

    Args:
        devices: The ranks; in a file of several each is a process of its own, with
            the same steps, on the clock of the ranks together.
        n_steps: How many steps in a row.
        offsets_ns: What each rank's clock is ahead; empty where none is known.

    Raises:
        RefusedError: A trace has no whole step.
    """
    offsets = np.array(list(offsets_ns) or [0] * len(devices), dtype=np.int64)
    steps = same_steps(devices, n_steps, offsets)
    numbers, arrows = itertools.count(_FIRST_ROW), itertools.count(1)
    said: list[_Event] = []
    timed: list[_Event] = []
    n = len(devices)
    for i, (label, device) in enumerate(zip(_labels(devices), devices, strict=True)):
        names = f"{label}GPU", f"{label}host"
        pids: tuple[int | str, ...] = (0, 1) if n == 1 else names
        gpu = _Process(pids[0], names[0], place=i, nests=False)
        host = _Process(pids[1], names[1], place=n + i, nests=True)
        launches = _fill(device, steps[i], gpu, host)
        for process in (gpu, host):
            said += _laid_out(process, numbers)
        # Rank by rank: a reader numbers processes as they come.
        timed += _timed((gpu, host), launches, arrows, int(offsets[i]))
    base_ns = min(int(str(event["at_ns"])) for event in timed)
    return _written(devices, base_ns, [*said, *timed])


def perfetto_of(traces: list[Trace], n_steps: int) -> bytes:
    """Return the same of traces of one capture, their clocks aligned where they differ.

    Raises:
        RefusedError: A trace has no whole step.
    """
    devices = read_devices(traces)
    found = match_ranks([d.trace for d in devices], [d.steps for d in devices])
    return perfetto(devices, n_steps, found.offsets_ns)


def _labels(devices: Sequence[Device]) -> list[str]:
    """Return what stands before the names of each rank's processes."""
    ranks = [d.trace.rank for d in devices]
    if ranks == [None]:
        return [""]
    known = [i if rank is None else rank for i, rank in enumerate(ranks)]
    often = Counter(known)
    return [
        f"[rank {rank}{f', trace {i + 1}' if often[rank] > 1 else ''}] "
        for i, rank in enumerate(known)
    ]


def _timed(
    processes: Sequence[_Process],
    launches: list[tuple[_Slice, _Slice]],
    arrows: Iterator[int],
    ahead_ns: int,
) -> list[_Event]:
    """Return the events of a rank in order, on the clock of the ranks together."""
    slices = [s for p in processes for row in p.rows.values() for s in row]
    found: list[_Event] = [
        {**s.event, "at_ns": s.start_ns - ahead_ns, "for_ns": s.end_ns - s.start_ns}
        for s in slices
    ]
    for call, op in launches:
        found += _arrow(call, op, next(arrows), ahead_ns)
    # Stable: of one instant slices stay before their arrows, the longest first.
    return sorted(found, key=lambda event: int(str(event["at_ns"])))


def _written(devices: Sequence[Device], base_ns: int, events: list[_Event]) -> bytes:
    head: _Event = {"schemaVersion": 1, "displayTimeUnit": "ns"}
    rank = devices[0].trace.rank
    if len(devices) == 1 and rank is not None:
        head["distributedInfo"] = {"rank": rank}
    text = json.dumps(head)[:-1]
    text += f',"baseTimeNanoseconds":{base_ns},"traceEvents":[\n'
    text += ",\n".join(_line(event, base_ns) for event in events) + "\n]}\n"
    # No time of writing inside: the same steps give the same bytes.
    return gzip.compress(text.encode(), mtime=0)


def _line(event: _Event, base_ns: int) -> str:
    """Return JSON with stamps as microseconds of three digits, exact."""
    rest = {k: v for k, v in event.items() if k not in ("at_ns", "for_ns")}
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    for key, name in (("at_ns", "ts"), ("for_ns", "dur")):
        if key in event:
            value = int(str(event[key])) - (base_ns if key == "at_ns" else 0)
            text = f'{text[:-1]},"{name}":{value // 1000}.{value % 1000:03d}' + "}"
    return text


def _fill(
    device: Device, steps: I64, gpu: _Process, host: _Process
) -> list[tuple[_Slice, _Slice]]:
    """Put the slices of the steps into their rows.

    Returns:
        Calls, each with the first operation that it launched.
    """
    lo, hi = int(device.start[steps[0]]), int(device.end[steps[-1]])
    mark: _Event = {
        "cat": "gpu_user_annotation",
        "name": f"{STEP_MARK}{device.kind}",
    }
    gpu.rows["steps"] = [
        _Slice(int(device.start[i]), int(device.end[i]), {**mark}) for i in steps
    ]
    ops = device.trace.ops
    # The operation that begins at the end closes the last gap.
    inside = np.flatnonzero((ops.start_ns <= hi) & (ops.end_ns > lo))
    for stream in np.unique(ops.stream[inside]).tolist():
        gpu.rows[f"stream {stream}"] = []
    slices = {i: _operation(device.trace, i) for i in inside.tolist()}
    for i, op in slices.items():
        gpu.rows[f"stream {ops.stream[i]}"].append(op)
    owner = call_of_ops(device.trace)[inside]
    used, first = np.unique(owner, return_index=True)
    start_of = {
        call: slices[i]
        for call, i in zip(used.tolist(), inside[first].tolist(), strict=True)
        if call >= 0
    }
    calls = _calls(device.trace, set(start_of), (lo, hi))
    threads = [(int(device.trace.calls.thread[i]), call) for i, call in calls.items()]
    threads += _annotations(device.trace, (lo, hi))
    for thread in sorted({thread for thread, _ in threads}):
        host.rows[f"thread {thread}"] = [s for t, s in threads if t == thread]
    return [(calls[i], op) for i, op in start_of.items()]


def _operation(trace: Trace, i: int) -> _Slice:
    ops = trace.ops
    args: dict[str, int] = {"device": 0, "stream": int(ops.stream[i])}
    if ops.correlation[i] >= 0:
        args["correlation"] = int(ops.correlation[i])
    if ops.graph_node[i] >= 0:
        args["graph node id"] = int(ops.graph_node[i])
    event: _Event = {
        "cat": _CATEGORY.get(int(ops.kind[i]), "gpu_memset"),
        "name": trace.names[ops.name[i]],
        "args": args,
    }
    return _Slice(int(ops.start_ns[i]), int(ops.end_ns[i]), event)


def _calls(
    trace: Trace, launched: set[int], window: tuple[int, int]
) -> dict[int, _Slice]:
    """Return the calls that launched something, and those that waited meanwhile."""
    calls = trace.calls
    waits = np.array(["ynchronize" in name for name in trace.names], dtype=np.bool_)
    during = (calls.start_ns < window[1]) & (calls.end_ns > window[0])
    waiting = np.flatnonzero(during)
    waiting = waiting[waits[calls.name[waiting]]] if len(waiting) else waiting
    found = {}
    for i in sorted(launched | set(waiting.tolist())):
        correlation = int(calls.correlation[i])
        event: _Event = {
            "cat": "cuda_runtime",
            "name": trace.names[calls.name[i]],
            "args": {} if correlation < 0 else {"correlation": correlation},
        }
        found[i] = _Slice(int(calls.start_ns[i]), int(calls.end_ns[i]), event)
    return found


def _annotations(trace: Trace, window: tuple[int, int]) -> list[tuple[int, _Slice]]:
    spans = trace.spans
    near = (spans.start_ns < window[1]) & (spans.end_ns > window[0])
    found = []
    for i in np.flatnonzero(near & spans.is_annotation).tolist():
        event: _Event = {"cat": "user_annotation", "name": trace.names[spans.name[i]]}
        span = _Slice(int(spans.start_ns[i]), int(spans.end_ns[i]), event)
        found.append((int(spans.thread[i]), span))
    return found


def _laid_out(process: _Process, numbers: Iterator[int]) -> Iterator[_Event]:
    """Give every slice its row in the file; yield what names process and rows."""
    if not any(process.rows.values()):
        return
    yield from _named("process", process.pid, None, process.name, process.place)
    for name, slices in process.rows.items():
        slices.sort(key=lambda s: (s.start_ns, -s.end_ns))
        lanes = _lanes(slices, nests=process.nests)
        tids = [next(numbers) for _ in range(max(lanes) + 1)]
        for lane, tid in enumerate(tids):
            aside = ", overlapping" if lane else ""
            count = f" {lane}" if lane > 1 else ""
            row = f"{name}{aside}{count}"
            yield from _named("thread", process.pid, tid, row, tid)
        for part, lane in zip(slices, lanes, strict=True):
            part.event = {
                "ph": "X",
                "pid": process.pid,
                "tid": tids[lane],
                **part.event,
            }


def _lanes(slices: list[_Slice], *, nests: bool) -> list[int]:
    """Return for each slice the first lane in which it crosses no other.

    Args:
        slices: Ascending by start, of one start the longest first.
        nests: Whether one may lie within another.
    """
    lanes: list[list[_Slice]] = []
    found = []
    for part in slices:
        for lane, open_ in enumerate(lanes):
            while (
                open_
                and open_[-1].end_ns <= part.start_ns
                and (nests or open_[-1].start_ns < part.start_ns)
            ):
                open_.pop()
            if not open_ or (nests and part.end_ns <= open_[-1].end_ns):
                open_.append(part)
                found.append(lane)
                break
        else:
            lanes.append([part])
            found.append(len(lanes) - 1)
    return found


def _arrow(call: _Slice, op: _Slice, number: int, ahead_ns: int) -> Iterator[_Event]:
    """Yield the arrow from a call to the first operation that it launched.

    None where the operation is said to begin first: an arrow can not run back.
    """
    if op.start_ns < call.start_ns:
        return
    flow: _Event = {"cat": "ac2g", "name": "ac2g", "id": number}
    for end, rest in ((call, {"ph": "s"}), (op, {"ph": "f", "bp": "e"})):
        where = {key: end.event[key] for key in ("pid", "tid")}
        yield {**rest, **where, **flow, "at_ns": end.start_ns - ahead_ns}


def _named(
    what: str, pid: int | str, tid: int | None, name: str, place: int
) -> Iterator[_Event]:
    of: _Event = {"ph": "M", "pid": pid} if tid is None else {
        "ph": "M", "pid": pid, "tid": tid}  # fmt: skip
    yield {**of, "name": f"{what}_name", "args": {"name": name}}
    yield {**of, "name": f"{what}_sort_index", "args": {"sort_index": place}}
