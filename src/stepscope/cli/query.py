"""``stepscope query``: SQL over runs."""

import csv
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec


@click.command()
@click.argument("sql")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV with a header.")
def query(sql: str, runs: tuple[Path, ...], as_json: bool, as_csv: bool) -> None:
    """Run one SELECT over RUNS.

    Tables: runs, launches, cells, requests, samples (GPUs), host_samples,
    process_samples, metrics, log_events, findings, and cell_figures (throughput and
    mean latencies, one row a cell, void ones too). A run is a directory, finished or
    not, or anything that ``stepscope import`` reads.
    """
    from stepscope.archive.layout import is_run
    from stepscope.archive.query import query as run_query
    from stepscope.importers.files import existing
    from stepscope.importers.save import import_to

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
        paths = []
        for number, path in enumerate(runs):
            existing(path)
            if is_run(path):
                paths.append(path)
            else:
                paths.append(import_to(path, Path(folder) / str(number)))
        columns, rows = run_query(sql, paths)
    if as_json:
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        sys.stdout.buffer.write(msgspec.json.encode(objects, enc_hook=str) + b"\n")
    elif as_csv:
        print(_csv(columns, rows), end="")
    else:
        print(_table(columns, rows))


def _csv(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return an aligned table; numbers to the right, unknown as a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max([len(name), *(len(row[n]) for row in cells)])
        for n, name in enumerate(columns)
    ]
    right = [
        any(isinstance(row[n], (int, float)) for row in rows)
        for n in range(len(columns))
    ]

    def line(values: list[str]) -> str:
        return "  ".join(
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ).rstrip()

    rule = ["-" * width for width in widths]
    return "\n".join([line(list(columns)), line(rule), *map(line, cells)])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())
