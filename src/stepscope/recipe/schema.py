"""The form of a recipe: tables, keys, types. One place to add a key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], str | None]


def is_text(value: object) -> str | None:
    """Accept a non-empty string."""
    if isinstance(value, str) and value.strip():
        return None
    return "a non-empty string"


def is_positive_int(value: object) -> str | None:
    """Accept an integer of at least 1."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    return "a whole number of at least 1"


def is_count(value: object) -> str | None:
    """Accept an integer of at least 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return None
    return "a whole number of at least 0"


def is_positive(value: object) -> str | None:
    """Accept a finite number above 0."""
    if _number(value) and 0 < float(str(value)) < float("inf"):
        return None
    return "a number above 0"


def is_price(value: object) -> str | None:
    """Accept a finite number of at least 0."""
    if _number(value) and 0 <= float(str(value)) < float("inf"):
        return None
    return "a number of at least 0"


def is_port(value: object) -> str | None:
    """Accept a TCP port."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535:
        return None
    return "a port from 1 to 65535"


def is_table(value: object) -> str | None:
    """Accept a table."""
    return None if isinstance(value, dict) else "a table"


def is_text_list(value: object) -> str | None:
    """Accept a non-empty list of strings."""
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        return None
    return "a list of strings"


def is_pid_list(value: object) -> str | None:
    """Accept a list of process ids."""
    if isinstance(value, list) and all(is_positive_int(v) is None for v in value):
        return None
    return "a list of process ids"


def is_url(value: object) -> str | None:
    """Accept an http or https address."""
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return None
    return 'an address such as "http://127.0.0.1:8000"'


def is_list(value: object) -> str | None:
    """Accept a non-empty list."""
    return None if isinstance(value, list) and value else "a non-empty list"


def is_cpus(value: object) -> str | None:
    """Accept a processor list such as ``0-3,8``."""
    if isinstance(value, str) and cpu_set(value) is not None:
        return None
    return 'a list of processors such as "0-3,8"'


def one_of(*words: str) -> Check:
    """Accept one of ``words``."""

    def check(value: object) -> str | None:
        return None if value in words else "one of " + ", ".join(words)

    return check


def cpu_set(text: str) -> frozenset[int] | None:
    """Return the processors that ``0-3,8`` names, or None where it names none."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            return None
        last = int(high) if dash else int(low)
        if last < int(low) or last > 1 << 14:
            return None
        found.update(range(int(low), last + 1))
    return frozenset(found) or None


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table."""

    check: Check
    required: bool = False


ENGINES = ("vllm", "sglang", "llamacpp", "url", "embedded")

TOP: dict[str, Key] = {
    "name": Key(is_text, required=True),
    "engine": Key(one_of(*ENGINES), required=True),
    "model": Key(is_text),
    "served_model_name": Key(is_text),
    "executable": Key(is_text_list),
    "host": Key(is_text),
    "port": Key(is_port),
    "readiness_timeout_s": Key(is_positive),
    "capture": Key(is_text_list),
    "api_key_env": Key(is_text),
    "model_config": Key(is_text),
    "gpu": Key(is_text),
    "server": Key(is_table),
    "baseline": Key(is_table),
    "patch": Key(is_list),
    "workload": Key(is_table, required=True),
    "warm_up": Key(is_table),
    "telemetry": Key(is_table),
    "cost": Key(is_table),
}

CONFIGURATION: dict[str, Key] = {
    "flags": Key(is_table),
    "environment": Key(is_table),
    "cpus": Key(is_cpus),
}

TABLES: dict[str, dict[str, Key]] = {
    "server": {
        "base_url": Key(is_url, required=True),
        "log_file": Key(is_text),
        "pids": Key(is_pid_list),
        "metrics_url": Key(is_url),
    },
    "baseline": CONFIGURATION,
    "workload": {
        "dataset": Key(one_of("random")),
        "input_tokens": Key(is_positive_int, required=True),
        "output_tokens": Key(is_positive_int, required=True),
        "concurrency": Key(is_list, required=True),
        "waves": Key(is_positive_int),
        "n_prompts": Key(is_positive_int),
        "endpoint": Key(one_of("/v1/completions", "/v1/chat/completions")),
        "seed": Key(is_count),
        "request_timeout_s": Key(is_positive),
        "stall_timeout_s": Key(is_positive),
    },
    "warm_up": {"concurrency": Key(is_positive_int), "blocks": Key(is_count)},
    "telemetry": {
        "interval_s": Key(is_positive),
        "metrics_interval_s": Key(is_positive),
    },
    "cost": {
        "usd_per_gpu_hour": Key(is_price),
        "n_gpus": Key(is_count),
        "usd_per_core_hour": Key(is_price),
        "n_cores": Key(is_count),
        "usd_per_gib_hour": Key(is_price),
        "memory_gib": Key(is_price),
    },
}

PATCH: dict[str, Key] = {"name": Key(is_text, required=True), **CONFIGURATION}
