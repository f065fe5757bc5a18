"""What vLLM prints of its configuration: banner, arguments, resolved settings."""

import re

from stepscope.parse.log.pyrepr import pairs
from stepscope.parse.log.rules import Handler, compiled
from stepscope.parse.log.state import Here, State, Value

#: Settings of the config line that are worth a row, by their printed names.
CONFIG_NAMES = {
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "load_format": "load_format",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "enable_expert_parallel": "enable_expert_parallel",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "speculative_config": "speculative_config",
    "disable_custom_all_reduce": "disable_custom_all_reduce",
    "seed": "seed",
}
_GRAPH_MODE = re.compile(r"'cudagraph_mode': <?(?:CUDAGraphMode\.)?(\w+)")
_MAX_CAPTURE = re.compile(r"'max_cudagraph_capture_size': (\d+)")
_COMPILE_MODE = re.compile(r"'mode': <?CompilationMode\.(\w+)")
_SIZES = re.compile(r"['\"]cudagraph_capture_sizes['\"]: ?\[([\d, ]*)\]")
_AUTOTUNE = re.compile(r"enable_flashinfer_autotune=(True|False)")


def _version(state: State, here: Here, match: re.Match[str]) -> None:
    state.version = match[1]
    state.engine = "vllm"


def _config(state: State, here: Here, match: re.Match[str]) -> None:
    _version(state, here, match)
    state.advance(here, "spawn")
    text = match[2]
    found = pairs(text)
    for printed, name in CONFIG_NAMES.items():
        if printed in found:
            state.resolve(here, name, found[printed])
    for pattern, name in (
        (_GRAPH_MODE, "cudagraph_mode"),
        (_COMPILE_MODE, "compilation_mode"),
        (_AUTOTUNE, "flashinfer_autotune"),
    ):
        hit = pattern.search(text)
        if hit is not None:
            state.resolve(here, name, hit[1])
    largest, sizes = _MAX_CAPTURE.search(text), _SIZES.search(text)
    if largest is not None:
        state.resolve(here, "max_cudagraph_capture_size", int(largest[1]))
    if sizes is not None and sizes[1].strip():
        state.resolve(here, "n_cudagraph_sizes", sizes[1].count(",") + 1)
        state.resolve(here, "cudagraph_capture_sizes", sizes[1].strip())


def _args(state: State, here: Here, match: re.Match[str]) -> None:
    _asked(state, here, pairs(match[1]))


def _all_args(state: State, here: Here, match: re.Match[str]) -> None:
    """Take the arguments that are set; vLLM 0.8 printed all of them."""
    found = pairs(match[1].rstrip(")"))
    told: dict[str, Value] = {
        k: v for k, v in found.items() if v not in (None, False, "")
    }
    for name in ("subparser", "dispatch_function", "config"):
        told.pop(name, None)
    _asked(state, here, told)


def _asked(state: State, here: Here, args: dict[str, Value]) -> None:
    state.engine = "vllm"
    state.args = args
    state.args_line = here.line
    if "gpu_memory_utilization" in state.args:
        state.resolve(
            here, "gpu_memory_utilization", state.args["gpu_memory_utilization"]
        )
    for name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "enable_prefix_caching",
        "enable_expert_parallel",
        "data_parallel_size",
        "async_scheduling",
    ):
        if name in state.args:
            state.resolve(here, name, state.args[name])


def _simple(name: str, *, number: bool = False, value: Value = None) -> Handler:
    """Build a handler that resolves one name to a value or to the first group."""

    def handler(state: State, here: Here, match: re.Match[str]) -> None:
        if value is not None:
            state.resolve(here, name, value)
        elif number:
            state.resolve(here, name, int(match[1].replace(",", "")))
        else:
            state.resolve(here, name, match[1].strip("'\" "))

    return handler


def _moe(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "moe_backend", match[1].strip("'"))
    state.resolve(here, "moe_format", match[2])


def _rank(state: State, here: Here, match: re.Match[str]) -> None:
    state.figures["world_size"] = max(
        state.figures.get("world_size", 0), float(match[1])
    )
    for name, value in re.findall(r"([A-Z]{2,4}) rank (\d+)", match[2]):
        key = f"n_{name.lower()}"
        state.figures[key] = max(state.figures.get(key, 0), float(value) + 1)
    state.resolve(here, "world_size", int(state.figures["world_size"]))
    for key, name in (("n_dp", "dp_ranks_seen"), ("n_ep", "ep_ranks_seen")):
        if state.figures.get(key, 0) > 1:
            state.resolve(here, name, int(state.figures[key]))
    state.progress(here)


def _async_off(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "async_scheduling", value=False)
    if state.args.get("async_scheduling"):
        state.is_inert(here, "--async-scheduling", here.text[:300])


def _inferred_async(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "dp_synchronization", "cpu (gloo)")
    if "async_scheduling" not in state.resolved:
        state.resolve(here, "async_scheduling", value=True)


def _eager(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "enforce_eager", value=True)
    state.resolve(here, "cudagraph_mode", "NONE")
    if "compilation_config" in state.args:
        state.is_inert(
            here,
            "--compilation-config",
            "eager mode is on, so neither compilation nor graphs are used",
        )


def _engram(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "engram", match[1])
    offload = re.search(r"cpu_offload=(True|False)", match[1])
    if offload is not None:
        state.resolve(here, "engram_cpu_offload", offload[1] == "True")
    if (
        offload is not None
        and offload[1] == "False"
        and "dp_shared_memory=True" in (match[1])
    ):
        state.is_inert(
            here,
            "--engram-config dp_shared_memory",
            "the tables lie on the GPU, so nothing is shared in host memory",
        )


def _pinned(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "engram_cpu_offload", value=True)
    size = float(match[1])
    if "shared" in match[2]:
        state.pinned_shared_gib += size
    else:
        who = here.frame.process or "?"
        state.pinned[who] = state.pinned.get(who, 0.0) + size
    state.progress(here)


def _override_graphs(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "cudagraph_mode", match[1])


def _sampler(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "sampler", here.text[:120].rstrip("."))


def _ignored(state: State, here: Here, match: re.Match[str]) -> None:
    flag = match[1].strip("`'\" ")
    if not flag.startswith("-"):
        flag = "--" + flag.replace("_", "-")
    state.is_inert(here, flag, here.text[:300])


def _rust(state: State, here: Here, match: re.Match[str]) -> None:
    state.resolve(here, "frontend", "rust")
    state.engine = "vllm"


def _prefetch_off(state: State, here: Here, match: re.Match[str]) -> None:
    size = re.search(r"checkpoint size \(((?:\d*\.)?\d+) GiB\)", here.text)
    ram = re.search(r"available RAM \(((?:\d*\.)?\d+) GiB\)", here.text)
    if size is not None:
        state.figures["checkpoint_gib"] = float(size[1])
    if ram is not None:
        state.figures["host_memory_gib"] = float(ram[1])


def _checkpoint(state: State, here: Here, match: re.Match[str]) -> None:
    state.figures["checkpoint_gib"] = float(match[1])


CONFIG_RULES = compiled(
    (r"vLLM API server version (\S+)", _version),
    (
        r"Initializing (?:a|an) (?:V\d )?LLM engine \(v([^)]+)\) with config: (.*)",
        _config,
    ),
    (r"non-default args: (.*)", _args),
    (r"args: Namespace\((.*)", _all_args),
    (r"Resolved architecture: (\S+)", _simple("architecture")),
    (r"Resolved Engram configuration: (.*)", _engram),
    (r"Using max model len (\d+)", _simple("max_model_len", number=True)),
    (
        r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)",
        _simple("max_num_batched_tokens", number=True),
    ),
    (r"Asynchronous scheduling is enabled", _simple("async_scheduling", value=True)),
    (r"Asynchronous scheduling is disabled", _async_off),
    (r"Async scheduling (?:will be|is) (?:disabled|not)", _async_off),
    (r"Disabling NCCL for DP synchronization when using async", _inferred_async),
    (
        r"Using CPU all reduce to synchronize DP padding",
        _simple("dp_synchronization", value="cpu (gloo)"),
    ),
    (r"Using (.+?) (\w+) MoE backend(?: out of potential backends: .*|\.|$)", _moe),
    (r"Using (\S+Experts) MoE backend", _simple("moe_kernel")),
    (
        r"Using (\S+) attention backend out of potential backends",
        _simple("attention_backend"),
    ),
    (
        r"Using (Flash Attention|Triton|FlashInfer|FlashMLA|Triton MLA|\w+ MLA) backend"
        r" on V1 engine",
        _simple("attention_backend"),
    ),
    (r"Using (\S+) MLA prefill backend", _simple("mla_prefill_backend")),
    (r"Using ([A-Z][A-Z0-9_]+) backend\.", _simple("attention_backend")),
    (r"Using FlashAttention version (\d+)", _simple("flash_attention", number=True)),
    (r"Using (\S+) all2all manager", _simple("all2all")),
    (r"Using (\S+) KV cache layout", _simple("kv_cache_layout")),
    (r"Using FlashInfer for top-p", _sampler),
    (r"FlashInfer top-p", _sampler),
    (r"Setting kv cache block size to (\d+)", _simple("block_size", number=True)),
    (r"Using default MoE config", _simple("moe_config", value="default (not tuned)")),
    (r"Using configuration from \S*device_name=([^,/]+?)[,.]", _simple("device_name")),
    (r"Using V2 Model Runner", _simple("model_runner", value="v2")),
    (r"Model Runner V2 requires", _simple("model_runner", value="v1")),
    (r"rank \d+ in world size (\d+) is assigned as (.*)", _rank),
    (r"Enforce eager set", _eager),
    (r"Cudagraph is disabled under eager mode", _eager),
    (
        r"VLLM_USE_BREAKABLE_CUDAGRAPH is set",
        _simple("breakable_cudagraph", value=True),
    ),
    (
        r"Auto-enabling VLLM_USE_BREAKABLE_CUDAGRAPH=1",
        _simple("breakable_cudagraph", value=True),
    ),
    (
        r"Engram table offloaded to pinned host memory: .*?((?:\d*\.)?\d+) GiB (.*)",
        _pinned,
    ),
    (
        r"Engram node-local DP group size: (\d+)",
        _simple("engram_dp_group", number=True),
    ),
    (r"Launching Rust frontend", _rust),
    (r"Auto-prefetch is disabled", _prefetch_off),
    (r"Checkpoint size: ((?:\d*\.)?\d+) GiB", _checkpoint),
    (r"Overriding cudagraph_mode (?:from \S+ )?to (\w+)", _override_graphs),
    (r"Skipping FlashInfer autotune", _simple("flashinfer_autotune", value="skipped")),
)
_OVERRIDE = re.compile(r"Overriding cudagraph_mode (?:from \S+ |\S+ )?to (\w+)")
_IGNORED = re.compile(r"(`?--[a-z][\w-]+`?)[^.]{0,80}?(?:ignored|no effect|inert)")


def read_loose(state: State, here: Here) -> bool:
    """Read what may stand anywhere in a warning: overrides and ignored flags."""
    hit = _OVERRIDE.search(here.text)
    if hit is not None:
        _override_graphs(state, here, hit)
    ignored = _IGNORED.search(here.text)
    if ignored is not None:
        _ignored(state, here, ignored)
    return hit is not None or ignored is not None
