"""The cells of an ``import.toml``: requests on the Unix clock, metrics beside them."""

from decimal import Decimal
from pathlib import Path

import msgspec

from stepscope.errors import RecipeError
from stepscope.findings import Finding
from stepscope.importers.clockfit import Fit, bounds, fit
from stepscope.importers.files import read_text
from stepscope.importers.reading import Reading
from stepscope.importers.results import (
    FORMATS,
    cell_of,
    read_results,
    result_findings,
)
from stepscope.importers.spec import CellTable, SummaryTable
from stepscope.parse.prometheus import parse_metrics
from stepscope.parse.vllm_bench import BenchResult
from stepscope.recipe.records import Workload
from stepscope.run.run import Cell, Summary
from stepscope.run.samples import MetricsSnapshot
from stepscope.units import NS_PER_S


def cells_of(reading: Reading, launch: str) -> tuple[Cell, ...]:
    """Return the cells, on the Unix clock where their commands say when they ran."""
    cells = [
        _cell(reading, number, table, launch)
        for number, table in enumerate(reading.spec.cell)
    ]
    fits, found = fit(
        [
            bounds(cell.name, cell.requests, cell.started_at_ns, cell.ended_at_ns)
            for cell in cells
            if cell.requests
            and cell.started_at_ns is not None
            and cell.ended_at_ns is not None
        ]
    )
    reading.findings += found
    repeats: dict[object, int] = {}
    out = []
    for cell, table in zip(cells, reading.spec.cell, strict=True):
        point = (cell.configuration, cell.workload, cell.warm_up)
        repeat = repeats.get(point, 0) if table.repeat is None else table.repeat
        repeats[point] = repeat + 1
        placed = _placed(cell, fits.get(cell.name), table.output_tokens)
        out.append(msgspec.structs.replace(placed, repeat=repeat))
    return tuple(out)


def _cell(reading: Reading, number: int, table: CellTable, launch: str) -> Cell:
    key = f"cell[{number}]"
    if table.format not in FORMATS:
        raise RecipeError(
            f"{reading.path}: {key}.format", repr(table.format), " or ".join(FORMATS)
        )
    if bool(table.results) == (table.summary is not None):
        raise RecipeError(
            f"{reading.path}: {key}",
            "has results and a summary" if table.results else "has no results",
            "results, a list of files, or a table [cell.summary]",
        )
    cell = _read(reading, table, launch, key)
    started, ended = table.command_started_at, table.command_ended_at
    if started is not None and ended is not None and ended < started:
        raise RecipeError(
            f"{reading.path}: {key}.command_ended_at", "lies before command_started_at"
        )
    if table.summary is None and (started is None or ended is None):
        reading.findings.append(_unstamped(table.name))
    asked = {
        name: value
        for name in ("concurrency", "n_prompts", "input_tokens", "output_tokens")
        if (value := getattr(table, name)) is not None
    }
    said = cell.workload.concurrency
    if said is not None and asked.get("concurrency", said) != said:
        reading.findings.append(_contradicts(table.name, asked["concurrency"], said))
    return msgspec.structs.replace(
        cell,
        workload=msgspec.structs.replace(cell.workload, **asked),
        warm_up=table.warm_up,
        telemetry_means=table.telemetry,
        started_at_ns=_unix_ns(started),
        ended_at_ns=_unix_ns(ended),
    )


def _read(reading: Reading, table: CellTable, launch: str, key: str) -> Cell:
    if table.summary is not None:
        return _published(reading, table, table.summary, launch)
    results: list[BenchResult] = []
    for name in table.results:
        results += read_results(reading.file(name, f"{key}.results"))
    source = reading.path.parent / table.results[0]
    reading.findings += result_findings(table.name, results[0])
    return cell_of(
        table.name, table.configuration, launch, results, source, source=table.format
    )


def _published(
    reading: Reading, table: CellTable, summary: SummaryTable, launch: str
) -> Cell:
    """Return a cell of which only published figures are known."""
    named = {"ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"}
    known = {name: getattr(summary, name) for name in sorted(named)}
    per_request = table.input_tokens
    return Cell(
        name=table.name,
        configuration=table.configuration,
        launch=launch,
        workload=Workload(
            concurrency=table.concurrency,
            n_prompts=table.n_prompts or summary.n_completed + summary.n_failed,
        ),
        summary=Summary(
            n_completed=summary.n_completed,
            n_failed=summary.n_failed,
            duration_s=summary.duration_s,
            input_tokens=None
            if per_request is None
            else per_request * summary.n_completed,
            output_tokens=summary.output_tokens,
            stats={name: dict(figures) for name, figures in known.items() if figures},
        ),
        source="published",
        raw_path=str(reading.path.resolve()),
    )


def _unix_ns(at: Decimal | int | None) -> int | None:
    return None if at is None else int(at * NS_PER_S)


def _unstamped(cell: str) -> Finding:
    return Finding(
        code="telemetry-window-mismatch",
        severity="info",
        message="Nothing says when its client ran, so its requests stay on their own"
        " clock and no telemetry or log line is read beside them.",
        hint="Give command_started_at and command_ended_at.",
        cell=cell,
    )


def _contradicts(cell: str, asked: int, said: int) -> Finding:
    return Finding(
        code="import-contradicts",
        severity="warning",
        message=f"import.toml says concurrency {asked}, the result says {said};"
        " the former was taken.",
        hint="Correct import.toml.",
        cell=cell,
    )


def _placed(cell: Cell, fitted: Fit | None, output_tokens: int | None) -> Cell:
    """Return the cell with its requests on the Unix clock."""
    by = 0 if fitted is None else fitted.offset_ns
    requests = tuple(
        msgspec.structs.replace(
            request,
            sent_at_ns=request.sent_at_ns + by,
            ended_at_ns=request.ended_at_ns + by,
            first_content_at_ns=_plus(request.first_content_at_ns, by),
            last_content_at_ns=_plus(request.last_content_at_ns, by),
            requested_output_tokens=output_tokens,
        )
        for request in cell.requests
    )
    slack_ns = 0 if fitted is None else fitted.slack_ns
    return msgspec.structs.replace(cell, requests=requests, clock_slack_ns=slack_ns)


def _plus(at_ns: int | None, by_ns: int) -> int | None:
    return None if at_ns is None else at_ns + by_ns


def with_metrics(
    reading: Reading,
    number: int,
    cell: Cell,
    bodies: dict[tuple[str, str], Path],
) -> Cell:
    """Return the cell with its metrics snapshots, stamped by its command."""
    table = reading.spec.cell[number]
    sides = (
        ("before", table.metrics_before, cell.started_at_ns),
        ("after", table.metrics_after, cell.ended_at_ns),
    )
    for side, name, at_ns in sides:
        if name is None:
            continue
        path = reading.file(name, f"cell[{number}].metrics_{side}")
        edge_ns = _edge_ns(cell, side) if at_ns is None else at_ns
        if edge_ns is None:
            continue  # The cell's finding says that nothing tells when it ran.
        snapshot = MetricsSnapshot(at_ns=edge_ns, values=parse_metrics(read_text(path)))
        bodies[cell.name, side] = path
        cell = msgspec.structs.replace(cell, **{f"metrics_{side}": snapshot})
    return cell


def _edge_ns(cell: Cell, side: str) -> int | None:
    """Return the edge of the cell span; None without requests."""
    if side == "before":
        return min((r.sent_at_ns for r in cell.requests), default=None)
    return max((r.ended_at_ns for r in cell.requests), default=None)
