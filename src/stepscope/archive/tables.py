"""A run directory as tables for SQL. docs/run-format.md lists their columns."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from stepscope.archive.columns import table_of
from stepscope.run.run import Cell, Run
from stepscope.run.samples import GpuSample, HostSample, ProcessSample

Column = tuple[str, pa.DataType, Callable[[Any], Any]]

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _get(name: str) -> Callable[[Any], Any]:
    return lambda row: getattr(row, name)


def _workload(name: str) -> Callable[[Cell], Any]:
    return lambda cell: getattr(cell.workload, name)


_RUNS: tuple[Column, ...] = (
    ("engine", _TEXT, _get("engine")),
    ("engine_version", _TEXT, _get("engine_version")),
    ("model", _TEXT, _get("model")),
    ("gpu", _TEXT, _get("gpu")),
    ("n_gpus", _INT, _get("n_gpus")),
    ("tp", _INT, lambda run: run.layout.tp),
    ("dp", _INT, lambda run: run.layout.dp),
    ("pp", _INT, lambda run: run.layout.pp),
    ("ep", _INT, lambda run: run.layout.ep),
    ("host", _TEXT, lambda run: run.machine.host),
    ("created_unix_ns", _INT, _get("created_unix_ns")),
    ("tool_version", _TEXT, _get("tool_version")),
    ("complete", _BOOL, _get("complete")),
)
_LAUNCHES: tuple[Column, ...] = (
    ("launch", _TEXT, _get("name")),
    ("configuration", _TEXT, _get("configuration")),
    ("session", _TEXT, _get("session")),
    ("command", _TEXT, lambda launch: json.dumps(launch.command)),
    ("ready", _BOOL, _get("ready")),
    ("exit_code", _INT, _get("exit_code")),
    ("failure", _TEXT, _get("failure")),
    ("started_at_ns", _INT, _get("started_at_ns")),
    ("ready_at_ns", _INT, _get("ready_at_ns")),
    ("stopped_at_ns", _INT, _get("stopped_at_ns")),
)
_CELLS: tuple[Column, ...] = (
    ("cell", _TEXT, _get("name")),
    ("configuration", _TEXT, _get("configuration")),
    ("launch", _TEXT, _get("launch")),
    ("concurrency", _INT, _workload("concurrency")),
    ("n_prompts", _INT, _workload("n_prompts")),
    ("input_tokens", _INT, _workload("input_tokens")),
    ("output_tokens", _INT, _workload("output_tokens")),
    ("repeat", _INT, _get("repeat")),
    ("warm_up", _BOOL, _get("warm_up")),
    ("status", _TEXT, _get("status")),
    ("source", _TEXT, _get("source")),
    ("failure", _TEXT, _get("failure")),
    ("started_at_ns", _INT, _get("started_at_ns")),
    ("ended_at_ns", _INT, _get("ended_at_ns")),
    ("clock_slack_ns", _INT, _get("clock_slack_ns")),
    ("client_verdict", _TEXT, lambda c: c.client.verdict if c.client else None),
)
_FINDINGS: tuple[Column, ...] = (
    ("code", _TEXT, _get("code")),
    ("severity", _TEXT, _get("severity")),
    ("cell", _TEXT, _get("cell")),
    ("launch", _TEXT, _get("launch")),
    ("message", _TEXT, _get("message")),
    ("hint", _TEXT, _get("hint")),
)
_LOG: tuple[Column, ...] = (
    ("launch", _TEXT, lambda row: row[0]),
    ("line", _INT, lambda row: row[1].line),
    ("kind", _TEXT, lambda row: row[1].kind),
    ("process", _TEXT, lambda row: row[1].process),
    ("at_ns", _INT, lambda row: row[1].at_ns),
    ("error_ns", _INT, lambda row: row[1].error_ns),
    ("text", _TEXT, lambda row: row[1].text),
    ("numbers", _TEXT, lambda row: json.dumps(row[1].numbers)),
)
_METRICS: tuple[Column, ...] = (
    ("cell", _TEXT, lambda row: row[0]),
    ("moment", _TEXT, lambda row: row[1]),
    ("at_ns", _INT, lambda row: row[2]),
    ("name", _TEXT, lambda row: row[3].name),
    ("labels", _TEXT, lambda row: json.dumps(row[3].labels)),
    ("value", _FLOAT, lambda row: row[3].value),
)


def _log_rows(run: Run) -> Iterator[tuple[str, Any]]:
    for launch in run.launches:
        for event in launch.log.events if launch.log is not None else ():
            yield launch.name, event


def _metric_rows(run: Run) -> Iterator[tuple[str | None, str, int, Any]]:
    for cell in run.cells:
        sides = (("before", cell.metrics_before), ("after", cell.metrics_after))
        for moment, snapshot in sides:
            for value in snapshot.values if snapshot is not None else ():
                yield cell.name, moment, snapshot.at_ns if snapshot else 0, value
    for snapshot in run.samples.metrics:
        for value in snapshot.values:
            yield None, "sampled", snapshot.at_ns, value


def tables(run: Run, name: str, wanted: Callable[[str], bool]) -> dict[str, pa.Table]:
    """Return the tables of one run, requests excepted.

    Args:
        run: The run.
        name: What the column ``run`` says.
        wanted: Asked with a table's name; tables that are not wanted are not built.
    """
    plain: dict[str, tuple[tuple[Column, ...], Callable[[], Iterable[Any]]]] = {
        "runs": (_RUNS, lambda: (run,)),
        "launches": (_LAUNCHES, lambda: run.launches),
        "cells": (_CELLS, lambda: run.cells),
        "findings": (_FINDINGS, lambda: run.findings),
        "log_events": (_LOG, lambda: _log_rows(run)),
        "metrics": (_METRICS, lambda: _metric_rows(run)),
    }
    found = {
        table: _table(columns, list(rows()), name)
        for table, (columns, rows) in plain.items()
        if wanted(table)
    }
    if wanted("samples"):
        found["samples"] = _named(table_of(GpuSample, run.samples.gpu), name)
    if wanted("host_samples"):
        found["host_samples"] = _named(table_of(HostSample, run.samples.host), name)
    if wanted("process_samples"):
        rows = table_of(ProcessSample, run.samples.process)
        found["process_samples"] = _named(rows, name)
    return found


def _table(columns: tuple[Column, ...], rows: list[Any], run: str) -> pa.Table:
    data = {
        name: pa.array([read(row) for row in rows], kind)
        for name, kind, read in columns
    }
    return _named(pa.table(data), run)


def _named(table: pa.Table, run: str) -> pa.Table:
    column = pa.array([run] * len(table), _TEXT)
    return table.add_column(0, pa.field("run", _TEXT), column)
