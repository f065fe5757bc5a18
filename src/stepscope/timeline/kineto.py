"""Torch profiler JSON, plain or gzip, to columns: streamed, exact, bounded."""

import re
from pathlib import Path

import msgspec
import numpy as np

from stepscope.timeline.chunks import Chunks
from stepscope.timeline.columns import (
    I64,
    Bool,
    Boxes,
    Calls,
    HostSpans,
    Ints,
    Ops,
    Trace,
    int_column,
    resolution_ns,
)
from stepscope.timeline.events import Sink
from stepscope.timeline.pieces import BLOCK_BYTES, read_events

#: In order of trust: ``dp1_tp1_rank3`` is rank 3 of its job.
_RANKS_IN_NAME = (
    re.compile(r"rank[_-]?(\d+)", re.IGNORECASE),
    re.compile(r"(?<![a-z])dp(\d+)_", re.IGNORECASE),
)
_RANK_IN_LABEL = re.compile(r"(?:TP|DP|rank)[-_ ]?(\d+)", re.IGNORECASE)


def load_kineto(path: Path, block_bytes: int = BLOCK_BYTES) -> list[Trace]:
    """Read a torch profiler trace.

    Args:
        path: JSON or gzip of JSON; object form with ``traceEvents`` or bare list.
        block_bytes: How much text is decoded at a time.

    Returns:
        One trace for each device of each process that a merged file names; a single
        trace without operations if there are none.

    Raises:
        ArchiveError: It is no trace, or damaged.
    """
    sink = Sink()
    outside = read_events(path, sink.take, block_bytes)
    return _traces(path, sink, outside)


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
    for pattern in _RANKS_IN_NAME:
        match = pattern.search(path.name)
        if match:
            return int(match[1]), None
    return None, None


def _traces(path: Path, sink: Sink, text: bytes) -> list[Trace]:
    base = re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d+)', text)
    base_ns = int(base[1]) if base else 0
    rank, world_size = _rank(path, text)
    names = tuple(sink.names)
    labels = list(sink.labels)
    ops, whole = _ops(sink.ops, base_ns)
    calls, calls_owner = _calls(sink.calls, base_ns, names)
    spans, spans_owner = _spans(sink.spans, base_ns)
    boxes, boxes_owner = _boxes(sink.marks, base_ns)
    keys = np.unique(whole)
    alone = len(np.unique(keys >> 32)) < 2
    step_ns = resolution_ns(ops, fractional=sink.fractional)
    found = []
    for key in keys if len(keys) else [0]:
        label = int(key) >> 32
        mine: Bool | slice = whole == key if len(keys) > 1 else slice(None)
        number = rank if len(keys) < 2 else int(key) & 0xFFFFFFFF
        found.append(
            Trace(
                path=str(path),
                rank=number if alone else _labelled(labels[label], number),
                names=names,
                ops=ops.take(mine),
                calls=calls if alone else calls.take(calls_owner == label),
                spans=spans if alone else spans.take(spans_owner == label),
                resolution_ns=step_ns,
                n_zero_stamps=sink.n_bad,
                world_size=world_size,
                marked_steps=boxes if alone else boxes.take(boxes_owner == label),
            )
        )
    return found


def _labelled(label: int | str, otherwise: int | None) -> int | None:
    """Return the rank that a merged file's process label gives: 3 of ``[TP03]``."""
    found = _RANK_IN_LABEL.search(str(label))
    return int(found[1]) if found else otherwise


def _ops(rows: Chunks, base_ns: int) -> tuple[Ops, I64]:
    """Return operations by start, with the process and device of each in one number.

    Where all are of one device that number stands alone, not once an operation.
    """
    order = rows.order("start")
    ops = Ops(
        start_ns=rows.instants("start", order, base_ns),
        end_ns=rows.instants("end", order, base_ns),
        stream=rows.taken("stream")[order],
        correlation=rows.taken("correlation")[order],
        graph_node=rows.taken("node")[order],
        name=rows.taken("name")[order],
        kind=rows.taken("kind")[order],
    )
    label, device = rows.spread("label", order), rows.spread("device", order)
    if label.strides == device.strides == (0,) and len(ops):
        label, device = label[:1], device[:1]
    return ops, (label.astype(np.int64) << 32) | device


def _calls(rows: Chunks, base_ns: int, names: tuple[str, ...]) -> tuple[Calls, Ints]:
    order = rows.order("start")
    name = rows.taken("name")[order]
    graph = int_column([i for i, n in enumerate(names) if "GraphLaunch" in n])
    calls = Calls(
        start_ns=rows.instants("start", order, base_ns),
        end_ns=rows.instants("end", order, base_ns),
        correlation=rows.taken("correlation")[order],
        name=name,
        thread=rows.taken("thread")[order],
        is_graph=np.isin(name, graph),
        process=rows.taken("process")[order],
    )
    return calls, rows.spread("label", order)


def _spans(rows: Chunks, base_ns: int) -> tuple[HostSpans, Ints]:
    order = rows.order("start")
    spans = HostSpans(
        start_ns=rows.instants("start", order, base_ns),
        end_ns=rows.instants("end", order, base_ns),
        name=rows.taken("name")[order],
        thread=rows.taken("thread")[order],
        is_annotation=rows.taken("note")[order] == 1,
    )
    return spans, rows.spread("label", order)


def _boxes(rows: Chunks, base_ns: int) -> tuple[Boxes, Ints]:
    order = rows.order("start")
    boxes = Boxes(
        start_ns=rows.instants("start", order, base_ns),
        end_ns=rows.instants("end", order, base_ns),
        name=rows.taken("name")[order],
    )
    return boxes, rows.spread("label", order)
