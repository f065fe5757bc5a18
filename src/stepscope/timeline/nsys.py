"""Nsight Systems SQLite exports (schemas of 2024 to 2026) to columns."""

import re
import sqlite3
from contextlib import closing
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from stepscope.errors import ArchiveError
from stepscope.timeline.chunks import Chunks, Order
from stepscope.timeline.columns import (
    I64,
    KERNEL,
    MEMCPY,
    MEMSET,
    Bool,
    Boxes,
    Calls,
    HostSpans,
    Ints,
    Ops,
    Trace,
    int_column,
    no_boxes,
    resolution_ns,
)
from stepscope.timeline.exported import Batch, Export, taken
from stepscope.timeline.places import Places
from stepscope.timeline.sqlitepages import Pages
from stepscope.timeline.sqliterows import DamagedError

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, "kernel"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", MEMCPY, "Memcpy"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, "Memset"),
)
_BOXES = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
#: String ids below this are looked up in a table; nsys counts them from 1.
_DENSE = 1 << 20


class _Names:
    """Interned names; of nsys' own string table only those that are asked for."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))

    def of_ids(self, string_ids: list[int], otherwise: str) -> list[int]:
        """Return the numbers of string ids, ``otherwise`` where there is no string."""
        wanted = set(string_ids)
        rows = self._db.execute("SELECT id, value FROM StringIds")
        texts = {key: text for key, text in rows if key in wanted}
        number = {i: self.of(texts.get(i, otherwise)) for i in sorted(wanted)}
        return [number[i] for i in string_ids]

    def all(self) -> tuple[str, ...]:
        return tuple(self._ids)


class _StringIds:
    """String ids numbered as they come, so that a column of them is narrow.

    Tables that share a column follow each other; ``closed`` ends one.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._closed: list[int] = []
        self._of_id = np.full(1 << 10, -1, dtype=np.int32)

    def numbers(self, string_ids: I64) -> Ints:
        if (
            not len(string_ids)
            or not 0 <= string_ids.min() <= string_ids.max() < _DENSE
        ):
            each, at = np.unique(string_ids, return_inverse=True)
            return np.array(self._numbered(each), dtype=np.int32)[at]
        while string_ids.max() >= len(self._of_id):
            more = np.full_like(self._of_id, -1)
            self._of_id = np.concatenate([self._of_id, more])
        found = self._of_id[string_ids]
        new = np.unique(string_ids[found < 0])
        if len(new):
            self._of_id[new] = self._numbered(new)
            found = self._of_id[string_ids]
        return found

    def _numbered(self, each: I64) -> list[int]:
        known, before = self._open, len(self._closed)
        return [known.setdefault(i, before + len(known)) for i in each.tolist()]

    def closed(self, names: _Names, otherwise: str) -> Ints:
        """Return for each number so far that of its name."""
        self._closed += names.of_ids(list(self._open), otherwise)
        self._open = {}
        self._of_id[:] = -1
        return np.array(self._closed, dtype=np.int32)


class _Said(dict[bytes, int]):
    """Numbers of the names that rows hold as text."""

    def __init__(self, names: _Names) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, text: bytes) -> int:
        self[text] = number = self._names.of(text.decode(errors="replace"))
        return number


def load_nsys(path: Path) -> list[Trace]:
    """Read an nsys SQLite export.

    Returns:
        One trace for each rank (:func:`stepscope.parse.nsysranks.nsys_ranks`), by its
        number; a single empty trace when there is no operation.

    Raises:
        ArchiveError: It is no nsys export, or damaged.
    """
    where = f"file:{quote(str(path))}?mode=ro&immutable=1"
    try:
        with (
            closing(sqlite3.connect(where, uri=True)) as db,
            path.open("rb", buffering=0) as file,
        ):
            # Every page is read once; SQLite would keep 2 MB of them.
            db.execute("PRAGMA cache_size = -64")
            # A text may be cut within a letter; names are shown as well as they can be.
            db.text_factory = partial(str, encoding="utf-8", errors="replace")
            query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            rows = db.execute(query)
            tables = frozenset(row[0] for row in rows)
            return _read(path, Export(db, Pages(file), tables))
    except (
        sqlite3.DatabaseError, DamagedError, OverflowError, TypeError, ValueError,
        IndexError,
    ) as error:  # fmt: skip
        text = " ".join(str(error).split())
        raise ArchiveError(
            str(path), f"not readable as an nsys export ({text})", "expected SQLite"
        ) from error


def _read(path: Path, export: Export) -> list[Trace]:
    if "StringIds" not in export.tables:
        raise ArchiveError(str(path), "no StringIds table", "expected an nsys export")
    names, places = _Names(export.db), Places()
    rows, order, name_of, n_bad = _op_rows(export, names, places)
    boxes, box_place = _graph_boxes(export, names, places)
    ranks = places.ranks(export)
    rank_of = places.rank_of(ranks)
    which = rank_of[rows.taken("place")[order]]
    ops = _ops(rows, order, name_of, [which == i for i in range(len(ranks) or 1)])
    calls = _calls(export, names)
    spans = _spans(export, names)
    graphs_only = int(calls.is_graph.sum()) if _graph_mode(export) else 0
    traces = []
    for i, mine in enumerate(ops):
        # A box that names no rank's device may be any rank's.
        own = boxes.take((rank_of[box_place] == i) | (rank_of[box_place] < 0))
        trace = Trace(
            path=str(path),
            rank=ranks[i].number if len(ranks) > 1 else None,
            names=names.all(),
            ops=mine,
            calls=calls,
            spans=spans,
            resolution_ns=resolution_ns(mine, fractional=True),
            graph_level_records=len(own) or (0 if len(boxes) else graphs_only),
            n_zero_stamps=n_bad,
            graph_boxes=own,
            sharing=ranks[i].sharing if ranks else None,
        )
        traces.append(trace)
    return traces


def _graph_mode(export: Export) -> bool:
    if "META_DATA_CAPTURE" not in export.tables:
        return False
    query = (
        "SELECT value FROM META_DATA_CAPTURE"
        " WHERE name LIKE '%CUDA_GRAPH_TRACE_OPTIONS%'"
    )
    return any("Graph" in str(row[0]) for row in export.db.execute(query))


def _graph_boxes(export: Export, names: _Names, places: Places) -> tuple[Boxes, Ints]:
    """Return graph launches that were recorded as one box each, and where."""
    rows = Chunks()
    wanted = {"globalPid": 0, "deviceId": -1}
    for batch in export.batches(_BOXES, wanted):
        place = places.of(batch["globalPid"], batch["deviceId"])
        rows.add(start=batch["start"], end=batch["end"], place=place)
    order = rows.order("start")
    start = rows.instants("start", order)
    if not len(start):
        return no_boxes(), np.empty(0, dtype=np.int32)
    name = np.full(len(start), names.of("graph"), dtype=np.int32)
    boxes = Boxes(start_ns=start, end_ns=rows.instants("end", order), name=name)
    return boxes, rows.taken("place")[order]


def _op_rows(
    export: Export, names: _Names, places: Places
) -> tuple[Chunks, Order, Ints, int]:
    """Return all operations, their order, the name of each of their numbers of a name.

    The last is how many had no stamps.
    """
    rows, strings = Chunks(), _StringIds()
    name_of = np.empty(0, dtype=np.int32)
    n_bad = 0
    for table, kind, label in _TABLES:
        if table not in export.tables:
            continue
        has = export.columns(table)
        text = next((c for c in ("shortName", "demangledName") if c in has), "")
        wanted = {"streamId": 0, "correlationId": -1, "graphNodeId": -1, text: -1,
                  "globalPid": 0, "deviceId": 0}  # fmt: skip
        for every in export.batches(table, wanted):
            good = (every["end"] >= every["start"]) & (every["end"] > 0)
            n_bad += int((~good).sum())
            batch = taken(every, good)
            place = places.of(batch["globalPid"], batch["deviceId"])
            _add_ops(rows, batch, (strings.numbers(batch[text]), place), kind)
        name_of = strings.closed(names, label)
    return rows, rows.order("start_ns"), name_of, n_bad


def _ops(rows: Chunks, order: Order, name_of: Ints, chosen: list[Bool]) -> list[Ops]:
    """Return the chosen operations by start: all at once, a column at a time.

    So none is held twice.
    """
    at = np.arange(len(chosen[0]), dtype=np.int32)[order]
    picks = [at[mine] for mine in chosen]
    columns: list[dict[str, Any]] = [{} for _ in picks]
    for name in [c.name for c in fields(Ops)]:
        column = rows.taken(name)
        column = name_of[column] if name == "name" else column
        for mine, pick in zip(columns, picks, strict=True):
            mine[name] = column[pick]
    return [Ops(**mine) for mine in columns]


def _add_ops(rows: Chunks, batch: Batch, numbers: tuple[Ints, Ints], kind: int) -> None:
    """Add operations; ``numbers`` are those of their names and of their places."""
    rows.add(
        start_ns=batch["start"],
        end_ns=batch["end"],
        stream=batch["streamId"].astype(np.int32),
        correlation=_correlation(batch["globalPid"], batch["correlationId"]),
        graph_node=batch["graphNodeId"],
        name=numbers[0],
        kind=np.full(len(numbers[0]), kind, dtype=np.int8),
        place=numbers[1],
    )


def _correlation(process: I64, correlation: I64) -> I64:
    """Return ids that are unique over processes, -1 for none.

    Correlation ids count from one in every process, so two ranks in one file share
    them. nsys packs the process into bits 24 to 47 of its global ids.
    """
    unique: I64 = ((process >> 24 & 0xFFFFFF) << 36) | correlation
    return np.where(correlation < 0, -1, unique)


def _calls(export: Export, names: _Names) -> Calls:
    rows, strings = Chunks(), _StringIds()
    wanted = {"correlationId": -1, "nameId": -1, "globalTid": 0}
    for batch in export.batches("CUPTI_ACTIVITY_KIND_RUNTIME", wanted):
        thread = batch["globalTid"]
        rows.add(
            start=batch["start"],
            end=batch["end"],
            correlation=_correlation(thread, batch["correlationId"]),
            name=strings.numbers(batch["nameId"]),
            thread=_low_24(thread),
            process=_low_24(thread >> 24),
        )
    order = rows.order("start")
    name = strings.closed(names, "?")[rows.taken("name")[order]]
    # "cudaGraphLaunch_v10000": nsys adds the API version.
    graph = [i for i, n in enumerate(names.all()) if re.match(r"cu\w*GraphLaunch", n)]
    return Calls(
        start_ns=rows.instants("start", order),
        end_ns=rows.instants("end", order),
        correlation=rows.taken("correlation")[order],
        name=name,
        thread=rows.taken("thread")[order],
        is_graph=np.isin(name, int_column(graph)),
        process=rows.taken("process")[order],
    )


def _low_24(ids: I64) -> Ints:
    return (ids & 0xFFFFFF).astype(np.int32)


def _spans(export: Export, names: _Names) -> HostSpans:
    """Return NVTX ranges; one carries its text, or an id of the string table."""
    rows, strings, said = Chunks(), _StringIds(), _Said(names)
    wanted = {"textId": -1, "globalTid": 0}
    for batch in export.batches("NVTX_EVENTS", wanted, said):
        # Texts of their own are numbered from -2 down, to be told from string ids.
        name = (-2 - batch["text"]).astype(np.int32)
        other = batch["text"] < 0
        if other.any():
            name[other] = strings.numbers(batch["textId"][other])
        rows.add(
            start=batch["start"],
            end=batch["end"],
            name=name,
            thread=_low_24(batch["globalTid"]),
        )
    said.clear()
    name = rows.taken("name")
    own = name < 0
    name[~own] = strings.closed(names, "?")[name[~own]]
    name[own] = -2 - name[own]
    del own
    order = rows.order("start")
    return HostSpans(
        start_ns=rows.instants("start", order),
        end_ns=rows.instants("end", order),
        name=name[order],
        thread=rows.taken("thread")[order],
        is_annotation=np.ones(len(name), dtype=np.bool_),
    )
