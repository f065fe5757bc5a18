"""The saved result of ``stepscope bench``: vLLM's JSON, and one CSV row a run."""

import csv
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepscope.cli.bench_flags import Asked
from stepscope.errors import RecipeError


def check_room(flags: Mapping[str, Any]) -> None:
    """Find out before the load whether its result can be written where it is wanted.

    Raises:
        RecipeError: A folder is missing and can not be made, or is not writable.
    """
    wanted = []
    if flags["save_result"] or flags["append_result"]:
        wanted.append(flags["result_dir"] / (flags["result_filename"] or "x"))
    if flags["save_csv"] is not None:
        wanted.append(flags["save_csv"])
    for path in wanted:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = f"{error.strerror}"
            raise RecipeError(str(path.parent), found, "a folder") from error
        target = path if path.exists() else path.parent
        if path.is_dir() or not os.access(target, os.W_OK):
            found = "is a folder" if path.is_dir() else "can not be written"
            raise RecipeError(str(target), found, "a writable file")


def save(document: dict[str, Any], flags: Mapping[str, Any], asked: Asked) -> None:
    """Write what the flags ask for; a file name that ends in ``.csv`` is a CSV.

    Raises:
        RecipeError: A file can not be written, or a CSV has other columns.
    """
    name = flags["result_filename"] or _usual_name(document, asked)
    path: Path = flags["result_dir"] / name
    wanted = flags["save_result"] or flags["append_result"]
    if wanted and path.suffix != ".csv":
        _write(path, msgspec.json.encode(document), append=flags["append_result"])
    elif wanted:
        _write_row(path, document)
    if flags["save_csv"] is not None:
        _write_row(flags["save_csv"], document)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the single values of a result by column; lists are left out.

    What lies in a part (``client``) has the part's name before its own. ``ramp_up``
    and the like that a run does not have are no columns of it.
    """
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            if name != "failures":  # its names differ from run to run
                row |= flat(value, f"{prefix}{name}_")
        elif not isinstance(value, (list, tuple)):
            row[prefix + name] = value
    return row


def _write_row(path: Path, document: Mapping[str, Any]) -> None:
    """Append a run to a CSV, with a header where it is new."""
    row = flat(document)
    names = list(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    try:
        old = path.read_text() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(str(path), "can not be read", "a CSV of results") from error
    if not old:
        writer.writeheader()
    elif next(csv.reader(io.StringIO(old)), []) != names:
        raise RecipeError(
            str(path),
            "its columns are those of another kind of run",
            "the same metrics and percentiles in every row",
            "Name another file",
        )
    writer.writerow(row)
    _write(path, text.getvalue().encode(), append=True, between=b"")


def _write(path: Path, data: bytes, *, append: bool, between: bytes = b"\n") -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append:
            with path.open("ab") as file:
                file.write((between if file.tell() else b"") + data)
        else:
            path.write_bytes(data)
    except OSError as error:
        raise RecipeError(str(path), f"{error.strerror}", "a writable file") from error
    print(f"saved {path}", file=sys.stderr)


def _usual_name(document: dict[str, Any], asked: Asked) -> str:
    many = asked.max_concurrency
    at = "" if many is None else f"-concurrency{many}"
    base = asked.model.rsplit("/", 1)[-1]
    start = f"{asked.label or asked.backend}-{_rate_name(document)}{at}-{base}"
    return f"{start}-{document['date']}.json"


def _rate_name(document: dict[str, Any]) -> str:
    """Return the rate as vLLM has it in file names."""
    strategy = document.get("ramp_up_strategy")
    if strategy is None:
        return f"{document['request_rate']}qps"
    start, end = document["ramp_up_start_rps"], document["ramp_up_end_rps"]
    return f"ramp-up-{strategy}-{start:g}qps-{end:g}qps"
