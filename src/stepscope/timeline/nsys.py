"""Nsight Systems SQLite exports (schemas of 2024 to 2026) to columns."""

import itertools
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np

from stepscope.errors import ArchiveError
from stepscope.timeline.columns import (
    I64,
    KERNEL,
    MEMCPY,
    MEMSET,
    Boxes,
    Calls,
    HostSpans,
    Ops,
    Trace,
    int_column,
    no_boxes,
)

_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, "kernel"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", MEMCPY, "Memcpy"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", MEMSET, "Memset"),
)
_ROWS = 20_000
_Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]


class _Names:
    """Interned names. nsys keeps its own string table, which ids are looked up in."""

    def __init__(self, strings: dict[int, str]) -> None:
        self._strings = strings
        self._ids: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))

    def of_ids(self, string_ids: I64, otherwise: str) -> I64:
        """Return the numbers of many strings, each looked up once; -1: no string."""
        known, at = np.unique(string_ids, return_inverse=True)
        texts = [self._strings.get(i, otherwise) for i in known.tolist()]
        return int_column([self.of(text) for text in texts])[at]

    def all(self) -> tuple[str, ...]:
        return tuple(self._ids)


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
    names = _Names(dict(db.execute("SELECT id, value FROM StringIds")))
    rows = _device_rows(db, tables, names)
    calls = _calls(db, tables, names)
    spans = _spans(db, tables, names)
    graph_records = _count(db, tables, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if not graph_records and _graph_mode(db, tables):
        graph_records = int(calls.is_graph.sum())
    boxes = _graph_boxes(db, tables, names)
    good = (rows[:, 1] >= rows[:, 0]) & (rows[:, 1] > 0)
    n_bad = int((~good).sum())
    rows = rows if n_bad == 0 else rows[good]
    devices = np.unique(rows[:, 7])
    return [
        Trace(
            path=str(path),
            rank=int(device) if len(devices) > 1 else None,
            names=names.all(),
            ops=_ops(rows[rows[:, 7] == device]),
            calls=calls,
            spans=spans,
            resolution_ns=1,
            graph_level_records=graph_records,
            n_zero_stamps=n_bad,
            graph_boxes=boxes,
        )
        for device in (devices if len(devices) else [0])
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
    rows = _whole(db, f"SELECT start, end FROM {table} ORDER BY start", 2)  # noqa: S608  # a literal of this module
    name = np.full(len(rows), names.of("graph"), dtype=np.int64)
    return Boxes(start_ns=rows[:, 0], end_ns=rows[:, 1], name=name)


def _whole(db: sqlite3.Connection, query: str, width: int) -> _Rows:
    """Return the integers of a query as int64[n, width], a batch at a time."""
    cursor = db.execute(query)
    parts = []
    while batch := cursor.fetchmany(_ROWS):
        flat = itertools.chain.from_iterable(batch)
        parts.append(np.fromiter(flat, dtype=np.int64, count=width * len(batch)))
    if not parts:
        return np.empty((0, width), dtype=np.int64)
    return np.concatenate(parts).reshape(-1, width)


def _or(columns: set[str], name: str, otherwise: str) -> str:
    """Return SQL for a column that older schemas lack and newer ones may leave null."""
    return f"coalesce({name}, {otherwise})" if name in columns else otherwise


def _device_rows(db: sqlite3.Connection, tables: set[str], names: _Names) -> _Rows:
    """Return start, end, stream, correlation, node, name, kind, device, by start."""
    parts = [np.empty((0, 8), dtype=np.int64)]
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
        rows = _whole(db, query, 8)
        rows[:, 3] = _correlation(rows[:, 6], rows[:, 3])
        rows[:, 5] = names.of_ids(rows[:, 5], label)
        rows[:, 6] = kind
        parts.append(rows)
    return _by_start(np.concatenate(parts))


def _by_start(rows: _Rows) -> _Rows:
    """Sort here: without an index SQLite takes three times as long."""
    start = rows[:, 0]
    if bool((start[1:] >= start[:-1]).all()):
        return rows
    return rows[np.argsort(start, kind="stable")]


def _correlation(process: I64, correlation: I64) -> I64:
    """Return ids that are unique over processes, -1 for none.

    Correlation ids count from one in every process, so two ranks in one file share
    them. nsys packs the process into bits 24 to 47 of its global ids.
    """
    unique: I64 = ((process >> 24 & 0xFFFFFF) << 36) | correlation
    return np.where(correlation < 0, -1, unique)


def _ops(rows: _Rows) -> Ops:
    return Ops(
        start_ns=rows[:, 0].copy(),
        end_ns=rows[:, 1].copy(),
        stream=rows[:, 2].copy(),
        correlation=rows[:, 3].copy(),
        graph_node=rows[:, 4].copy(),
        name=rows[:, 5].copy(),
        kind=rows[:, 6].copy(),
    )


def _calls(db: sqlite3.Connection, tables: set[str], names: _Names) -> Calls:
    rows = np.empty((0, 5), dtype=np.int64)
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        query = (
            "SELECT start, end, coalesce(correlationId, -1), coalesce(nameId, -1),"
            " coalesce(globalTid, 0) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            " WHERE end IS NOT NULL"
        )
        rows = _by_start(_whole(db, query, 5))
    name = names.of_ids(rows[:, 3], "?")
    # "cudaGraphLaunch_v10000": nsys adds the API version.
    graph = [i for i, n in enumerate(names.all()) if re.match(r"cu\w*GraphLaunch", n)]
    return Calls(
        start_ns=rows[:, 0].copy(),
        end_ns=rows[:, 1].copy(),
        correlation=_correlation(rows[:, 4], rows[:, 2]),
        name=name,
        thread=rows[:, 4] & 0xFFFFFF,
        is_graph=np.isin(name, int_column(graph)),
        process=rows[:, 4] >> 24 & 0xFFFFFF,
    )


def _spans(db: sqlite3.Connection, tables: set[str], names: _Names) -> HostSpans:
    rows = np.empty((0, 4), dtype=np.int64)
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
        rows = _by_start(_whole(db, query, 4))
    own = rows[:, 2] < -1
    name = np.where(own, -2 - rows[:, 2], 0)
    name[~own] = names.of_ids(rows[~own, 2], "?")
    return HostSpans(
        start_ns=rows[:, 0].copy(),
        end_ns=rows[:, 1].copy(),
        name=name,
        thread=rows[:, 3] & 0xFFFFFF,
        is_annotation=np.ones(len(rows), dtype=np.bool_),
    )
