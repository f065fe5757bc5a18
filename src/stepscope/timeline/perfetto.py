"""A few steps of a trace as a small trace-event file that Perfetto opens.

It holds the device operations of the steps, the calls that launched them, calls that
waited, and the annotations around; and it marks where each step begins and ends, so
that reading it back gives the same budget.
"""

import gzip
import json
from collections.abc import Iterator, Sequence

import numpy as np

from stepscope.timeline.choose import same_steps
from stepscope.timeline.columns import I64, KERNEL, MEMCPY, STEP_MARK, Trace
from stepscope.timeline.device import Device, read_device
from stepscope.timeline.ranks import match_ranks
from stepscope.timeline.steps import call_of_ops

_CATEGORY = {KERNEL: "kernel", MEMCPY: "gpu_memcpy"}
_Event = dict[str, object]


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
    parts = [
        list(_events(device, chosen, index if len(devices) > 1 else None))
        for index, (device, chosen) in enumerate(zip(devices, steps, strict=True))
    ]
    rows = [(e, by) for part, by in zip(parts, offsets.tolist(), strict=True)
            for e in part]  # fmt: skip
    base_ns = min(int(str(e["at_ns"])) - by for e, by in rows if "at_ns" in e)
    lines = [_line(event, base_ns + by) for event, by in rows]
    ranks = [device.trace.rank for device in devices]
    head: _Event = {"schemaVersion": 1, "displayTimeUnit": "ns"}
    if len(devices) == 1 and ranks[0] is not None:
        head["distributedInfo"] = {"rank": ranks[0]}
    text = json.dumps(head)[:-1]
    text += f',"baseTimeNanoseconds":{base_ns},"traceEvents":[\n'
    text += ",\n".join(lines) + "\n]}\n"
    # No time of writing inside: the same steps give the same bytes.
    return gzip.compress(text.encode(), mtime=0)


def perfetto_of(traces: list[Trace], n_steps: int) -> bytes:
    """Return the same of traces of one capture, their clocks aligned where they differ.

    Raises:
        RefusedError: A trace has no whole step.
    """
    devices = [read_device(trace) for trace in traces]
    found = match_ranks([d.trace for d in devices], [d.steps for d in devices])
    return perfetto(devices, n_steps, found.offsets_ns)


def _line(event: _Event, base_ns: int) -> str:
    """Return JSON with stamps as microseconds of three digits, exact."""
    rest = {k: v for k, v in event.items() if k not in ("at_ns", "for_ns")}
    text = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    for key, name in (("at_ns", "ts"), ("for_ns", "dur")):
        if key in event:
            value = int(str(event[key])) - (base_ns if key == "at_ns" else 0)
            text = f'{text[:-1]},"{name}":{value // 1000}.{value % 1000:03d}' + "}"
    return text


def _events(device: Device, steps: I64, index: int | None) -> Iterator[_Event]:
    trace = device.trace
    lo, hi = int(device.start[steps[0]]), int(device.end[steps[-1]])
    rank = index if trace.rank is None else trace.rank
    gpu: int | str = 0 if index is None else f"[rank {rank}] 0"
    host: int | str = 1 if index is None else f"[rank {rank}] 1"
    yield _named(gpu, f"GPU, rank {rank}" if rank is not None else "GPU")
    yield _named(host, f"host, rank {rank}" if rank is not None else "host")
    for i in steps.tolist():
        yield {
            **_span(gpu, "steps", int(device.start[i]), int(device.end[i])),
            "cat": "gpu_user_annotation",
            "name": f"{STEP_MARK}{device.kind}",
        }
    ops = trace.ops
    # The operation that begins at the end closes the last gap.
    inside = np.flatnonzero((ops.start_ns <= hi) & (ops.end_ns > lo))
    for i in inside.tolist():
        stream = int(ops.stream[i])
        args: dict[str, int] = {"device": 0, "stream": stream}
        if ops.correlation[i] >= 0:
            args["correlation"] = int(ops.correlation[i])
        if ops.graph_node[i] >= 0:
            args["graph node id"] = int(ops.graph_node[i])
        yield {
            **_span(gpu, stream, int(ops.start_ns[i]), int(ops.end_ns[i])),
            "cat": _CATEGORY.get(int(ops.kind[i]), "gpu_memset"),
            "name": trace.names[ops.name[i]],
            "args": args,
        }
    for stream in np.unique(ops.stream[inside]).tolist():
        yield _named(gpu, f"stream {stream}", stream)
    yield from _host(device, inside, (lo, hi), (gpu, host))


def _host(
    device: Device, inside: I64, window: tuple[int, int], pids: tuple[int | str, ...]
) -> Iterator[_Event]:
    trace, calls, spans = device.trace, device.trace.calls, device.trace.spans
    gpu, host = pids
    owner = call_of_ops(trace)[inside]
    used, first = np.unique(owner, return_index=True)
    start_of = dict(zip(used.tolist(), inside[first].tolist(), strict=True))
    waits = np.array(["ynchronize" in name for name in trace.names], dtype=np.bool_)
    during = (calls.start_ns < window[1]) & (calls.end_ns > window[0])
    wanted = (
        set(np.flatnonzero(during & waits[calls.name]).tolist())
        if len(calls)
        else set()
    )
    wanted |= {i for i in start_of if i >= 0}
    for i in sorted(wanted):
        event = _span(
            host, int(calls.thread[i]), int(calls.start_ns[i]), int(calls.end_ns[i])
        )
        correlation = int(calls.correlation[i])
        args = {} if correlation < 0 else {"correlation": correlation}
        name = trace.names[calls.name[i]]
        yield {**event, "cat": "cuda_runtime", "name": name, "args": args}
        if i in start_of:
            yield from _arrow(trace.ops.stream, start_of[i], event, device, gpu)
    near = (spans.start_ns < window[1]) & (spans.end_ns > window[0])
    for i in np.flatnonzero(near & spans.is_annotation).tolist():
        yield {
            **_span(
                host, int(spans.thread[i]), int(spans.start_ns[i]), int(spans.end_ns[i])
            ),
            "cat": "user_annotation",
            "name": trace.names[spans.name[i]],
        }


def _arrow(
    streams: I64, op: int, call: _Event, device: Device, gpu: int | str
) -> Iterator[_Event]:
    """Yield the arrow from a call to the first operation that it launched."""
    flow = {"cat": "ac2g", "name": "ac2g", "id": op}
    yield {
        **flow,
        "ph": "s",
        "pid": call["pid"],
        "tid": call["tid"],
        "at_ns": call["at_ns"],
    }
    yield {
        **flow,
        "ph": "f",
        "bp": "e",
        "pid": gpu,
        "tid": int(streams[op]),
        "at_ns": int(device.trace.ops.start_ns[op]),
    }


def _span(pid: int | str, tid: int | str, start: int, end: int) -> _Event:
    return {"ph": "X", "pid": pid, "tid": tid, "at_ns": start, "for_ns": end - start}


def _named(pid: int | str, name: str, tid: int | None = None) -> _Event:
    if tid is None:
        return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    args = {"name": name}
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}
