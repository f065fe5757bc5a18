"""SGLang's start-up, 0.4.6 to 0.5.23. What it calls GB is GiB."""

import re

from stepscope.parse.log.pyrepr import pairs
from stepscope.parse.log.rules import compiled
from stepscope.parse.log.state import Here, PassFacts, State
from stepscope.parse.log.vllm_boot import ready

_NAMES = {
    "tp_size": "tensor_parallel_size",
    "dp_size": "data_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "ep_size": "expert_parallel_size",
    "enable_dp_attention": "enable_dp_attention",
    "attention_backend": "attention_backend",
    "moe_runner_backend": "moe_backend",
    "moe_a2a_backend": "all2all",
    "sampling_backend": "sampler",
    "disable_radix_cache": "disable_prefix_caching",
    "disable_cuda_graph": "disable_cuda_graph",
    "cuda_graph_max_bs": "max_cudagraph_capture_size",
    "disable_overlap_schedule": "disable_overlap_schedule",
    "mem_fraction_static": "mem_fraction_static",
    "context_length": "context_length",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_running_requests": "max_running_requests",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "dtype": "dtype",
    "page_size": "block_size",
    "load_format": "load_format",
    "speculative_algorithm": "speculative_config",
}
_SIZE = re.compile(r"(?:K|V|KV) size: ((?:\d*\.)?\d+) GB")
_TOKENS = re.compile(r"#tokens: (\d+)")


def _args(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    found = pairs(match[1].replace("ServerArgs(", "", 1).rstrip(")"))
    state.args = {k: v for k, v in found.items() if v not in (None, False, "")}
    state.args_line = here.line
    for printed, name in _NAMES.items():
        if printed in found and found[printed] is not None:
            state.resolve(here, name, found[printed])
    fraction = found.get("mem_fraction_static")
    if isinstance(fraction, float):
        state.figure(here, "utilization", fraction)
    state.advance(here, "spawn")


def _free(state: State, here: Here) -> float | None:
    hit = re.search(r"avail(?:able)?[ _](?:\w+_)?mem=(-?(?:\d*\.)?\d+) GB", here.text)
    return float(hit[1]) if hit is not None else None


def _load_begin(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    if state.first_at_s is not None and state.last_at_s is not None:
        state.phase(here, "spawn", state.last_at_s - state.first_at_s)
        state.marks["load"] = state.last_at_s
    free = _free(state, here)
    if free is not None:
        state.figure(here, "free_at_start_gib", free)
    state.advance(here, "load_weights")


def _load_end(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    used = re.search(r"mem usage=(-?(?:\d*\.)?\d+) GB", here.text)
    took = re.search(r"elapsed=((?:\d*\.)?\d+) s", here.text)
    kind = re.search(r"type=(\w+)", here.text)
    free = _free(state, here)
    if used is not None:
        state.figure(here, "weights_gib", float(used[1]))
    elif free is not None:
        begin = state.process(here.frame.process).figures.get("free_at_start_gib")
        if begin is not None:
            state.figure(here, "weights_gib", round(begin - free, 2))
    if kind is not None:
        state.resolve(here, "architecture", kind[1])
    seconds = float(took[1]) if took is not None else None
    begun = state.marks.get("load")
    if seconds is None and begun is not None and state.last_at_s is not None:
        seconds = state.last_at_s - begun
    state.advance(here, "load_weights")
    state.process(here.frame.process).flags["weights_loaded"] = True
    state.anyone.flags["weights_loaded"] = True
    state.phase(here, "load_weights", seconds)


def _kv(state: State, here: Here, match: re.Match[str]) -> None:
    tokens = _TOKENS.search(here.text)
    sizes = [float(size) for size in _SIZE.findall(here.text)]
    facts = state.process(here.frame.process)
    if sizes:
        before = facts.figures.get("kv_gib", 0.0) if tokens is None else 0.0
        state.figure(here, "kv_gib", round(before + sum(sizes), 2))
    if tokens is not None:
        state.figure(here, "kv_tokens", float(tokens[1]))
    for each in (facts, state.anyone):
        each.kv_line = each.kv_line or here.line
    state.advance(here, "kv_alloc")


def _pool_end(state: State, here: Here, match: re.Match[str]) -> None:
    free = _free(state, here)
    if free is not None:
        state.figure(here, "free_at_end_gib", free)
    state.advance(here, "kv_alloc")


def _capture_begin(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "graph_capture")
    found = state.passes.setdefault("real", PassFacts())
    found.line = found.line or here.line


def _capture_sizes(state: State, here: Here, match: re.Match[str]) -> None:
    found = state.passes.setdefault("real", PassFacts())
    found.bars["decode"] = max(match[1].count(",") + 1, found.bars.get("decode", 0))


def _capture_end(state: State, here: Here, match: re.Match[str]) -> None:
    took = re.search(r"(?:Time elapsed: |elapsed=)((?:\d*\.)?\d+) s", here.text)
    used = re.search(r"mem usage=(-?(?:\d*\.)?\d+) GB", here.text)
    sizes = re.search(r"bs=\[([^\]]*)\]", here.text)
    found = state.passes.setdefault("real", PassFacts())
    found.line, found.done = here.line, True
    mode = "prefill" if "prefill" in here.text[:60] else "decode"
    n = sizes[1].count(",") + 1 if sizes is not None and sizes[1].strip() else 0
    found.bars[mode] = max(n, found.bars.get(mode, 0))
    facts = state.process(here.frame.process)
    if took is not None:  # Each rank captures all passes, and all ranks at once.
        spent = facts.figures.get("capture_s", 0.0) + float(took[1])
        state.figure(here, "capture_s", spent)
        found.seconds = max(spent, found.seconds or 0.0)
        state.phase(here, "graph_capture", found.seconds)
    if used is not None:
        total = facts.figures.get("graph_actual_gib", 0.0) + float(used[1])
        state.figure(here, "graph_actual_gib", round(total, 2))
        found.gib = max(round(total, 2), found.gib if found.gib is not None else total)
    _pool_end(state, here, match)
    state.advance(here, "graph_capture")
    facts.flags["captured"] = state.anyone.flags["captured"] = True


def _totals(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    for name, value in pairs(here.text).items():
        if name == "max_total_num_tokens" and isinstance(value, int):
            state.figure(here, "kv_tokens", float(value))
        elif name in ("chunked_prefill_size", "max_running_requests", "context_len"):
            state.resolve(here, name, value)
    free = _free(state, here)
    if free is not None and "available_cpu_mem" not in here.text:
        state.figure(here, "free_at_end_gib", free)
    state.advance(here, "kv_alloc")


def _no_graph(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "cudagraph_mode", "NONE")


def _timings(state: State, here: Here, match: re.Match[str]) -> None:
    total = re.search(r"scheduler_e2e=((?:\d*\.)?\d+)", here.text)
    if total is not None:
        state.resolve(here, "engine_init_s", float(total[1]))
    if state.last_at_s is not None:
        state.marks["engine_up"] = state.last_at_s


def _up(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    ready(state, here)


def _begin(state: State, here: Here, match: re.Match[str]) -> None:
    state.engine = "sglang"
    state.advance(here, "spawn")


def _attention(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "attention_backend", match[1])


def _retract(state: State, here: Here, match: re.Match[str]) -> None:
    state.event(here, "preemption")


SGLANG_RULES = compiled(
    (r"server_args=(.*)", _args),
    (r"Init (?:torch distributed|parallel) begin", _begin),
    (r"Load weight begin", _load_begin),
    (r"Load weight end", _load_end),
    (r"KV Cache is allocated", _kv),
    (r"(SWAKVPool|KV|Mamba|VA) (?:Cache|mem usage|upper)", _kv),
    (r"Memory pool end", _pool_end),
    (r"Capture (?:\w+ )*cuda graph begin", _capture_begin),
    (r"Capture (?:\w+ )*CUDA graph begin", _capture_begin),
    (r"Capture cuda graph bs \[([\d, ]+)\]", _capture_sizes),
    (r"Capture (?:\w+ )*cuda graph end", _capture_end),
    (r"Capture (?:\w+ )*CUDA graph end", _capture_end),
    (r"max_total_num_tokens=", _totals),
    (r"Cuda graph is disabled", _no_graph),
    (r"Engine startup timings", _timings),
    (r"Using (\S+) as attention backend", _attention),
    (r"Use (\S+) (?:attention )?backend (?:by default|as)", _attention),
    (r"The server is fired up and ready to roll", _up),
    (r"KV cache pool is full\. Retract requests", _retract),
    (r"Decode out of memory happened", _retract),
)
