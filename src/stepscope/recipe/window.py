"""Whether a request fits the context that a configuration's flags give it."""

import math
from collections.abc import Mapping

from stepscope.recipe.problems import Problems
from stepscope.recipe.records import Configuration

#: What the embedded engine uses where the recipe does not say: requests in one batch,
#: and tokens of context for each.
EMBEDDED_SLOTS = 16
EMBEDDED_SLOT_CONTEXT = 512

_CONTEXT_FLAG = {"vllm": "max-model-len", "sglang": "context-length"}


def check_context(
    problems: Problems,
    data: Mapping[str, object],
    configurations: tuple[Configuration, ...],
) -> None:
    """Note every configuration in which prompt and answer do not fit."""
    workload = data.get("workload")
    table = workload if isinstance(workload, dict) else {}
    parts = (
        _longest(table.get("input_tokens"), table.get("input_range", 0)),
        _longest(table.get("output_tokens"), table.get("output_range", 0)),
        _longest(table.get("prefix_tokens", 0), 0),
    )
    need = sum(n for n in parts if n is not None)
    if None in parts:
        return
    seen: set[str] = set()
    for configuration in configurations:
        limit = _limit(str(data.get("engine")), configuration)
        if limit is None or need <= limit[0]:
            continue
        found = f"{need} tokens in and out do not fit a context of {limit[0]}"
        if found in seen:
            continue
        seen.add(found)
        do = f"Raise {limit[1]} of {configuration.name}, or ask for fewer tokens"
        problems.add("workload", found, "", do)


def _longest(tokens: object, spread: object) -> int | None:
    """Return the most tokens of one request; None where it is not known."""
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        return None
    if isinstance(spread, bool) or not isinstance(spread, int | float):
        return None
    return math.ceil(tokens * (1 + spread)) if 0 <= spread < 1 else None


def _limit(engine: str, configuration: Configuration) -> tuple[int, str] | None:
    """Return tokens per request and the flag that sets them, where flags say."""
    if engine in _CONTEXT_FLAG:
        flag = _CONTEXT_FLAG[engine]
        tokens = _whole(configuration, flag)
        return None if tokens is None else (tokens, flag)
    if engine == "llamacpp":
        total, slots = (_whole(configuration, f) for f in ("ctx-size", "parallel"))
        shared = configuration.flags.get("kv-unified") is True
        if total and slots and not shared:
            return total // slots, "ctx-size"
    if engine == "embedded":
        tokens = _whole(configuration, "slot-context") or EMBEDDED_SLOT_CONTEXT
        return tokens, "slot-context"
    return None


def _whole(configuration: Configuration, flag: str) -> int | None:
    value = configuration.flags.get(flag)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None
