"""Torch profiler JSON, plain or gzip, to columns: streamed, exact, bounded.

The file is read in blocks and cut between events; each block is decoded by msgspec
into typed records, so neither the text nor the objects of the whole file are ever in
memory. Layout never matters: a block that does not parse is joined with the next.
Time stamps are taken from their digits, because a float64 of microseconds since an
epoch is only good to a quarter of a microsecond.
"""

import gzip
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import msgspec
import numpy as np

from stepscope.errors import ArchiveError
from stepscope.timeline.columns import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Calls,
    HostSpans,
    Ops,
    Trace,
    int_column,
)

_BLOCK = 4 << 20
_MOST_JOINED = 64 << 20
_CUT = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|ts|args|id|s|tid|dur)"\s*:')
_END = re.compile(rb"\}\s*\]\s*(?:,\s*\"|\}|$)")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_WANTED = re.compile(
    rb'"(?:kernel|Kernel|gpu_mem|Memcpy|Memset|gpu"|cuda_|hip_|Runtime'
    rb"|user_annotation|cpu_op)"
)
_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "Runtime"})
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d+)|dp(\d+)_", re.IGNORECASE)


class _Args(msgspec.Struct, gc=False):
    stream: int | str | None = None
    correlation: int | str | None = None
    device: int | str | None = None
    node: int | str | None = msgspec.field(default=None, name="graph node id")


class _Event(msgspec.Struct, gc=False):
    ph: str = "X"
    cat: str = ""
    name: str = ""
    ts: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    dur: float | None = None
    pid: int | str = 0
    tid: int | str = 0
    args: _Args | None = None


@dataclass(slots=True)
class _Sink:
    """Columns as they grow."""

    names: dict[str, int] = field(default_factory=dict)
    threads: dict[int | str, int] = field(default_factory=dict)
    # Rows laid end to end: 8 bytes a value, where tuples of ints take 400 a row.
    ops: "array[int]" = field(default_factory=lambda: array("q"))
    calls: "array[int]" = field(default_factory=lambda: array("q"))
    spans: "array[int]" = field(default_factory=lambda: array("q"))
    fractional: bool = False
    zero: int = 0

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def thread(self, text: int | str) -> int:
        return self.threads.setdefault(text, len(self.threads))


def load_kineto(path: Path) -> list[Trace]:
    """Read a torch profiler trace.

    Args:
        path: JSON or gzip of JSON; object form with ``traceEvents`` or bare list.

    Returns:
        One trace for each device that has operations, ascending by device; a single
        trace without operations if there are none.

    Raises:
        ArchiveError: It is no trace, or damaged.
    """
    sink = _Sink()
    decoder = msgspec.json.Decoder(list[_Event])
    head = b""
    tail = b""
    with _opened(path) as stream:
        for piece, meta in _pieces(path, stream):
            if meta is not None:
                head, tail = (meta, tail) if not head else (head, meta)
            if piece and _WANTED.search(piece):
                _take(sink, _decoded(decoder, piece, path))
    return _traces(path, sink, head + tail)


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as probe:
        magic = probe.read(2)
    if magic == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def _pieces(
    path: Path, stream: IO[bytes]
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield (JSON list of events, None) and (None, text outside the event list)."""
    try:
        held = stream.read(_BLOCK)
        while (found := _EVENTS.search(held)) is None:
            if held.lstrip()[:1] == b"[":
                break
            more = stream.read(_BLOCK)
            if not more or len(held) > _MOST_JOINED:
                raise ArchiveError(
                    str(path), "no traceEvents in it", "expected a torch profiler trace"
                )
            held += more
        at = found.end() if found else held.index(b"[") + 1
        yield None, held[:at]
        held = held[at:]
        while more := stream.read(_BLOCK):
            held += more
            cut = _last_cut(held)
            if cut:
                yield b"[" + held[:cut] + b"]", None
                held = held[cut:].lstrip()[1:]
    except (EOFError, OSError, gzip.BadGzipFile) as error:
        raise ArchiveError(
            str(path), f"can not be read to its end ({error})", "expected a whole trace"
        ) from error
    yield from _final(path, held)


def _last_cut(held: bytes) -> int:
    """Return the index just after the last event that surely ended, or 0."""
    for width in (1 << 16, len(held)):
        window = max(0, len(held) - width)
        cuts = [found.start() for found in _CUT.finditer(held, window)]
        if cuts:
            return cuts[-1] + 1
    return 0


def _final(path: Path, held: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    if not held.strip(b"] \n\r\t}"):
        yield None, held
        return
    for end in _END.finditer(held):
        close = held.index(b"]", end.start())
        piece = b"[" + held[:close] + b"]"
        try:
            msgspec.json.decode(piece, type=list[msgspec.Raw])
        except msgspec.DecodeError:
            continue
        yield piece, None
        yield None, held[close:]
        return
    raise ArchiveError(
        str(path), "the event list is cut short", "expected a closing bracket"
    )


def _decoded(
    decoder: "msgspec.json.Decoder[list[_Event]]", piece: bytes, path: Path
) -> list[_Event]:
    try:
        return decoder.decode(piece)
    except msgspec.ValidationError:
        return _one_by_one(piece)
    except msgspec.DecodeError as error:
        raise ArchiveError(
            str(path), f"damaged JSON ({error})", "expected a whole trace"
        ) from error


def _one_by_one(piece: bytes) -> list[_Event]:
    """Decode a block that holds an event of an odd shape: such events are dropped."""
    events = []
    for raw in msgspec.json.decode(piece, type=list[msgspec.Raw]):
        try:
            events.append(msgspec.json.decode(raw, type=_Event))
        except msgspec.ValidationError:
            continue
    return events


def _ns(raw: msgspec.Raw, sink: _Sink) -> int | None:
    """Return microseconds written as digits in whole nanoseconds, exactly."""
    text = bytes(raw).strip(b'"')
    whole, dot, part = text.partition(b".")
    try:
        if not dot:
            return int(whole) * 1000
        if b"e" in part or b"E" in part:
            return round(float(text) * 1000)
        if part.strip(b"0"):
            sink.fractional = True
        sign = -1 if whole.startswith(b"-") else 1
        return int(whole) * 1000 + sign * int((part + b"000")[:3])
    except ValueError:
        return None


def _integer(value: int | str | None, absent: int = -1) -> int:
    return value if isinstance(value, int) else absent


def _take(sink: _Sink, events: list[_Event]) -> None:
    none = _Args()
    for event in events:
        if event.ph != "X":
            continue
        cat = event.cat
        kind = _KINDS.get(cat)
        is_call = cat in _CALLS
        if kind is None and not is_call and cat not in ("user_annotation", "cpu_op"):
            continue
        start = _ns(event.ts, sink)
        if start is None or (event.dur is None and kind is not None):
            continue
        span = round((event.dur or 0.0) * 1000)
        if span % 1000:
            sink.fractional = True
        end = start + max(span, 0)
        args = event.args or none
        name = sink.name(event.name)
        if kind is not None:
            if start == 0 and end == 0:
                sink.zero += 1
                continue
            device = _integer(args.device, _integer(event.pid, 0))
            sink.ops.extend(
                (
                    *(start, end, _integer(args.stream, 0)),
                    *(_integer(args.correlation), _integer(args.node)),
                    *(name, kind, device),
                )
            )
        elif is_call:
            correlation = _integer(args.correlation)
            sink.calls.extend((start, end, correlation, name, sink.thread(event.tid)))
        else:
            note = int(cat == "user_annotation")
            sink.spans.extend((start, end, name, sink.thread(event.tid), note))


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None


def _meta(text: bytes, key: bytes) -> bytes | None:
    """Return the JSON object after ``"key":`` in the text outside the events."""
    found = re.search(rb'"' + key + rb'"\s*:\s*', text)
    if not found:
        return None
    for end in re.finditer(rb"\}", text[found.end() :]):
        piece = text[found.end() : found.end() + end.end()]
        try:
            msgspec.json.decode(piece)
        except msgspec.DecodeError:
            continue
        return piece
    return None


def _rank(path: Path, text: bytes) -> tuple[int | None, int | None]:
    piece = _meta(text, b"distributedInfo")
    if piece is not None:
        try:
            found = msgspec.json.decode(piece, type=_Distributed)
        except msgspec.ValidationError:
            found = _Distributed()
        if found.rank is not None:
            return found.rank, found.world_size
    match = _RANK_IN_NAME.search(path.name)
    if match:
        return int(match[1] or match[2]), None
    return None, None


def _traces(path: Path, sink: _Sink, text: bytes) -> list[Trace]:
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d+)', text)
    base_ns = int(base[1]) if base else 0
    rank, world_size = _rank(path, text)
    names = tuple(sink.names)
    table = np.frombuffer(sink.ops, dtype=np.int64).reshape(-1, 8)
    table = table[np.argsort(table[:, 0], kind="stable")]
    calls = _calls(sink, base_ns, names)
    spans = _spans(sink, base_ns)
    devices = np.unique(table[:, 7])
    return [
        Trace(
            path=str(path),
            rank=rank if len(devices) < 2 else int(device),
            names=names,
            ops=_ops(table[table[:, 7] == device], base_ns),
            calls=calls,
            spans=spans,
            resolution_ns=1 if sink.fractional else 1000,
            n_zero_stamps=sink.zero,
            world_size=world_size,
        )
        for device in (devices if len(devices) else [0])
    ]


def _ops(rows: "np.ndarray[tuple[int, int], np.dtype[np.int64]]", base_ns: int) -> Ops:
    return Ops(
        start_ns=rows[:, 0] + base_ns,
        end_ns=rows[:, 1] + base_ns,
        stream=rows[:, 2],
        correlation=rows[:, 3],
        graph_node=rows[:, 4],
        name=rows[:, 5],
        kind=rows[:, 6],
    )


def _calls(sink: _Sink, base_ns: int, names: tuple[str, ...]) -> Calls:
    table = np.frombuffer(sink.calls, dtype=np.int64).reshape(-1, 5)
    table = table[np.argsort(table[:, 0], kind="stable")]
    graph = int_column([i for i, n in enumerate(names) if "GraphLaunch" in n])
    return Calls(
        start_ns=table[:, 0] + base_ns,
        end_ns=table[:, 1] + base_ns,
        correlation=table[:, 2],
        name=table[:, 3],
        thread=table[:, 4],
        is_graph=np.isin(table[:, 3], graph),
    )


def _spans(sink: _Sink, base_ns: int) -> HostSpans:
    table = np.frombuffer(sink.spans, dtype=np.int64).reshape(-1, 5)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return HostSpans(
        start_ns=table[:, 0] + base_ns,
        end_ns=table[:, 1] + base_ns,
        name=table[:, 2],
        thread=table[:, 3],
        is_annotation=table[:, 4] == 1,
    )
