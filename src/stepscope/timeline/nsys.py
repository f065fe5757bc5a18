"""Nsight Systems SQLite exports (schemas of 2024 to 2026) to columns."""

import itertools
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from stepscope.errors import ArchiveError
from stepscope.timeline.chunks import Chunks
from stepscope.timeline.columns import (
    I64,
    KERNEL,
    MEMCPY,
    MEMSET,
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

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, "kernel"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", MEMCPY, "Memcpy"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, "Memset"),
)
#: Rows that are Python integers at one time; more leave the processor's cache.
_ROWS = 2_000
_Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]


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

    def numbers(self, string_ids: I64) -> Ints:
        each, at = np.unique(string_ids, return_inverse=True)
        known, before = self._open, len(self._closed)
        numbers = [known.setdefault(i, before + len(known)) for i in each.tolist()]
        return np.array(numbers, dtype=np.int32)[at]

    def closed(self, names: _Names, otherwise: str) -> Ints:
        """Return for each number so far that of its name."""
        self._closed += names.of_ids(list(self._open), otherwise)
        self._open = {}
        return np.array(self._closed, dtype=np.int32)


def load_nsys(path: Path) -> list[Trace]:
    """Read an nsys SQLite export.

    Returns:
        One trace for each device with operations, ascending by device id; a single
        empty trace when there are none.

    Raises:
        ArchiveError: It is no nsys export, or damaged.
    """
    where = f"file:{quote(str(path))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(where, uri=True)) as db:
            # Every page is read once; SQLite would keep 2 MB of them.
            db.execute("PRAGMA cache_size = -64")
            return _read(path, db)
    except (sqlite3.DatabaseError, OverflowError, TypeError) as error:
        raise ArchiveError(
            str(path), f"not readable as an nsys export ({error})", "expected SQLite"
        ) from error


def _read(path: Path, db: sqlite3.Connection) -> list[Trace]:
    tables = {
        row[0]
        for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }
    if "StringIds" not in tables:
        raise ArchiveError(str(path), "no StringIds table", "expected an nsys export")
    names = _Names(db)
    ops, n_bad = _ops(db, tables, names)
    calls = _calls(db, tables, names)
    spans = _spans(db, tables, names)
    graph_records = _count(db, tables, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if not graph_records and _graph_mode(db, tables):
        graph_records = int(calls.is_graph.sum())
    boxes = _graph_boxes(db, tables, names)
    return [
        Trace(
            path=str(path),
            rank=device if len(ops) > 1 else None,
            names=names.all(),
            ops=mine,
            calls=calls,
            spans=spans,
            resolution_ns=resolution_ns(mine, fractional=True),
            graph_level_records=graph_records,
            n_zero_stamps=n_bad,
            graph_boxes=boxes,
        )
        for device, mine in ops.items()
    ]


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def _count(db: sqlite3.Connection, tables: set[str], table: str) -> int:
    if table not in tables:
        return 0
    query = f"SELECT count(*) FROM {table}"  # noqa: S608  # a literal of this module
    return int(db.execute(query).fetchone()[0])


def _graph_mode(db: sqlite3.Connection, tables: set[str]) -> bool:
    if "META_DATA_CAPTURE" not in tables:
        return False
    query = (
        "SELECT value FROM META_DATA_CAPTURE"
        " WHERE name LIKE '%CUDA_GRAPH_TRACE_OPTIONS%'"
    )
    return any("Graph" in str(row[0]) for row in db.execute(query))


def _graph_boxes(db: sqlite3.Connection, tables: set[str], names: _Names) -> Boxes:
    """Return graph launches that were recorded as one box each."""
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    if table not in tables:
        return no_boxes()
    rows = Chunks()
    for batch in _batches(db, f"SELECT start, end FROM {table} ORDER BY start", 2):  # noqa: S608  # a literal of this module
        rows.add(start=batch[:, 0], end=batch[:, 1])
    start = rows.taken("start")
    name = np.full(len(start), names.of("graph"), dtype=np.int32)
    return Boxes(start_ns=start, end_ns=rows.taken("end"), name=name)


def _batches(db: sqlite3.Connection, query: str, width: int) -> Iterator[_Rows]:
    """Yield the integers of a query as int64[n, width]."""
    cursor = db.execute(query)
    while batch := cursor.fetchmany(_ROWS):
        flat = itertools.chain.from_iterable(batch)
        column = np.fromiter(flat, dtype=np.int64, count=width * len(batch))
        yield column.reshape(-1, width)


def _or(columns: set[str], name: str, otherwise: str) -> str:
    """Return SQL for a column that older schemas lack and newer ones may leave null."""
    return f"coalesce({name}, {otherwise})" if name in columns else otherwise


def _ops(
    db: sqlite3.Connection, tables: set[str], names: _Names
) -> tuple[dict[int, Ops], int]:
    """Return each device's operations by start, and how many had no stamps."""
    rows, strings = Chunks(), _StringIds()
    name_of = np.empty(0, dtype=np.int32)
    n_bad = 0
    for table, kind, label in _TABLES:
        if table not in tables:
            continue
        has = _columns(db, table)
        text = _or(has, "shortName", _or(has, "demangledName", "-1"))
        wanted = (
            "start, end, coalesce(streamId, 0)",
            _or(has, "correlationId", "-1"),
            _or(has, "graphNodeId", "-1"),
            text,
            _or(has, "globalPid", "0"),
            "coalesce(deviceId, 0)",
        )
        query = f"SELECT {', '.join(wanted)} FROM {table} WHERE end IS NOT NULL"  # noqa: S608  # literals of this module
        for batch in _batches(db, query, 8):
            numbers = strings.numbers(batch[:, 5])
            good = (batch[:, 1] >= batch[:, 0]) & (batch[:, 1] > 0)
            n_bad += int((~good).sum())
            _add_ops(rows, batch[good], numbers[good], kind)
        name_of = strings.closed(names, label)
    order = rows.order("start_ns")
    device = rows.taken("device")[order]
    at = np.arange(len(device), dtype=np.int32)[order]
    # Each device's rows at once, a column at a time: none is held twice.
    picks = {int(d): at[device == d] for d in np.unique(device)} or {0: at}
    columns: dict[int, dict[str, Any]] = {d: {} for d in picks}
    for name in [c.name for c in fields(Ops)]:
        column = rows.taken(name)
        column = name_of[column] if name == "name" else column
        for d, pick in picks.items():
            columns[d][name] = column[pick]
    return {d: Ops(**mine) for d, mine in columns.items()}, n_bad


def _add_ops(rows: Chunks, batch: _Rows, numbers: Ints, kind: int) -> None:
    rows.add(
        start_ns=batch[:, 0],
        end_ns=batch[:, 1],
        stream=batch[:, 2],
        correlation=_correlation(batch[:, 6], batch[:, 3]),
        graph_node=batch[:, 4],
        name=numbers,
        kind=np.full(len(batch), kind, dtype=np.int8),
        device=batch[:, 7],
    )


def _correlation(process: I64, correlation: I64) -> I64:
    """Return ids that are unique over processes, -1 for none.

    Correlation ids count from one in every process, so two ranks in one file share
    them. nsys packs the process into bits 24 to 47 of its global ids.
    """
    unique: I64 = ((process >> 24 & 0xFFFFFF) << 36) | correlation
    return np.where(correlation < 0, -1, unique)


def _calls(db: sqlite3.Connection, tables: set[str], names: _Names) -> Calls:
    rows, strings = Chunks(), _StringIds()
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        query = (
            "SELECT start, end, coalesce(correlationId, -1), coalesce(nameId, -1),"
            " coalesce(globalTid, 0) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            " WHERE end IS NOT NULL"
        )
        for batch in _batches(db, query, 5):
            rows.add(
                start=batch[:, 0],
                end=batch[:, 1],
                correlation=_correlation(batch[:, 4], batch[:, 2]),
                name=strings.numbers(batch[:, 3]),
                thread=_low_24(batch[:, 4]),
                process=_low_24(batch[:, 4] >> 24),
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


def _spans(db: sqlite3.Connection, tables: set[str], names: _Names) -> HostSpans:
    rows, strings = Chunks(), _StringIds()
    if "NVTX_EVENTS" in tables:
        # A range carries its text, or an id of the string table; texts get ids
        # below -1 on their way out of SQLite, so that only integers come out.
        db.create_function("said", 1, lambda text: -2 - names.of(text))
        text = "CASE WHEN text IS NULL THEN coalesce(textId, -1) ELSE said(text) END"
        if "textId" not in _columns(db, "NVTX_EVENTS"):
            text = "CASE WHEN text IS NULL THEN -1 ELSE said(text) END"
        query = (
            f"SELECT start, end, {text}, coalesce(globalTid, 0) FROM NVTX_EVENTS"  # noqa: S608  # a literal above
            " WHERE end IS NOT NULL"
        )
        for batch in _batches(db, query, 4):
            name = batch[:, 2]
            own = name < -1
            name[~own] = strings.numbers(name[~own])
            rows.add(
                start=batch[:, 0],
                end=batch[:, 1],
                name=name.astype(np.int32),
                thread=_low_24(batch[:, 3]),
            )
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
