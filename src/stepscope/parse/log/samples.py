"""Lines of a running server that are samples: statistics and single iterations."""

import re

from stepscope.parse.log.state import Here, State

#: Printed names of figures, as they stand before ": ", to our names.
_STATS = {
    "Avg prompt throughput": "prompt_tokens_per_s",
    "Avg generation throughput": "generation_tokens_per_s",
    "Running": "n_running",
    "Waiting": "n_waiting",
    "Pending": "n_waiting",
    "Swapped": "n_swapped",
    "Deferred": "n_deferred",
    "Preemptions": "n_preemptions",
    "GPU KV cache usage": "kv_usage_pct",
    "CPU KV cache usage": "kv_usage_pct",
    "XPU KV cache usage": "kv_usage_pct",
    "TPU KV cache usage": "kv_usage_pct",
    "Prefix cache hit rate": "prefix_hit_pct",
    "External prefix cache hit rate": "external_prefix_hit_pct",
    "MM cache hit rate": "mm_cache_hit_pct",
    "Mean acceptance length": "accept_length",
    "Avg Draft acceptance rate": "draft_acceptance_pct",
    "Accepted throughput": "accepted_tokens_per_s",
    "#running-req": "n_running",
    "#queue-req": "n_waiting",
    "#new-seq": "n_new",
    "#new-token": "prefill_tokens",
    "#cached-token": "cached_tokens",
    "#token": "n_tokens",
    "#full token": "n_tokens",
    "token usage": "token_usage",
    "full token usage": "token_usage",
    "gen throughput (token/s)": "generation_tokens_per_s",
    "input throughput (token/s)": "prompt_tokens_per_s",
    "accept len": "accept_length",
    "#retracted-req": "n_retracted",
}
_ENGINE = re.compile(r"Engine (\d+)")
_ENGINES = re.compile(r"(\d+) Engines Aggregated")
ITERATION = re.compile(
    rb"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    rb"(\d+) generation requests, (\d+) generation tokens, "
    rb"iteration elapsed time: ((?:\d*\.)?\d+) ms( \(dummy\))?"
    rb"(?:, \w+ KV cache usage: ((?:\d*\.)?\d+)%)?"
)
_TIMING = re.compile(
    r"(?:id +(\d+) \| task +(-?\d+) \| )?(prompt eval|      eval|eval|total) time = +"
    r"((?:\d*\.)?\d+) ms / +(\d+) (?:tokens|runs)"
)
TIMING = re.compile(
    rb"[\d.]{12} I slot print_timing: id +(\d+) \| task +(-?\d+) \| +"
    rb"(prompt eval|eval|total) time = +((?:\d*\.)?\d+) ms / +(\d+) tokens"
)
_TIMING_NAMES = {
    "prompt eval": ("prompt_ms", "prompt_tokens"),
    "eval": ("eval_ms", "eval_tokens"),
    "total": ("total_ms", "total_tokens"),
}


def _numbers(text: str) -> dict[str, float]:
    """Read ``name: value unit, name: value unit, ...``; other parts are left out."""
    found: dict[str, float] = {}
    for part in text.split(", "):
        head, _, value = part.rpartition(": ")
        name = _STATS.get(head) or _STATS.get(head.rpartition(": ")[2])
        if name is None:
            continue
        number = value.partition(" ")[0].rstrip("%,.")
        try:
            found[name] = float(number)
        except ValueError:
            continue
    return found


def engine_stats(state: State, here: Here) -> None:
    """Take vLLM's periodic line: rates, queue, cache, hits."""
    numbers = _numbers(here.text)
    engine, engines = _ENGINE.match(here.text), _ENGINES.match(here.text)
    if engine is not None:
        numbers["engine"] = float(engine[1])
    elif engines is not None:
        numbers["n_engines"] = float(engines[1])
    state.event(here, "stats", numbers)
    if numbers.get("n_preemptions"):
        state.event(here, "preemption", {"n": numbers["n_preemptions"]})


def spec_stats(state: State, here: Here) -> None:
    """Take vLLM's periodic line about speculative decoding."""
    state.event(here, "stats", _numbers(here.text))


def iteration(state: State, here: Here, match: re.Match[bytes], engine: int) -> None:
    """Take one line of ``--enable-logging-iteration-details``."""
    numbers = {
        "iteration": float(match[1]),
        "context_requests": float(match[2]),
        "context_tokens": float(match[3]),
        "n_running": float(match[4]),
        "generation_tokens": float(match[5]),
        "elapsed_ms": float(match[6]),
        "engine": float(engine),
    }
    if match[7]:
        numbers["dummy"] = 1.0
    if match[8]:
        numbers["kv_usage_pct"] = float(match[8])
    state.event(here, "iteration", numbers)


def sglang_batch(state: State, here: Here) -> None:
    """Take one ``Prefill batch`` or ``Decode batch`` line."""
    numbers = _numbers(here.text)
    numbers["prefill"] = 1.0 if here.text.startswith("Prefill") else 0.0
    usage = numbers.pop("token_usage", None)
    if usage is not None:
        numbers["kv_usage_pct"] = usage * 100
    state.event(here, "stats", numbers)
    if numbers.get("n_retracted"):
        state.event(here, "preemption", {"n": numbers["n_retracted"]})


def current_timing(state: State, here: Here, match: re.Match[bytes]) -> None:
    """Take a timing line that ``TIMING`` matched."""
    in_ms, in_tokens = _TIMING_NAMES[match[3].decode()]
    numbers = {
        "slot": float(match[1]),
        "task": float(match[2]),
        in_ms: float(match[4]),
        in_tokens: float(match[5]),
    }
    state.event(here, "stats", numbers)


def llama_timing(state: State, here: Here) -> bool:
    """Take one of llama-server's three timing lines of a request."""
    hit = _TIMING.search(here.text)
    if hit is None:
        return False
    in_ms, in_tokens = _TIMING_NAMES[hit[3].strip()]
    numbers = {in_ms: float(hit[4]), in_tokens: float(hit[5])}
    if hit[1] is not None:
        numbers["slot"], numbers["task"] = float(hit[1]), float(hit[2])
    state.event(here, "stats", numbers)
    return True
