"""vLLM's start-up: loading, memory, graphs, readiness."""

import re

from stepscope.parse.log.rules import compiled
from stepscope.parse.log.state import Here, PassFacts, State

#: Graphs that the V1 runner captures per mode in its silent profiling pass.
PROFILED_PER_MODE = 2

_USAGE = {
    "weights_gib": re.compile(r"([\d.]+) GiB for weight"),
    "peak_logged_gib": re.compile(r"([\d.]+) GiB for peak activation"),
    "non_torch_gib": re.compile(r"([\d.]+) GiB for non-torch memory"),
    "consumed_gib": re.compile(r"([\d.]+) GiB for consumed memory"),
    "graph_actual_gib": re.compile(r"([\d.]+) GiB for CUDAGraph memory"),
    "kv_gib": re.compile(r"Current kv cache memory in use is ([\d.]+) GiB"),
}
_KV_BYTES = re.compile(r"Current kv cache memory in use is (\d+) bytes")
_HINTS = (
    ("fit-requested", re.compile(r"--kv-cache-memory=(\d+)`?[^,]*? to fit into req")),
    ("fill-device", re.compile(r"--kv-cache-memory=(\d+)`?[^,]*? to fully utilize")),
)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _load_begin(state: State, here: Here, match: re.Match[str]) -> None:
    if state.first_at_s is not None and state.last_at_s is not None:
        state.phase(here, "spawn", state.last_at_s - state.first_at_s)
    state.advance(here, "load_weights")


def _weights_seconds(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "load_weights")
    state.phase(here, "load_weights", float(match[1]))


def _weights(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "weights_gib", float(match[1]))
    state.advance(here, "load_weights")
    state.process(here.frame.process).flags["weights_loaded"] = True
    state.anyone.flags["weights_loaded"] = True
    state.phase(here, "load_weights", float(match[2]))


def _progress(state: State, here: Here, match: re.Match[str]) -> None:
    state.progress(here)


def _prefetch(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "load_weights")


def _compile_begin(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "compile")


def _compile(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "compile")
    state.phase(here, "compile", float(match[1]))


def _profile(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "profile")
    state.phase(here, "profile", float(match[1]))


def _graph_profile(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "graph_profile")
    modes = re.findall(r"([A-Z_]+)=(\d+)", match[1])
    found = state.passes.setdefault("profile", PassFacts())
    found.line = found.line or here.line
    for mode, n in modes:
        found.bars[mode] = min(PROFILED_PER_MODE, int(n))
    if state.last_at_s is not None:
        state.marks.setdefault("graph_profile", state.last_at_s)


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
    found = re.search(r"gpu-memory-utilization from ([\d.]+) to ([\d.]+)", here.text)
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


def _auto_fit(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "max_model_len", int(match[1]))


def _autotune(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "flashinfer_autotune", value=True)
    state.advance(here, "kernel_warmup")
    state.event(here, "autotune")


def _warmup(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "kernel_warmup")


def _warmup_done(state: State, here: Here, match: re.Match[str]) -> None:
    state.advance(here, "kernel_warmup")
    state.phase(here, "kernel_warmup", float(match[1]))


def _purpose(state: State, here: Here) -> str:
    own = state.process(here.frame.process)
    seen = own.kv_line is not None or (
        state.anyone.kv_line is not None
        and (here.frame.process is None or not own.figures.get("kv_gib"))
    )
    return "real" if seen else "profile"


def capture_bar(state: State, here: Here, mode: str, done: int, total: int) -> None:
    """Take a bar of graph capture: ``mode`` with ``done`` of ``total`` graphs."""
    purpose = _purpose(state, here)
    found = state.passes.setdefault(purpose, PassFacts())
    found.line = found.line or here.line
    found.bars[mode] = max(done, found.bars.get(mode, 0))
    stage = "graph_capture" if purpose == "real" else "graph_profile"
    state.advance(here, stage)


def _close_pass(state: State, here: Here) -> None:
    found = state.passes.get("profile")
    if found is not None:
        found.done = True


def _captured(state: State, here: Here, match: re.Match[str]) -> None:
    seconds, gib = float(match[1]), float(match[2])
    purpose = _purpose(state, here)
    found = state.passes.setdefault(purpose, PassFacts())
    found.seconds = max(seconds, found.seconds or 0.0)
    found.gib = max(gib, found.gib if found.gib is not None else gib)
    found.line = here.line
    found.done = True
    if purpose == "profile":
        state.advance(here, "graph_profile")
        state.phase(here, "graph_profile", seconds)
        return
    state.figure(here, "graph_actual_gib", gib)
    facts = state.process(here.frame.process)
    begun = facts.kv_at_s if facts.kv_at_s is not None else state.anyone.kv_at_s
    if begun is not None and state.last_at_s is not None:
        before = state.last_at_s - seconds - begun
        if "kernel_warmup" not in state.phases and before >= 0:
            state.phase(here, "kernel_warmup", before)
            known = state.phases["kernel_warmup"]
            state.phases["kernel_warmup"] = type(known)(
                name=known.name,
                seconds=known.seconds,
                process=known.process,
                line=known.line,
                ends_at_s=state.last_at_s - seconds,
            )
    state.advance(here, "graph_capture")
    facts.flags["captured"] = state.anyone.flags["captured"] = True
    state.phase(here, "graph_capture", seconds)


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
    facts.flags["peak_contains_estimate"] = "consumed memory" in text
    for purpose, pattern in _HINTS:
        found = pattern.search(text)
        if found is not None:
            state.suggest(here, "--kv-cache-memory", int(found[1]), purpose)
    state.advance(here, "sampler_warmup")


def _initial_free(state: State, here: Here, match: re.Match[str]) -> None:
    state.figure(here, "free_at_start_gib", float(match[1]))
    requested = re.search(r"([\d.]+) \(util\), ([\d.]+) GiB", here.text)
    older = re.search(r"requested GPU memory: ([\d.]+) GiB", here.text)
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


def _engine_up(state: State, here: Here, match: re.Match[str]) -> None:
    state.progress(here)
    state.resolve(here, "engine_init_s", float(match[1]))
    if state.last_at_s is not None:
        state.marks["engine_up"] = state.last_at_s


def ready(state: State, here: Here) -> None:
    """Note that the server serves."""
    if state.ready_line is not None:
        return
    state.ready_line = here.line
    state.ready_at_s = state.last_at_s
    state.event(here, "ready")
    begun = state.marks.get("engine_up")
    seconds = None
    if begun is not None and state.last_at_s is not None:
        seconds = max(0.0, state.last_at_s - begun)
    state.phase(here, "ready", seconds)
    state.advance(here, "ready")


def _ready(state: State, here: Here, match: re.Match[str]) -> None:
    if state.engine == "sglang":
        return  # It still warms up; its own line comes after that.
    ready(state, here)


def _starting(state: State, here: Here, match: re.Match[str]) -> None:
    state.progress(here)
    state.marks["starting_line"] = float(here.line)


def _stall(state: State, here: Here, match: re.Match[str]) -> None:
    state.event(here, "stall-hint")
    state.n_stall_hints += 1


def _jit(state: State, here: Here, match: re.Match[str]) -> None:
    state.event(here, "jit")


def _padding(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "kv_padding_pct", float(match[1]))


BOOT_RULES = compiled(
    (r"Starting to load model", _load_begin),
    (r"Loading weights took ([\d.]+) seconds", _weights_seconds),
    (r"Model loading took (-?[\d.]+) (?:GB|GiB) ?(?:memory )?and ([\d.]+) s", _weights),
    (r"Initializing model took", _progress),
    (r"Loading model weights", _prefetch),
    (r"Prefetching checkpoint files", _prefetch),
    (r"Filesystem type for checkpoints", _prefetch),
    (r"Using cache directory", _compile_begin),
    (r"Dynamo bytecode transform time: ([\d.]+) s", _compile_begin),
    (r"Compiling a graph for", _compile_begin),
    (r"Cache the graph", _compile_begin),
    (r"Directly load", _compile_begin),
    (r"torch\.compile (?:takes|took) ([\d.]+) s in total", _compile),
    (r"Initial profiling/warmup run took ([\d.]+) s", _profile),
    (r"Memory profiling takes ([\d.]+) seconds", _profile),
    (
        r"the current vLLM instance can use total_gpu_memory \(([\d.]+)GiB\) x "
        r"gpu_memory_utilization \(([\d.]+)\) = ([\d.]+)GiB",
        _v0_total,
    ),
    (
        r"model weights take (-?[\d.]+)GiB; non_torch_memory takes (-?[\d.]+)GiB; "
        r"PyTorch activation peak memory takes (-?[\d.]+)GiB; the rest of the memory "
        r"reserved for KV Cache is (-?[\d.]+)GiB",
        _v0_parts,
    ),
    (r"Profiling CUDA graph memory: (.*)", _graph_profile),
    (r"Estimated CUDA graph memory: (-?[\d.]+) GiB", _estimate),
    (
        r"CUDA graph memory profiling is enabled.*?gpu-memory-utilization=([\d.]+) is "
        r"equivalent to --gpu-memory-utilization=(-?[\d.]+) .*? to ([\d.]+\d)",
        _estimate_on,
    ),
    (r"CUDA graph memory profiling is disabled", _estimate_off),
    (r"In v0\.19, CUDA graph memory profiling will be", _estimate_off),
    (r"CUDA graph pool memory: (-?[\d.]+) GiB \(actual\), (-?[\d.]+) GiB", _pool),
    (r"Available KV cache memory: (-?[\d.]+) GiB", _kv_gib),
    (r"Initial free memory:? ([\d.]+) GiB, reserved ([\d.]+) ?GiB", _kv_fixed),
    (r"Initial free memory: ([\d.]+) GiB", _initial_free),
    (
        r"(GPU|CPU|XPU|TPU|HPU) KV cache size: ([\d,]+) tokens(?:, Maximum concurrency "
        r"for ([\d,]+) tokens per request: ([\d.,]+)x)?",
        _kv_tokens,
    ),
    (r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.,]+)x", _concurrency),
    (r"# (?:GPU|cuda|cpu) blocks: ([\d,]+)", _blocks),
    (r"Add \d+ padding layers, may waste at most ([\d.]+)%", _padding),
    (r"Auto-fit max_model_len: reduced from \d+ to (\d+)", _auto_fit),
    (r"Applying persisted startup plan", _plan),
    (r"Running FlashInfer autotune", _autotune),
    (r"Warming up", _warmup),
    (r"JIT kernel warmup starting", _warmup),
    (r"JIT kernel warmup finished in ([\d.]+)s", _warmup_done),
    (r"Graph capturing finished in ([\d.]+) secs, took (-?[\d.]+) GiB", _captured),
    (
        r"Free memory on device \(([\d.]+)/([\d.]+) GiB\) on startup\. Desired GPU memory "
        r"utilization is \(([\d.]+), ([\d.]+) GiB\)",
        _budget,
    ),
    (
        r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s",
        _engine_up,
    ),
    (r"Starting vLLM (?:API )?server", _starting),
    (r"Application startup complete", _ready),
    (r"No available shared memory broadcast block found", _stall),
    (
        r"(Triton|TileLang|CuTeDSL|CUTLASS|DeepGEMM|FlashInfer|Kernel|CUDA)"
        r" (?:kernel )?JIT compilation during inference",
        _jit,
    ),
)
