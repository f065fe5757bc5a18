"""Reading a file of prompts line by line, with errors that name the line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from stepscope.errors import RecipeError

#: Nothing sensible is longer, and a slip must not ask for billions.
_MOST_TOKENS = 10_000_000


def bad(path: str, line: int, found: str, expected: str) -> NoReturn:
    """Refuse a line.

    Raises:
        RecipeError: Always.
    """
    raise RecipeError(f"{path}: line {line}", found, f"expected {expected}")


def file_bytes(path: str) -> bytes:
    """Return a file.

    Raises:
        RecipeError: It can not be read, or is empty.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RecipeError(
            path, error.strerror or str(error), "expected a file of prompts"
        ) from error
    if not data.strip():
        raise RecipeError(path, "it is empty", "expected a file of prompts")
    return data


def text_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1.

    Raises:
        RecipeError: The file can not be read, is empty, or is no UTF-8.
    """
    # Split at line feeds alone: a text may hold other marks that end lines.
    for number, raw in enumerate(file_bytes(path).split(b"\n"), 1):
        if raw.strip():
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                bad(path, number, "bytes that are no UTF-8", "text")


def objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file, or of one JSON list, with their places.

    Raises:
        RecipeError: As ``text_lines``, or something is no JSON object.
    """
    data = file_bytes(path)
    if data.lstrip().startswith(b"["):
        yield from _list(path, data)
        return
    decode = msgspec.json.decode
    for number, line in text_lines(path):
        try:
            value = decode(line)
        except msgspec.DecodeError as error:
            bad(path, number, f"no JSON ({error})", "one JSON object a line")
        if not isinstance(value, dict):
            bad(path, number, f"a JSON {type(value).__name__}", "a JSON object")
        yield number, value


def _list(path: str, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        values = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        line = data.count(b"\n") + 1
        bad(path, line, f"no JSON ({error})", "a JSON list of objects")
    for place, value in enumerate(values, 1):
        if not isinstance(value, dict):
            found = f"entry {place} is a JSON {type(value).__name__}"
            bad(path, place, found, "an object")
        yield place, value


def text_of(path: str, line: int, entry: dict[str, Any], key: str) -> str:
    """Return a text that must not be empty.

    Raises:
        RecipeError: It is missing or is no such text.
    """
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        bad(path, line, _seen(key, value), "a text that is not empty")
    return value


def tokens_of(
    path: str, line: int, entry: dict[str, Any], key: str, *, least: int = 1
) -> int:
    """Return a number of tokens.

    Raises:
        RecipeError: It is missing or no such number.
    """
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not least <= value <= _MOST_TOKENS
    ):
        bad(path, line, _seen(key, value), f"a number of tokens from {least}")
    return value


def number_of(path: str, line: int, entry: dict[str, Any], key: str) -> float:
    """Return a number of at least 0.

    Raises:
        RecipeError: It is missing or no such number.
    """
    value = entry.get(key)
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not 0 <= value < float("inf")
    ):
        bad(path, line, _seen(key, value), "a number of at least 0")
    return float(value)


def _seen(key: str, value: object) -> str:
    if value is None:
        return f'"{key}" is missing'
    shown = repr(value)
    return f'"{key}" is {shown if len(shown) <= 40 else shown[:37] + "..."}'
