"""The form of a recipe: tables, keys, types, defaults live in the records.

One place to add a key. A check returns None for a good value and otherwise says what
is expected.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

Check = Callable[[object], str | None]

#: Nothing in a recipe counts higher; beyond it a number is a slip of the hand.
MOST = 1_000_000


def is_text(value: object) -> str | None:
    """Accept a non-empty string of one line."""
    if isinstance(value, str) and value.strip() and value.isprintable():
        return None
    return "text in one line"


def is_text_list(value: object) -> str | None:
    """Accept a non-empty list of non-empty strings."""
    if isinstance(value, list) and value and all(is_text(v) is None for v in value):
        return None
    return "a list of texts"


def is_command(value: object) -> str | None:
    """Accept a path, or the words of a command as a list."""
    if isinstance(value, list):
        return is_text_list(value)
    if is_text(value) is None and len(str(value).split()) == 1:
        return None
    return 'a path, or a list of words such as ["python3", "-m", "vllm"]'


def is_flag(value: object) -> str | None:
    """Accept true or false."""
    return None if isinstance(value, bool) else "true or false"


def is_positive_int(value: object) -> str | None:
    """Accept a whole number from 1 to ``MOST``."""
    return None if _whole(value, 1, MOST) else f"a whole number from 1 to {MOST}"


def is_positive_int_list(value: object) -> str | None:
    """Accept a non-empty list of whole numbers from 1 to ``MOST``."""
    if isinstance(value, list) and value and all(_whole(v, 1, MOST) for v in value):
        return None
    return f"a list of whole numbers from 1 to {MOST}"


def is_steps(value: object) -> str | None:
    """Accept a number of decode steps whose trace can still be read."""
    return None if _whole(value, 1, 2000) else "a whole number from 1 to 2000"


def is_count(value: object) -> str | None:
    """Accept a whole number from 0 to ``MOST``."""
    return None if _whole(value, 0, MOST) else f"a whole number from 0 to {MOST}"


def is_few(value: object) -> str | None:
    """Accept a whole number from 1 to 100."""
    return None if _whole(value, 1, 100) else "a whole number from 1 to 100"


def is_retries(value: object) -> str | None:
    """Accept a whole number from 0 to 5."""
    return None if _whole(value, 0, 5) else "a whole number from 0 to 5"


def is_blocks(value: object) -> str | None:
    """Accept a whole number from 0 to 1000."""
    return None if _whole(value, 0, 1000) else "a whole number from 0 to 1000"


def is_port(value: object) -> str | None:
    """Accept a TCP port."""
    return None if _whole(value, 1, 65535) else "a port from 1 to 65535"


def is_pid_list(value: object) -> str | None:
    """Accept a list of process ids."""
    if isinstance(value, list) and all(_whole(v, 1, 1 << 22) for v in value):
        return None
    return "a list of process ids"


def is_seconds(value: object) -> str | None:
    """Accept seconds above 0, at most a week."""
    number = _number(value)
    if number is not None and 0 < number <= 7 * 86400:
        return None
    return "seconds above 0 and at most a week"


def is_interval(value: object) -> str | None:
    """Accept a sampling interval, seconds."""
    number = _number(value)
    if number is not None and 0.01 <= number <= 60:
        return None
    return "seconds from 0.01 to 60"


def is_amount(value: object) -> str | None:
    """Accept a number of at least 0."""
    number = _number(value)
    if number is not None and number >= 0:
        return None
    return "a number of at least 0"


def is_above_zero(value: object) -> str | None:
    """Accept a number above 0."""
    number = _number(value)
    return None if number is not None and number > 0 else "a number above 0"


def is_share(value: object) -> str | None:
    """Accept a number from 0 to below 1."""
    number = _number(value)
    return None if number is not None and 0 <= number < 1 else "a number from 0 to 1"


def is_url(value: object) -> str | None:
    """Accept an http or https address with a host."""
    try:
        parts = urlsplit(value if isinstance(value, str) else "")
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
        # Reading the port checks it.
        good = good and parts.port != 0 and is_text(value) is None
    except ValueError:
        good = False
    return None if good else 'an address such as "http://127.0.0.1:8000"'


def is_list(value: object) -> str | None:
    """Accept a non-empty list."""
    return None if isinstance(value, list) and value else "a non-empty list"


def is_table(value: object) -> str | None:
    """Accept a table."""
    return None if isinstance(value, dict) else "a table"


def is_cpus(value: object) -> str | None:
    """Accept a processor list such as ``0-3,8``."""
    if isinstance(value, str) and cpu_set(value) is not None:
        return None
    return 'a list of processors such as "0-3,8"'


def one_of(*words: str) -> Check:
    """Return a check that accepts one of ``words``."""

    def check(value: object) -> str | None:
        return None if value in words else "one of " + ", ".join(words)

    return check


def some_of(*words: str) -> Check:
    """Return a check that accepts a list of ``words``."""

    def check(value: object) -> str | None:
        if isinstance(value, list) and all(v in words for v in value):
            return None
        return "a list of " + ", ".join(words)

    return check


def cpu_set(text: str) -> frozenset[int] | None:
    """Return the processors that ``0-3,8`` names; None where it names none."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = [low, high] if dash else [low, low]
        # No machine numbers its processors with more digits; int() of more is slow.
        if not all(e.isascii() and e.isdigit() and len(e) <= 4 for e in ends):
            return None
        first, last = int(ends[0]), int(ends[1])
        if last < first:
            return None
        found.update(range(first, last + 1))
    return frozenset(found)


def _whole(value: object, low: int, high: int) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 1 << 53:
        return None
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a table."""

    check: Check
    required: bool = False


def is_capture(value: object) -> str | None:
    """Accept a table, or a list of what to capture."""
    if isinstance(value, dict) or some_of(*CAPTURES)(value) is None:
        return None
    return f"a table, or a list of {', '.join(CAPTURES)}"


def is_explain(value: object) -> str | None:
    """Accept true or false, or a table of what it may take."""
    if isinstance(value, bool | dict):
        return None
    return "true, false, or a table with minutes and usd"


DATASETS = (
    "random", "sharegpt", "custom", "conversations", "mooncake", "timed_trace",
    "burstgpt",
)  # fmt: skip
#: ``poisson`` is ``gamma`` with burstiness 1.
ARRIVALS = ("constant", "poisson", "gamma", "linear", "exponential", "recorded")
ENGINES = ("vllm", "sglang", "llamacpp", "url", "embedded")
CAPTURES = ("trace", "iteration-details")

TOP: dict[str, Key] = {
    "name": Key(is_text, required=True),
    "engine": Key(one_of(*ENGINES), required=True),
    "model": Key(is_text),
    "served_model_name": Key(is_text),
    "model_config": Key(is_text),
    "gpu": Key(is_text),
    "executable": Key(is_command),
    "host": Key(is_text),
    "port": Key(is_port),
    "n_launches": Key(is_few),
    "readiness_timeout_s": Key(is_seconds),
    "capture": Key(is_capture),
    "explain": Key(is_explain),
    "api_key_env": Key(is_text),
    "load_workers": Key(one_of("local", "ray")),
    "server": Key(is_table),
    "baseline": Key(is_table),
    "patch": Key(is_list),
    "workload": Key(is_table, required=True),
    "warm_up": Key(is_table),
    "telemetry": Key(is_table),
    "boot": Key(is_table),
    "cost": Key(is_table),
}

CONFIGURATION: dict[str, Key] = {
    "flags": Key(is_table),
    "environment": Key(is_table),
    "cpus": Key(is_cpus),
}

PATCH: dict[str, Key] = {"name": Key(is_text, required=True), **CONFIGURATION}

TABLES: dict[str, dict[str, Key]] = {
    "server": {
        "base_url": Key(is_url, required=True),
        "engine": Key(one_of("vllm", "sglang", "llamacpp")),
        "log_file": Key(is_text),
        "pids": Key(is_pid_list),
        "metrics_url": Key(is_url),
    },
    "baseline": CONFIGURATION,
    "workload": {
        "dataset": Key(one_of(*DATASETS)),
        "dataset_path": Key(is_text),
        "endpoint": Key(
            one_of(
                "/v1/completions", "/v1/chat/completions", "/completion", "/generate"
            )
        ),
        "input_tokens": Key(is_positive_int),
        "output_tokens": Key(is_positive_int),
        "input_range": Key(is_share),
        "output_range": Key(is_share),
        "prefix_tokens": Key(is_count),
        "concurrency": Key(is_list),
        "request_rate": Key(is_list),
        "arrivals": Key(one_of(*ARRIVALS)),
        "burstiness": Key(is_above_zero),
        "duration_s": Key(is_seconds),
        "max_concurrency": Key(is_positive_int),
        "ramp_start_rps": Key(is_amount),
        "ramp_end_rps": Key(is_amount),
        "waves": Key(is_positive_int),
        "n_prompts": Key(is_positive_int),
        "seed": Key(is_count),
        "ignore_eos": Key(is_flag),
        "temperature": Key(is_amount),
        "request_timeout_s": Key(is_seconds),
        "stall_timeout_s": Key(is_seconds),
        "total_timeout_s": Key(is_seconds),
    },
    "warm_up": {
        "concurrency": Key(is_positive_int),
        "blocks": Key(is_blocks),
        "max_blocks": Key(is_blocks),
    },
    "boot": {"retry": Key(is_retries)},
    "explain": {"minutes": Key(is_above_zero), "usd": Key(is_above_zero)},
    "telemetry": {
        "interval_s": Key(is_interval),
        "metrics_interval_s": Key(is_interval),
    },
    "capture": {
        "iteration_details": Key(is_flag),
        "concurrency": Key(is_positive_int_list),
        "configurations": Key(is_text_list),
        "steps": Key(is_steps),
        "seconds": Key(is_seconds),
        "stop_timeout_s": Key(is_seconds),
        "tool": Key(one_of("torch", "nsys")),
    },
    "cost": {
        "usd_per_gpu_hour": Key(is_amount),
        "n_gpus": Key(is_count),
        "usd_per_core_hour": Key(is_amount),
        "n_cores": Key(is_count),
        "usd_per_gib_hour": Key(is_amount),
        "memory_gib": Key(is_amount),
    },
}
