"""Lines of a running server that are samples: statistics and single iterations."""

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

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
#: From its first byte on; what stands before it is the frame and the engine.
ITERATION = re.compile(
    rb"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    rb"(\d+) generation requests, (\d+) generation tokens, "
    rb"iteration elapsed time: (\d*\.?\d+) ms( \(dummy\))?"
    rb"(?:, \w+ KV cache usage: (\d*\.?\d+)%)?"
)
_decoded: Callable[[bytes], dict[str, float]] = msgspec.json.Decoder(
    dict[str, float]
).decode


class Named:
    """Numbers that stand in a row, and what each is called."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._form = b"{%b}" % b",".join(b'"%b":%%b' % n.encode() for n in names)

    def read(self, printed: tuple[bytes, ...]) -> dict[str, float]:
        """Read the numbers as ``float`` does, at a fourth of the price: as JSON.

        Raises:
            ValueError: One of them is no number.
        """
        try:
            return _decoded(self._form % printed)
        except msgspec.DecodeError:  # A leading zero or point.
            return dict(zip(self._names, map(float, printed), strict=True))


_ITERATION_NAMES = (
    "iteration",
    "context_requests",
    "context_tokens",
    "n_running",
    "generation_tokens",
    "elapsed_ms",
)
_ITERATION = Named(*_ITERATION_NAMES)
_ITERATION_WITH_USAGE = Named(*_ITERATION_NAMES, "kv_usage_pct")
_TIMING = re.compile(
    r"(?:id +(\d+) \| task +(-?\d+) \| +)?(prompt eval|eval|total) time = +"
    r"((?:\d*\.)?\d+) ms / +(\d+) (?:tokens|runs)"
)
#: A timing line of llama-server in its current form: clock, then figures.
TIMING = re.compile(
    rb"(\d+\.\d\d\.\d{3}\.\d{3}) I slot print_timing: id +(\d+) \| task +(-?\d+) \| +"
    rb"(prompt eval|eval|total) time = +(\d*\.?\d+) ms / +(\d+) tokens"
)
_TIMING_NAMES = {
    "prompt eval": ("prompt_ms", "prompt_tokens"),
    "eval": ("eval_ms", "eval_tokens"),
    "total": ("total_ms", "total_tokens"),
}
_MILLIS = {b"%03d" % n: n / 1e3 for n in range(1000)}
_MICROS = {b"%03d" % n: n / 1e6 for n in range(1000)}
_TIMINGS = {
    name.encode(): Named("slot", "task", *names)
    for name, names in _TIMING_NAMES.items()
}


def figures(text: str) -> dict[str, float]:
    """Read ``name: value unit, name: value unit, ...``; other parts are left out."""
    found: dict[str, float] = {}
    for part in text.split(", "):
        head, _, rest = part.rpartition(": ")
        name = _STATS.get(head) or _STATS.get(head.rpartition(": ")[2])
        if name is None:
            continue
        number = rest.partition(" ")[0].rstrip("%,.")
        try:
            found[name] = float(number)
        except ValueError:
            continue
    return found


def engine_stats(state: State, here: Here, found: dict[str, float]) -> None:
    """Take vLLM's periodic line, and its figures: rates, queue, cache, hits."""
    engine, engines = _ENGINE.match(here.text), _ENGINES.match(here.text)
    if engine is not None:
        found["engine"] = float(engine[1])
    elif engines is not None:
        found["n_engines"] = float(engines[1])
    state.event(here, "stats", found)
    if found.get("n_preemptions"):
        state.event(here, "preemption", {"n": found["n_preemptions"]})


def iteration_numbers(match: re.Match[bytes], engine: float) -> dict[str, float]:
    """Return the figures of one line of ``--enable-logging-iteration-details``."""
    printed = match.groups()
    if printed[7]:
        found = _ITERATION_WITH_USAGE.read((*printed[:6], printed[7]))
    else:
        found = _ITERATION.read(printed[:6])
    found["engine"] = engine
    if printed[6]:
        found["dummy"] = 1.0
    return found


def batch_numbers(found: dict[str, float], *, prefill: bool) -> dict[str, float]:
    """Return the figures of one ``Prefill batch`` or ``Decode batch`` line."""
    found["prefill"] = 1.0 if prefill else 0.0
    usage = found.pop("token_usage", None)
    if usage is not None:
        found["kv_usage_pct"] = usage * 100
    return found


def sglang_batch(state: State, here: Here, found: dict[str, float]) -> None:
    """Take one ``Prefill batch`` or ``Decode batch`` line, and its figures."""
    found = batch_numbers(found, prefill=here.text.startswith("Prefill"))
    state.event(here, "stats", found)
    if found.get("n_retracted"):
        state.event(here, "preemption", {"n": found["n_retracted"]})


def start_s(clock: bytes) -> float:
    """Return llama-server's ``minutes.seconds.millis.micros`` in seconds."""
    return _second(clock[:-8]) + _MILLIS[clock[-7:-4]] + _MICROS[clock[-3:]]


@lru_cache(maxsize=64)
def _second(clock: bytes) -> int:
    minutes, _, seconds = clock.partition(b".")
    return int(minutes) * 60 + int(seconds)


def timing_numbers(match: re.Match[bytes]) -> dict[str, float]:
    """Return the figures of a timing line that ``TIMING`` matched."""
    _, slot, task, what, in_ms, in_tokens = match.groups()
    return _TIMINGS[what].read((slot, task, in_ms, in_tokens))


def llama_timing(state: State, here: Here) -> bool:
    """Take one of llama-server's three timing lines of a request."""
    hit = _TIMING.search(here.text)
    if hit is None:
        return False
    in_ms, in_tokens = _TIMING_NAMES[hit[3]]
    found = {in_ms: float(hit[4]), in_tokens: float(hit[5])}
    if hit[1] is not None:
        found["slot"], found["task"] = float(hit[1]), float(hit[2])
    state.event(here, "stats", found)
    return True
