"""vLLM's start-up: loading, memory, graphs, readiness."""

import re

from stepscope.parse.log.rules import compiled
from stepscope.parse.log.state import Here, PassFacts, State

#: Graphs that the V1 runner captures per mode in its silent profiling pass.
PROFILED_PER_MODE = 2


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
        seconds = state.last_at_s - begun
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


BOOT_RULES = compiled(
    (r"Starting to load model", _load_begin),
    (r"Loading weights took ((?:\d*\.)?\d+) seconds", _weights_seconds),
    (
        r"Model loading took (-?(?:\d*\.)?\d+) (?:GB|GiB) ?(?:memory )?and "
        r"((?:\d*\.)?\d+) s",
        _weights,
    ),
    (r"Initializing model took", _progress),
    (r"Loading model weights", _prefetch),
    (r"Prefetching checkpoint files", _prefetch),
    (r"Filesystem type for checkpoints", _prefetch),
    (r"Using cache directory", _compile_begin),
    (r"Dynamo bytecode transform time: ((?:\d*\.)?\d+) s", _compile_begin),
    (r"Compiling a graph for", _compile_begin),
    (r"Cache the graph", _compile_begin),
    (r"Directly load", _compile_begin),
    (r"torch\.compile (?:takes|took) ((?:\d*\.)?\d+) s in total", _compile),
    (r"Initial profiling/warmup run took ((?:\d*\.)?\d+) s", _profile),
    (r"Memory profiling takes ((?:\d*\.)?\d+) seconds", _profile),
    (r"Profiling CUDA graph memory: (.*)", _graph_profile),
    (r"Running FlashInfer autotune", _autotune),
    (r"Warming up", _warmup),
    (r"JIT kernel warmup starting", _warmup),
    (r"JIT kernel warmup finished in ((?:\d*\.)?\d+)s", _warmup_done),
    (
        r"Graph capturing finished in ((?:\d*\.)?\d+) secs, took (-?(?:\d*\.)?\d+) GiB",
        _captured,
    ),
    (
        r"init engine \(profile, create kv cache, warmup model\) took "
        r"((?:\d*\.)?\d+) s",
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
