"""Numbers of an ``import.toml`` that no measurement can have given."""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

#: Least value of a key; the others begin at 0.
_LEAST: dict[str, int] = dict.fromkeys(
    (
        "concurrency", "n_prompts", "n_completed", "n_gpus", "tensor_parallel",
        "data_parallel", "pipeline_parallel", "n_samples",
    ),
    1,
)  # fmt: skip
#: Lengths of time that something was divided by.
_ABOVE_ZERO = frozenset({"duration_s", "window_s"})
_MOST_PCT = frozenset({"util_pct", "util_spread_points"})
#: Changes, and offsets of a clock, go both ways; a claim's figure is a stranger's word.
_SIGNED = frozenset({"utc_offset_minutes", "effect_pct", "value"})
_MOST = 10**15


def impossible(raw: Any, at: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield key path, what was found and what was expected, of each such number.

    Args:
        raw: What TOML holds.
        at: Path of it, for the messages.
    """
    pairs: Iterator[tuple[str, Any]]
    if isinstance(raw, dict):
        pairs = ((f"{at}.{key}" if at else key, value) for key, value in raw.items())
    elif isinstance(raw, list):
        pairs = ((f"{at}[{number}]", value) for number, value in enumerate(raw))
    else:
        return
    for path, value in pairs:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            yield from impossible(value, path)
        elif expected := _wrong(path.rpartition(".")[2], value):
            text = str(value)
            yield path, text if len(text) <= 40 else f"{text[:37]}...", expected


def _wrong(key: str, value: float | Decimal) -> str | None:
    if not math.isfinite(value) or not -_MOST <= value <= _MOST:
        return "a finite number of at most 1e15"
    if key in _SIGNED:
        return None
    if key in _ABOVE_ZERO and value <= 0:
        return "seconds above 0"
    if value < _LEAST.get(key, 0):
        return f"{_LEAST.get(key, 0)} or more"
    if key in _MOST_PCT and value > 100:
        return "at most 100"
    return None
