"""vLLM's memory lines: the request, its parts, the cache and its tokens."""

import re

from stepscope.parse.log.rules import compiled
from stepscope.parse.log.state import Here, PassFacts, State

_USAGE = {
    "weights_gib": re.compile(r"((?:\d*\.)?\d+) GiB for weight"),
    "peak_logged_gib": re.compile(r"((?:\d*\.)?\d+) GiB for peak activation"),
    "non_torch_gib": re.compile(r"((?:\d*\.)?\d+) GiB for non-torch memory"),
    "consumed_gib": re.compile(r"((?:\d*\.)?\d+) GiB for consumed memory"),
    "graph_actual_gib": re.compile(r"((?:\d*\.)?\d+) GiB for CUDAGraph memory"),
    "kv_gib": re.compile(r"Current kv cache memory in use is ((?:\d*\.)?\d+) GiB"),
}
_KV_BYTES = re.compile(r"Current kv cache memory in use is (\d+) bytes")
_HINTS = (
    ("fit-requested", re.compile(r"--kv-cache-memory=(\d+)`?[^,]*? to fit into req")),
    ("fill-device", re.compile(r"--kv-cache-memory=(\d+)`?[^,]*? to fully utilize")),
)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _estimate(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "graph_estimate_gib", float(match[1]))
    state.advance(here, "graph_profile")
    begun = state.marks.get("graph_profile")
    found = state.passes.setdefault("profile", PassFacts())
    found.gib = max(float(match[1]), found.gib if found.gib is not None else -1e9)
    found.line = found.line or here.line
    if begun is not None and state.last_at_s is not None:
        seconds = state.last_at_s - begun
        found.seconds = max(seconds, found.seconds or 0.0)
        state.phase(here, "graph_profile", seconds)


def _estimate_on(state: State, here: Here, match: re.Match[str]) -> None:
    state.process(here.frame.process).flags["estimate_applied"] = True
    now, without, same = float(match[1]), float(match[2]), float(match[3])
    state.figure(here, "utilization", now)
    state.figure(here, "utilization_without_graphs", without)
    state.suggest(here, "--gpu-memory-utilization", same, "same-kv")


def _estimate_off(state: State, here: Here, match: re.Match[str]) -> None:
    state.process(here.frame.process).flags["estimate_applied"] = False
    found = re.search(
        r"gpu-memory-utilization from ((?:\d*\.)?\d+) to ((?:\d*\.)?\d+)", here.text
    )
    if found is not None:
        now, same = float(found[1]), float(found[2])
        state.figure(here, "utilization", now)
        state.figure(here, "utilization_without_graphs", 2 * now - same)


def _kv_gib(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "kv_gib", float(match[1]))
    _close_pass(state, here)
    state.advance(here, "kv_alloc")
    facts = state.process(here.frame.process)
    for each in (facts, state.anyone):
        each.kv_line = each.kv_line or here.line
        each.kv_at_s = state.last_at_s
    state.marks.setdefault("kv_alloc", state.last_at_s or 0.0)


def _kv_fixed(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "free_at_start_gib", float(match[1]))
    state.resolve(here, "kv_cache_memory", "fixed, profiling skipped")
    state.figure(here, "kv_gib", float(match[2]))
    _kv_gib(state, here, match=re.match(r"(.*)", match[2]) or match)


def _kv_tokens(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "kv_tokens", float(_number(match[2])))
    state.resolve(here, "kv_device", match[1])
    if match[3] is not None:
        state.figure(here, "kv_request_tokens", float(_number(match[3])))
        state.figure(here, "max_concurrency", float(match[4].replace(",", "")))
    state.advance(here, "kv_alloc")
    facts = state.process(here.frame.process)
    for each in (facts, state.anyone):
        each.kv_line = each.kv_line or here.line
        each.kv_at_s = state.last_at_s
    begun = state.marks.get("kv_alloc")
    if begun and state.last_at_s is not None:
        state.phase(here, "kv_alloc", state.last_at_s - begun)


def _concurrency(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "kv_request_tokens", float(_number(match[1])))
    state.figure(here, "max_concurrency", float(match[2].replace(",", "")))


def _blocks(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "n_blocks", float(_number(match[1])))
    state.advance(here, "kv_alloc")
    state.anyone.kv_line = state.anyone.kv_line or here.line


def _override(state: State, here: Here, match: re.Match[str]) -> None:
    if state.process(here.frame.process).kv_line is None and (
        state.anyone.kv_line is None
    ):
        return  # The profiling pass prints it too, with figures of its own.
    counted, kept = int(match[1]), int(match[2])
    if counted > 0:
        state.resolve(here, "n_blocks", counted)
        state.resolve(here, "blocks_override", kept)


def _auto_fit(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "max_model_len", int(match[1]))


def _close_pass(state: State, here: Here) -> None:
    found = state.passes.get("profile")
    if found is not None:
        found.done = True


def _pool(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "graph_actual_gib", float(match[1]))
    state.figure(here, "graph_estimate_gib", float(match[2]))


def _budget(state: State, here: Here, match: re.Match[str]) -> None:
    text = here.text
    state.figure(here, "free_at_start_gib", float(match[1]))
    state.figure(here, "device_gib", float(match[2]))
    state.figure(here, "utilization", float(match[3]))
    state.figure(here, "requested_gib", float(match[4]))
    for name, pattern in _USAGE.items():
        found = pattern.search(text)
        if found is not None:
            state.figure(here, name, float(found[1]))
    in_bytes = _KV_BYTES.search(text)
    if in_bytes is not None:
        state.figure(here, "kv_gib", round(int(in_bytes[1]) / (1 << 30), 2))
    facts = state.process(here.frame.process)
    # Release 0.18 has the words of 0.19 and the sum of 0.27.
    of_018 = (state.version or "").startswith("0.18.")
    facts.flags["peak_contains_estimate"] = "consumed memory" in text or of_018
    for purpose, pattern in _HINTS:
        found = pattern.search(text)
        if found is not None:
            state.suggest(here, "--kv-cache-memory", int(found[1]), purpose)
    state.advance(here, "sampler_warmup")


def _initial_free(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "free_at_start_gib", float(match[1]))
    requested = re.search(r"((?:\d*\.)?\d+) \(util\), ((?:\d*\.)?\d+) GiB", here.text)
    older = re.search(r"requested GPU memory: ((?:\d*\.)?\d+) GiB", here.text)
    if requested is not None:
        state.figure(here, "utilization", float(requested[1]))
        state.figure(here, "requested_gib", float(requested[2]))
    elif older is not None:
        state.figure(here, "requested_gib", float(older[1]))


def _v0_total(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "device_gib", float(match[1]))
    state.figure(here, "utilization", float(match[2]))
    state.figure(here, "requested_gib", float(match[3]))
    state.advance(here, "profile")


def _v0_parts(state: State, here: Here, match: re.Match[str]) -> None:
    for name, group in (
        ("weights_gib", 1),
        ("non_torch_gib", 2),
        ("peak_logged_gib", 3),
        ("kv_gib", 4),
    ):
        state.figure(here, name, float(match[group]))
    state.advance(here, "kv_alloc")
    state.anyone.kv_line = state.anyone.kv_line or here.line


def _plan(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "kv_cache_memory", "from a persisted start-up plan")


def _padding(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "kv_padding_pct", float(match[1]))


MEMORY_RULES = compiled(
    (
        r"the current vLLM instance can use total_gpu_memory \(((?:\d*\.)?\d+)GiB\) x "
        r"gpu_memory_utilization \(((?:\d*\.)?\d+)\) = ((?:\d*\.)?\d+)GiB",
        _v0_total,
    ),
    (
        r"model weights take (-?(?:\d*\.)?\d+)GiB; non_torch_memory takes "
        r"(-?(?:\d*\.)?\d+)GiB; "
        r"PyTorch activation peak memory takes (-?(?:\d*\.)?\d+)GiB; the rest "
        r"of the memory "
        r"reserved for KV Cache is (-?(?:\d*\.)?\d+)GiB",
        _v0_parts,
    ),
    (r"Estimated CUDA graph memory: (-?(?:\d*\.)?\d+) GiB", _estimate),
    (
        r"CUDA graph memory profiling is "
        r"enabled.*?gpu-memory-utilization=((?:\d*\.)?\d+) "
        r"is equivalent to --gpu-memory-utilization=(-?(?:\d*\.)?\d+) .*? to "
        r"([\d.]+\d)",
        _estimate_on,
    ),
    (r"CUDA graph memory profiling is disabled", _estimate_off),
    (r"In v0\.19, CUDA graph memory profiling will be", _estimate_off),
    (
        r"CUDA graph pool memory: (-?(?:\d*\.)?\d+) GiB \(actual\), "
        r"(-?(?:\d*\.)?\d+) GiB",
        _pool,
    ),
    (r"Available KV cache memory: (-?(?:\d*\.)?\d+) GiB", _kv_gib),
    (
        r"Initial free memory:? ((?:\d*\.)?\d+) GiB, reserved ((?:\d*\.)?\d+) ?GiB",
        _kv_fixed,
    ),
    (r"Initial free memory: ((?:\d*\.)?\d+) GiB", _initial_free),
    (
        r"(GPU|CPU|XPU|TPU|HPU) KV cache size: (\d[\d,]*) tokens"
        r"(?:, Maximum concurrency for (\d[\d,]*) tokens per request: "
        r"(\d[\d,]*(?:\.\d+)?)x)?",
        _kv_tokens,
    ),
    (
        r"Maximum concurrency for (\d[\d,]*) tokens per request: (\d[\d,]*(?:\.\d+)?)x",
        _concurrency,
    ),
    (r"# (?:GPU|cuda|cpu) blocks: (\d[\d,]*)", _blocks),
    (r"Add \d+ padding layers, may waste at most ((?:\d*\.)?\d+)%", _padding),
    (
        r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)",
        _override,
    ),
    (r"Auto-fit max_model_len: reduced from \d+ to (\d+)", _auto_fit),
    (r"Applying persisted startup plan", _plan),
    (
        r"Free memory on device \(((?:\d*\.)?\d+)/((?:\d*\.)?\d+) GiB\) on startup\. "
        r"Desired GPU memory utilization is \(((?:\d*\.)?\d+), ((?:\d*\.)?\d+) GiB\)",
        _budget,
    ),
)
