"""Lines of a running server that are samples: statistics and single iterations."""

import re

from stepscope.parse.log.state import Here, State

_STATS = {
    "prompt_tokens_per_s": re.compile(r"Avg prompt throughput: ([\d.]+)"),
    "generation_tokens_per_s": re.compile(r"Avg generation throughput: ([\d.]+)"),
    "n_running": re.compile(r"Running: (\d+) reqs"),
    "n_waiting": re.compile(r"(?:Waiting|Pending): (\d+) reqs"),
    "n_swapped": re.compile(r"Swapped: (\d+) reqs"),
    "n_deferred": re.compile(r"Deferred: (\d+) reqs"),
    "n_preemptions": re.compile(r"Preemptions: (\d+)"),
    "kv_usage_pct": re.compile(r"KV cache usage: ([\d.]+)%"),
    "prefix_hit_pct": re.compile(r"[,.] ?Prefix cache hit rate: (?:GPU: )?([\d.]+)%"),
    "external_prefix_hit_pct": re.compile(r"External prefix cache hit rate: ([\d.]+)%"),
    "mm_cache_hit_pct": re.compile(r"MM cache hit rate: ([\d.]+)%"),
}
_ENGINE = re.compile(r"Engine (\d+)")
_ENGINES = re.compile(r"(\d+) Engines Aggregated")
_SPEC = {
    "accept_length": re.compile(r"Mean acceptance length: ([\d.]+)"),
    "draft_acceptance_pct": re.compile(r"draft acceptance rate: ([\d.]+)%", re.I),
    "accepted_tokens_per_s": re.compile(r"Accepted throughput: ([\d.]+)"),
}
ITERATION = re.compile(
    rb"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    rb"(\d+) generation requests, (\d+) generation tokens, "
    rb"iteration elapsed time: ([\d.]+) ms( \(dummy\))?"
    rb"(?:, \w+ KV cache usage: ([\d.]+)%)?"
)
_BATCH = {
    "n_running": re.compile(r"#running-req: (\d+)"),
    "n_waiting": re.compile(r"#queue-req: (\d+)"),
    "n_new": re.compile(r"#new-seq: (\d+)"),
    "prefill_tokens": re.compile(r"#new-token: (\d+)"),
    "cached_tokens": re.compile(r"#cached-token: (\d+)"),
    "n_tokens": re.compile(r"#token: (\d+)"),
    "token_usage": re.compile(r"token usage: ([\d.]+)"),
    "generation_tokens_per_s": re.compile(r"gen throughput \(token/s\): ([\d.]+)"),
    "prompt_tokens_per_s": re.compile(r"input throughput \(token/s\): ([\d.]+)"),
    "accept_length": re.compile(r"accept len: ([\d.]+)"),
    "n_retracted": re.compile(r"#retracted-req: (\d+)"),
}
_TIMING = re.compile(
    r"(?:id +(\d+) \| task +(-?\d+) \| )?(prompt eval|      eval|eval|total) time = +"
    r"([\d.]+) ms / +(\d+) (?:tokens|runs)"
)
_TIMING_NAMES = {
    "prompt eval": ("prompt_ms", "prompt_tokens"),
    "eval": ("eval_ms", "eval_tokens"),
    "total": ("total_ms", "total_tokens"),
}


def _numbers(patterns: dict[str, re.Pattern[str]], text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, pattern in patterns.items():
        hit = pattern.search(text)
        if hit is not None:
            found[name] = float(hit[1])
    return found


def engine_stats(state: State, here: Here) -> None:
    """Take vLLM's periodic line: rates, queue, cache, hits."""
    numbers = _numbers(_STATS, here.text)
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
    state.event(here, "stats", _numbers(_SPEC, here.text))


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
    numbers = _numbers(_BATCH, here.text)
    numbers["prefill"] = 1.0 if here.text.startswith("Prefill") else 0.0
    usage = numbers.pop("token_usage", None)
    if usage is not None:
        numbers["kv_usage_pct"] = usage * 100
    state.event(here, "stats", numbers)
    if numbers.get("n_retracted"):
        state.event(here, "preemption", {"n": numbers["n_retracted"]})


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
