"""The files of nsys: from what a recording left to SQLite, and what that holds."""

import os
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from stepscope.engines.nsys import IMPORTER, PROGRAM, NsysOrder, importer_of
from stepscope.parse.nsysranks import Pair, nsys_ranks
from stepscope.session.context import Context
from stepscope.session.phases.nsyssecrets import (
    holds_any,
    secrets_of,
    without_secrets,
)
from stepscope.session.phases.tracefiles import Written
from stepscope.session.tool import ToolOrder, run_tool, said
from stepscope.units import NS_PER_MS, NS_PER_S

_POLL_NS = 250 * NS_PER_MS
#: ``nsys stop`` comes back when the report is there; a report that comes later is
#: waited for as long as a file grows, and then so long.
_QUIET_NS = 2 * NS_PER_S
_BOXES = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_WORK = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    _BOXES,
)
_GPUS = ("TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_GPU")
#: Severity of nsys' own messages from which something is amiss.
_WARNING = 2
_OF_CUDA = re.compile(r"CUDA|CUPTI|driver|permission", re.IGNORECASE)
_NO_WORK_HINT = (
    "A server that uses no GPU leaves none. If this one uses one, record longer"
    " (seconds in [capture]) and look at its nsys.log."
)
_RAW_HINT = (
    f"On a machine with all of Nsight Systems, {IMPORTER} -i FILE.qdstrm makes a report"
    " of it, and nsys export --type=sqlite what `stepscope trace` reads."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an export holds.

    Attributes:
        n_ranks: As many as `stepscope trace` finds: processes on GPUs.
        warnings: What nsys itself says is amiss with CUDA.
    """

    n_ranks: int
    warnings: tuple[str, ...] = ()


def exported(
    context: Context, order: NsysOrder, log: Path, timeout_s: float
) -> Written:
    """Turn a recording into a report and into SQLite.

    Args:
        context: The session.
        order: That of nsys.
        log: Receives what its programs print.
        timeout_s: How long each of them may take.
    """
    report, raw, sqlite = (order.file(x) for x in ("nsys-rep", "qdstrm", "sqlite"))

    def ran(command: tuple[str, ...]) -> str | None:
        return run_tool(
            context,
            ToolOrder(
                command=command,
                environment=order.environment,
                log=log,
                timeout_s=timeout_s,
            ),
        )

    _await(context, report, raw)
    if not report.exists() and not raw.exists():
        return Written(why=f"nsys wrote no report: {said(log)}")
    known = secrets_of(os.environ, context.recipe.api_key_env)
    if not report.exists():
        importer = importer_of(Path(shutil.which(PROGRAM) or PROGRAM))
        why = f"{IMPORTER} is not beside nsys" if importer is None else None
        if importer is not None:
            why = ran(order.convert(importer))
        if not report.exists():
            why = f"nsys left a raw stream only: {why or said(log)}"
            return _failed(raw, why, known, _RAW_HINT)
    raw.unlink(missing_ok=True)
    why = ran(order.export)
    if why is not None:
        return _failed(report, why, known)
    try:
        names = without_secrets(sqlite, known)
    except sqlite3.DatabaseError:
        return _failed(report, "nsys export wrote no readable SQLite", known)
    if holds_any(sqlite, known):
        return Written(why="the export holds a secret that could not be removed")
    return _read(report, sqlite, names)


def _read(report: Path, sqlite: Path, names: tuple[str, ...]) -> Written:
    """Return a report and its export, if there is work in it.

    Args:
        report: Kept where it holds no secret.
        sqlite: The export, cleaned.
        names: Variables whose values were removed from it, and are in the report.
    """
    held = held_by(sqlite)
    note = None
    if names:
        note = f"nsys' report is not kept: the values of {', '.join(names)} are in it"
    others = () if names else (report,)
    if held is None:
        why = "nsys export wrote no readable SQLite"
        return Written(others=others, why=why, note=note)
    if not held.n_ranks:
        told = f"; nsys says: {held.warnings[0]}" if held.warnings else ""
        why = f"the report holds no GPU work{told}"
        return Written(others=others, why=why, hint=_NO_WORK_HINT, note=note)
    traces = ((None, sqlite),)
    return Written(traces=traces, others=others, n_ranks=held.n_ranks, note=note)


def _failed(
    left: Path, why: str, known: dict[str, str], hint: str | None = None
) -> Written:
    """Return what was left of a failed recording, unless it may hold a secret."""
    if known:
        names = ", ".join(known)
        why = f"{why}; what it left is not kept: it may hold the values of {names}"
        return Written(why=why)
    return Written(others=(left,), why=why, hint=hint)


def held_by(sqlite: Path) -> Held | None:
    """Return what an export holds; None: it is none, or damaged."""
    if not sqlite.exists():
        return None
    where = f"file:{quote(str(sqlite))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(where, uri=True)) as db:
            tables = {
                row[0]
                for row in db.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            }
            n_ops: Counter[Pair] = Counter()
            for table in _WORK:
                if table in tables:
                    n_ops += _n_ops(db, table)
            gpus = [_dicts(db, table) if table in tables else [] for table in _GPUS]
            ranks = nsys_ranks(n_ops, *gpus)
            warnings = _warnings(db) if "DIAGNOSTIC_EVENT" in tables else ()
    except sqlite3.DatabaseError:
        return None
    if "StringIds" not in tables:
        return None
    return Held(n_ranks=len(ranks), warnings=warnings)


def _n_ops(db: sqlite3.Connection, table: str) -> Counter[Pair]:
    columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    device, pid = (x if x in columns else "NULL" for x in ("deviceId", "globalPid"))
    # Of graphs that were recorded as one box some name no device.
    absent = -1 if table == _BOXES else 0
    query = (
        f"SELECT coalesce(CAST({pid} AS INTEGER), 0),"  # noqa: S608  # literals of this module
        f" coalesce(CAST({device} AS INTEGER), {absent}), count(*)"
        f" FROM {table} GROUP BY 1, 2"
    )
    return Counter({(row[0], row[1]): row[2] for row in db.execute(query)})


def _dicts(db: sqlite3.Connection, table: str) -> list[dict[str, object]]:
    rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608  # a literal of this module
    names = [column[0] for column in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _warnings(db: sqlite3.Connection) -> tuple[str, ...]:
    query = "SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity >= ?"
    texts = [" ".join(str(row[0]).split()) for row in db.execute(query, (_WARNING,))]
    return tuple(text[:300] for text in texts if _OF_CUDA.search(text))


def _await(context: Context, report: Path, raw: Path) -> None:
    """Wait for a report that is still being written."""
    clock, size = context.clock, -1
    quiet_since = clock.now_ns()
    while not report.exists() and not context.halt.asked.is_set():
        now, grown = clock.now_ns(), raw.stat().st_size if raw.exists() else 0
        if grown != size:
            quiet_since, size = now, grown
        elif now - quiet_since > _QUIET_NS:
            return
        clock.sleep_until(now + _POLL_NS)
