"""SQL over runs: one SELECT, read only, no file and no network within its reach.

Requests stay in their Parquet files and are read column by column; all else is small.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from stepscope.archive.cells import requests_of
from stepscope.archive.columns import damaged, table_of
from stepscope.archive.layout import CELLS, REQUESTS, dir_name
from stepscope.archive.reader import open_run
from stepscope.archive.tables import tables
from stepscope.errors import RecipeError
from stepscope.run.requests import Request
from stepscope.run.run import Run

_READS = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})
_REQUEST_VIEW = """
CREATE VIEW requests AS
SELECT *, failure IS NULL AS ok,
    (first_content_at_ns - coalesce(intended_at_ns, sent_at_ns)) / 1e6 AS ttft_ms,
    (last_content_at_ns - coalesce(intended_at_ns, sent_at_ns)) / 1e6 AS e2el_ms,
    CASE WHEN output_tokens > 1
        THEN (last_content_at_ns - first_content_at_ns) / 1e6 / (output_tokens - 1)
    END AS tpot_ms
FROM ({parts})
"""
#: One row a cell, over the span from first send to last content, failed requests left
#: out. Void cells are in it: only ``analyze`` judges.
_FIGURES_VIEW = """
CREATE VIEW cell_figures AS
SELECT c.run, r.created_unix_ns, r.engine_version, c.cell, c.configuration, c.launch,
    c.concurrency, c.repeat, c.warm_up, c.status,
    count(q.index) AS n_ok,
    sum(q.output_tokens) AS output_tokens,
    (max(q.last_content_at_ns) - min(q.sent_at_ns)) / 1e9 AS duration_s,
    sum(q.output_tokens)
        / nullif((max(q.last_content_at_ns) - min(q.sent_at_ns)) / 1e9, 0)
        AS output_tokens_per_s,
    avg(q.ttft_ms) AS ttft_ms, median(q.ttft_ms) AS ttft_median_ms,
    avg(q.tpot_ms) AS tpot_ms, avg(q.e2el_ms) AS e2el_ms
FROM cells c JOIN runs r ON r.run = c.run
    LEFT JOIN requests q ON q.run = c.run AND q.cell = c.cell AND q.ok
GROUP BY ALL
"""
_FIGURES_FROM = frozenset({"cells", "runs", "requests"})
_PART = "SELECT {run} AS run, {cell} AS cell, * FROM {table}"


def query(
    sql: str, paths: Sequence[Path]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT over run directories, finished, running or killed.

    Args:
        sql: The statement. Tables: runs, launches, cells, requests, samples,
            host_samples, process_samples, metrics, log_events, findings, and the view
            cell_figures (one row a cell).
        paths: The run directories. The column ``run`` is the run's id; where two runs
            share one, the folder's name.

    Returns:
        The columns' names, each once (``name``, ``name_1``), and the rows.

    Raises:
        RecipeError: The statement is wrong, or is not one SELECT.
        ArchiveError: A run is damaged.
    """
    with duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "threads": "2",
        },
    ) as connection:
        _check(connection, sql)
        _fill(connection, sql, paths)
        connection.execute("SET lock_configuration = true")
        try:
            result = connection.execute(sql)
            columns = _told_apart([column[0] for column in result.description or ()])
            return columns, result.fetchall()
        except duckdb.Error as error:
            raise _wrong(error) from error


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, the later ones of a kind numbered: JSON objects keep one."""
    taken: list[str] = []
    for name in names:
        found, n = name, 0
        while found in taken or (n and found in names):
            n += 1
            found = f"{name}_{n}"
        taken.append(found)
    return tuple(taken)


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong(error) from error
    if len(statements) != 1 or statements[0].type not in _READS:
        found = ", ".join(s.type.name for s in statements) or "nothing"
        raise RecipeError("query", f"found {found}", "one SELECT")


def _wrong(error: duckdb.Error) -> RecipeError:
    return RecipeError("query", " ".join(str(error).split())[:400])


def _fill(
    connection: duckdb.DuckDBPyConnection, sql: str, paths: Sequence[Path]
) -> None:
    text = sql.lower()
    listed = "show" in text or "information_schema" in text
    figures = "cell_figures" in text

    def wanted(name: str) -> bool:
        return listed or name in text or (figures and name in _FIGURES_FROM)

    # Logs are parsed only for what needs them.
    logs = wanted("log_events") or wanted("findings")
    runs = [open_run(path, requests=False, logs=logs) for path in paths]
    names = _names(runs, paths)
    parts: dict[str, list[pa.Table]] = {}
    for run, name in zip(runs, names, strict=True):
        for table, rows in tables(run, name, wanted).items():
            parts.setdefault(table, []).append(rows)
    for table, pieces in parts.items():
        connection.register(table, pa.concat_tables(pieces))
    named = list(zip(runs, names, paths, strict=True))
    if wanted("requests"):
        # A mere list of the tables need not open every cell.
        _fill_requests(connection, named if figures or "requests" in text else [])
    if figures or listed:
        connection.execute(_FIGURES_VIEW)


def _names(runs: list[Run], paths: Sequence[Path]) -> list[str]:
    """Return what tells the runs apart: the id, the folder, or the whole path."""
    ids = [run.id for run in runs]
    folders = [path.resolve().name for path in paths]
    for candidates in (ids, folders):
        if max(Counter(candidates).values(), default=1) == 1:
            return candidates
    return [str(path) for path in paths]


def _fill_requests(
    connection: duckdb.DuckDBPyConnection, runs: list[tuple[Run, str, Path]]
) -> None:
    connection.register("requests_none", table_of(Request, ()))
    parts = [_PART.format(run="''", cell="''", table="requests_none")]
    for run, name, path in runs:
        for cell in run.cells:
            table = f"requests_{len(parts)}"
            connection.register(table, _requests(path / CELLS / dir_name(cell.name)))
            parts.append(
                _PART.format(run=_quoted(name), cell=_quoted(cell.name), table=table)
            )
    connection.execute(_REQUEST_VIEW.format(parts=" UNION ALL BY NAME ".join(parts)))


def _requests(folder: Path) -> Any:
    """Return a cell's requests: its Parquet file, or what its journals hold."""
    file = folder / REQUESTS
    if not file.exists():
        return table_of(Request, requests_of(folder))
    try:
        return ds.dataset(file, format="parquet")
    except (pa.ArrowException, OSError) as error:
        raise damaged(file, str(error)) from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
