"""llama-server's start-up. Sizes are MiB; there is no utilization to ask for."""

import re

from stepscope.parse.log.samples import llama_timing
from stepscope.parse.log.state import Here, State
from stepscope.parse.log.vllm_boot import ready

_BUFFER = re.compile(
    r"([A-Za-z_]+\d*) (model|KV|RS|compute|output) buffer size = +((?:\d*\.)?\d+) MiB"
)
_DEVICE = re.compile(r"using device (\S+) \((.+?)\) .*?(\d+) MiB free")
_LISTED = re.compile(r"- ([A-Za-z]+\d+) +: (.+?) \(\d+ MiB, (\d+) MiB free\)")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_BUILD = re.compile(r"build(?:_info)?: ?(\S+)")
_SLOTS = re.compile(r"n_slots = (\d+)(?:, n_ctx_slot = (\d+))?")
_CONTEXT = re.compile(r"n_ctx(?:_seq)? += (\d+)")
_CELLS = re.compile(r"size = +((?:\d*\.)?\d+) MiB \( *(\d+) cells")
_UBATCH = re.compile(r"n_ubatch += (\d+)")
_READY = re.compile(r"(?:server is )?listening on http|all slots are idle")
_FLASH = re.compile(r"flash_attn += (\S+)")

#: What a llama-server line about its start-up holds; others are left alone.
_WORDS = re.compile(
    r" time =|buffer size|using device|offloaded \d|build(?:_info)?:|n_slots|n_ctx|"
    r"n_ubatch|MiB free\)|"
    r"\d cells|listening on|loading model|model loaded|flash_attn|cleaning up before|"
    r"llama_model_loader|all slots are idle"
)


def read_llama(state: State, here: Here) -> bool:
    """Read one line; say whether it meant something."""
    text = here.text
    if "error" in text or "failed" in text:
        return False
    if _WORDS.search(text) is None:
        return False
    if " time =" in text and llama_timing(state, here):
        return True
    if state.engine is None and text.startswith(("load_tensors:", "llama_")):
        state.engine = "llamacpp"
    _sizes(state, here)
    _settings(state, here)
    if "loading model" in text or "llama_model_loader" in text:
        state.engine = "llamacpp"
        state.advance(here, "load_weights")
        if state.last_at_s is not None:
            state.marks.setdefault("load", state.last_at_s)
    elif "model loaded" in text:
        begun = state.marks.get("load")
        seconds = None
        if begun is not None and state.last_at_s is not None:
            seconds = state.last_at_s - begun
        state.advance(here, "load_weights")
        state.anyone.flags["weights_loaded"] = True
        state.phase(here, "load_weights", seconds)
        state.marks["engine_up"] = state.last_at_s or 0.0
    elif _READY.search(text):
        state.engine = state.engine or "llamacpp"
        ready(state, here)
    elif text.startswith(("llama_context:", "llama_new_context_with_model:")):
        state.advance(here, "kv_alloc")
    elif "cleaning up before exit" in text:
        state.shutdown_line = state.shutdown_line or here.line
    return True


def _sizes(state: State, here: Here) -> None:
    hit = _BUFFER.search(here.text)
    if hit is not None:
        gib = float(hit[3]) / 1024
        where = "host" if hit[1].startswith(("CPU", "CUDA_Host", "AMX")) else "gpu"
        kind = {"model": "weights_gib", "KV": "kv_gib", "RS": "kv_gib"}.get(
            hit[2], "activation_gib"
        )
        if where == "gpu":
            before = state.anyone.figures.get(kind, 0.0)
            state.anyone.figures[kind] = round(before + gib, 4)
        else:
            key = f"host_{kind}"
            state.figures[key] = state.figures.get(key, 0.0) + gib
        if kind == "kv_gib":
            state.advance(here, "kv_alloc")
        return
    cells = _CELLS.search(here.text)
    if cells is not None:
        state.anyone.figures["kv_tokens"] = float(cells[2])
        state.advance(here, "kv_alloc")
    device = _DEVICE.search(here.text)
    if device is not None:
        _device(state, here, device, "used")
    listed = _LISTED.search(here.text) if device is None else None
    if listed is not None and "used_devices" not in state.figures:
        _device(state, here, listed, "listed")


def _device(state: State, here: Here, match: re.Match[str], how: str) -> None:
    """Sum up the GPUs: newer builds list them all, and some say which they use."""
    state.resolve(here, "device_name", match[2])
    count = state.figures.get(f"{how}_devices", 0.0) + 1
    before = state.anyone.figures.get("free_at_start_gib", 0.0) if count > 1 else 0.0
    state.figures[f"{how}_devices"] = count
    state.resolve(here, "n_gpus", int(count))
    free = round(before + float(match[3]) / 1024, 4)
    state.anyone.figures["free_at_start_gib"] = free


def _settings(state: State, here: Here) -> None:
    offloaded = _OFFLOADED.search(here.text)
    if offloaded is not None:
        state.resolve(here, "n_gpu_layers", int(offloaded[1]))
        state.resolve(here, "n_layers", int(offloaded[2]))
    build = _BUILD.search(here.text)
    if build is not None and ("build_info" in here.text or here.text[:6] == "build:"):
        state.engine = state.engine or "llamacpp"
        state.version = build[1]
    slots = _SLOTS.search(here.text)
    if slots is not None:
        state.engine = state.engine or "llamacpp"
        state.resolve(here, "n_parallel", int(slots[1]))
        if slots[2] is not None:
            state.resolve(here, "n_ctx_per_slot", int(slots[2]))
            return
    context = _CONTEXT.search(here.text)
    if context is not None and "n_ctx_train" not in here.text:
        state.resolve(here, "n_ctx", int(context[1]))
    step = _UBATCH.search(here.text)
    if step is not None:
        state.resolve(here, "n_ubatch", int(step[1]))
    flash = _FLASH.search(here.text)
    if flash is not None:
        state.resolve(here, "flash_attn", flash[1])
