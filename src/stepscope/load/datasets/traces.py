"""Files of lengths and times: traces of real traffic, without its words."""

import csv
from collections.abc import Iterator

from stepscope.load.datasets.items import Item
from stepscope.load.datasets.lines import (
    bad,
    number_of,
    objects,
    text_lines,
    tokens_of,
)
from stepscope.load.spec import Source
from stepscope.units import NS_PER_S

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def timed_trace(source: Source) -> Iterator[Item]:
    """Yield requests of a JSONL trace, Mooncake's form.

    A line holds ``timestamp`` (in ``source.time_unit_s``), ``input_length``,
    ``output_length`` and may hold ``hash_ids``: one a block of the prompt, the last
    block cut to what is left.

    Raises:
        RecipeError: A line is not of that form, or time goes backwards.
    """
    path, before = str(source.path), 0.0
    for line, entry in objects(path):
        at = number_of(path, line, entry, "timestamp")
        if at < before:
            bad(path, line, f"timestamp {at:g} after {before:g}", "ascending times")
        before = at
        blocks = entry.get("hash_ids") or []
        if not isinstance(blocks, list) or not all(isinstance(b, int) for b in blocks):
            bad(path, line, '"hash_ids" is no list of numbers', "one number a block")
        yield Item(
            line=line,
            input_tokens=tokens_of(path, line, entry, "input_length"),
            output_tokens=tokens_of(path, line, entry, "output_length"),
            blocks=tuple(blocks),
            at_ns=round(at * source.time_unit_s * NS_PER_S),
        )


def burstgpt(source: Source) -> Iterator[Item]:
    """Yield requests of BurstGPT's CSV, those that failed there left out.

    Columns ``Timestamp`` (seconds), ``Request tokens`` and ``Response tokens``; a
    failure has no response tokens.

    Raises:
        RecipeError: A column is missing, a value is none, or time goes backwards.
    """
    path, before = str(source.path), 0.0
    lines = text_lines(path)
    _, head = next(lines)
    names = [name.strip() for name in next(csv.reader([head]))]
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        bad(path, 1, f"no column {missing[0]!r}", f"columns {', '.join(_COLUMNS)}")
    for line, text in lines:
        values = next(csv.reader([text]))
        row: dict[str, object] = dict(zip(names, values, strict=False))
        if source.trace_model and row.get("Model", source.trace_model) != (
            source.trace_model
        ):
            continue
        for name in _COLUMNS:
            row[name] = _number(row.get(name))
        at = number_of(path, line, row, _COLUMNS[0])
        if at < before:
            bad(path, line, f"time {at:g} after {before:g}", "ascending times")
        before = at
        n_in = tokens_of(path, line, row, _COLUMNS[1], least=0)
        n_out = tokens_of(path, line, row, _COLUMNS[2], least=0)
        if n_in and n_out:
            yield Item(
                line=line,
                input_tokens=n_in,
                output_tokens=n_out,
                at_ns=round(at * NS_PER_S),
            )


def _number(value: object) -> object:
    """Return a number where a text is one, else the text."""
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number
