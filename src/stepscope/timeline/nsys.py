"""Nsight Systems SQLite exports (schemas of 2024 to 2026) to columns."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from stepscope.errors import ArchiveError
from stepscope.timeline.columns import (
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
_ROWS = 100_000


class _Names:
    """Interned names; nsys keeps its own string table, which is looked up first."""

    def __init__(self, strings: dict[int, str]) -> None:
        self._strings = strings
        self._ids: dict[str, int] = {}

    def of(self, string_id: int | None, otherwise: str) -> int:
        text = otherwise
        if string_id is not None:
            text = self._strings.get(string_id, otherwise)
        return self._ids.setdefault(text, len(self._ids))

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
    try:
        with closing(
            sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        ) as db:
            return _read(path, db)
    except sqlite3.DatabaseError as error:
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
    rows = rows[good]
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
    found = db.execute(f"SELECT start, end FROM {table} ORDER BY start").fetchall()  # noqa: S608  # a literal of this module
    return Boxes(
        start_ns=int_column([row[0] for row in found]),
        end_ns=int_column([row[1] for row in found]),
        name=int_column([names.of(None, "graph")] * len(found)),
    )


def _device_rows(
    db: sqlite3.Connection, tables: set[str], names: _Names
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    parts = [np.empty((0, 8), dtype=np.int64)]
    for table, kind, label in _TABLES:
        if table not in tables:
            continue
        columns = _columns(db, table)
        name = "shortName" if "shortName" in columns else "NULL"
        node = "graphNodeId" if "graphNodeId" in columns else "NULL"
        process = "globalPid" if "globalPid" in columns else "NULL"
        cursor = db.execute(
            f"SELECT start, end, streamId, correlationId, {node}, {name}, deviceId,"  # noqa: S608  # column names are literals of this module
            f" {process} FROM {table}"
        )
        while batch := cursor.fetchmany(_ROWS):
            parts.append(
                int_matrix(
                    [
                        (
                            *(s, e, st, _correlation(p, c), -1 if n is None else n),
                            *(names.of(text, label), kind, d),
                        )
                        for s, e, st, c, n, text, d, p in batch
                    ]
                )
            )
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _correlation(process: int | None, correlation: int | None) -> int:
    """Return an id that is unique over processes, -1 for none.

    Correlation ids count from one in every process, so two ranks in one file share
    them. nsys packs the process into bits 24 to 47 of its global ids.
    """
    if correlation is None:
        return -1
    return (((process or 0) >> 24 & 0xFFFFFF) << 36) | correlation


def int_matrix(
    rows: list[tuple[int, ...]],
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Return rows of equal length as int64[n, k]."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), -1)


def _ops(rows: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> Ops:
    return Ops(
        start_ns=rows[:, 0],
        end_ns=rows[:, 1],
        stream=rows[:, 2],
        correlation=rows[:, 3],
        graph_node=rows[:, 4],
        name=rows[:, 5],
        kind=rows[:, 6],
    )


def _calls(db: sqlite3.Connection, tables: set[str], names: _Names) -> Calls:
    found: list[tuple[int, int, int, int, int, int]] = []
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        query = (
            "SELECT start, end, correlationId, nameId, globalTid"
            " FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start"
        )
        found = [
            (
                s,
                e,
                _correlation(t, c),
                names.of(n, "?"),
                t & 0xFFFFFF,
                t >> 24 & 0xFFFFFF,
            )
            for s, e, c, n, t in db.execute(query)
        ]
    # "cudaGraphLaunch_v10000": nsys adds the API version.
    graph = [i for i, n in enumerate(names.all()) if re.match(r"cu\w*GraphLaunch", n)]
    name = int_column([row[3] for row in found])
    return Calls(
        start_ns=int_column([row[0] for row in found]),
        end_ns=int_column([row[1] for row in found]),
        correlation=int_column([row[2] for row in found]),
        name=name,
        thread=int_column([row[4] for row in found]),
        is_graph=np.isin(name, int_column(graph)),
        process=int_column([row[5] for row in found]),
    )


def _spans(db: sqlite3.Connection, tables: set[str], names: _Names) -> HostSpans:
    found: list[tuple[int, int, int, int]] = []
    if "NVTX_EVENTS" in tables:
        query = (
            "SELECT start, end, text, textId, globalTid FROM NVTX_EVENTS"
            " WHERE end IS NOT NULL ORDER BY start"
        )
        found = [
            (s, e, names.of(None if text else i, text or "?"), (t or 0) & 0xFFFFFF)
            for s, e, text, i, t in db.execute(query)
        ]
    return HostSpans(
        start_ns=int_column([row[0] for row in found]),
        end_ns=int_column([row[1] for row in found]),
        name=int_column([row[2] for row in found]),
        thread=int_column([row[3] for row in found]),
        is_annotation=np.ones(len(found), dtype=np.bool_),
    )
