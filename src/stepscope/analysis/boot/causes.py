"""What the first failure means. The text alone does not say: its phase does."""

from stepscope.run.serverlog import Failure, ServerLog

#: Functions in a traceback and the phase that they speak for; the first row wins.
_BY_FRAMES = (
    (("_dummy_sampler_run", "_dummy_pooler_run"), "gpu-oom-sampler"),
    (
        (
            "determine_available_memory",
            "profile_run",
            "profile_cudagraph_memory",
            "determine_num_available_blocks",
        ),
        "gpu-oom-profile",
    ),
    (("kernel_warmup", "autotune"), "gpu-oom-warmup-after-kv"),
    (("topk_topp", "top_k_top_p"), "gpu-oom-sampler"),
    (
        (
            "capture_model",
            "capture_graph",
            "_capture_cudagraphs",
            "capture_one_batch",
            "cuda_graph_runner",
            "init_device_graphs",
        ),
        "gpu-oom-capture",
    ),
    (
        (
            "deep_gemm_warmup",
            "compile_or_warm_up_model",
            "initialize_kv_cache",
            "_allocate_kv_cache",
            "initialize_from_config",
            "getWorkspaceInfo",
            "prepare_moe",
        ),
        "gpu-oom-warmup-after-kv",
    ),
    (
        (
            "load_model",
            "load_weights",
            "initialize_model",
            "create_weights",
            "process_weights_after_loading",
        ),
        "gpu-oom-load",
    ),
    (
        ("run_busy_loop", "event_loop", "_process_engine_step"),
        "gpu-oom-runtime",
    ),
)

_CAPTURE_TEXT = ("Capture cuda graph failed", "CUDA graph failed")

_BY_STAGE = {
    "spawn": "gpu-oom-load",
    "load_weights": "gpu-oom-load",
    "compile": "gpu-oom-profile",
    "profile": "gpu-oom-profile",
    "graph_profile": "gpu-oom-profile",
    "kv_alloc": "gpu-oom-warmup-after-kv",
    "kernel_warmup": "gpu-oom-warmup-after-kv",
    "graph_capture": "gpu-oom-capture",
    "sampler_warmup": "gpu-oom-sampler",
    "ready": "gpu-oom-runtime",
}

#: Signatures that mean one thing whatever the phase.
_DIRECT = {
    "sampler-oom": "gpu-oom-sampler",
    "no-kv-memory": "no-kv-memory",
    "kv-smaller-than-context": "kv-smaller-than-context",
    "kv-alloc": "kv-smaller-than-context",
    "compute-alloc": "gpu-oom-warmup-after-kv",
    "free-memory-below-request": "free-memory-below-request",
    "unbalanced-memory": "free-memory-below-request",
    "memory-race": "memory-race",
    "mamba-blocks": "mamba-blocks",
    "allocator-clash": "bad-argument",
    "shm-exhausted": "shm-exhausted",
    "port-in-use": "port-in-use",
    "ready-timeout": "ready-timeout",
    "toolchain": "missing-toolchain",
    "missing-package": "missing-package",
    "model-not-found": "model-not-found",
    "bad-argument": "bad-argument",
    "kernel-oom-kill": "host-oom-kill",
    "host-oom": "host-oom-kill",
    "collective-timeout": "hang",
}


def cause_of(failure: Failure, log: ServerLog) -> str:
    """Return the cause code of a root failure; ``unknown`` where it is not clear."""
    if failure.signature == "gpu-oom":
        return "unknown" if pins_host_memory(failure) else _oom(failure, log)
    if failure.signature == "unsupported-arch":
        return _architecture(failure, log)
    if failure.signature == "nccl-system-error":
        shm = any(f.signature == "shm-exhausted" for f in log.failures)
        return "shm-exhausted" if shm else "nccl-system-error"
    return _DIRECT.get(failure.signature, "unknown")


def pins_host_memory(failure: Failure) -> bool:
    """CUDA says "out of memory" also when it can not pin memory of the host."""
    if "asked_gib" in failure.numbers:
        return False
    words = ("pin_memory", "cudaHost", "host_register", "engram.")
    return any(word in frame for word in words for frame in failure.frames)


def _oom(failure: Failure, log: ServerLog) -> str:
    """In which phase memory ran out: by the traceback, else by the last milestone."""
    if failure.after_ready:
        return "gpu-oom-runtime"
    if any(words in failure.text for words in _CAPTURE_TEXT):
        return "gpu-oom-capture"
    cause = _llama_oom(failure, log) if log.engine == "llamacpp" else None
    text = " ".join(failure.frames)
    for functions, named in _BY_FRAMES:
        if cause is None and any(function in text for function in functions):
            cause = named
    if cause is None and log.boot.stage is None and not log.non_default_args:
        return "unknown"  # The log's head is missing: nothing says how far it came.
    return cause or _BY_STAGE.get(failure.stage or "", "unknown")


def _llama_oom(failure: Failure, log: ServerLog) -> str | None:
    """What could not be allocated is said in a later line."""
    if _follows(failure, log, "kv-alloc"):
        return "kv-smaller-than-context"
    if _follows(failure, log, "compute-alloc"):
        return "gpu-oom-warmup-after-kv"
    if failure.stage == "kv_alloc" and log.ledger.kv_gib is None:
        return "kv-smaller-than-context"  # The log ends before it says so.
    return None


def _follows(failure: Failure, log: ServerLog, signature: str) -> bool:
    return any(
        f.signature == signature and 0 <= f.line - failure.line <= 60
        for f in log.failures
    )


def _architecture(failure: Failure, log: ServerLog) -> str:
    """A GPU too old for the kernels, or a toolkit too old for the GPU.

    FlashInfer says "requires GPUs with sm75 or higher" also when its toolkit does not
    know a newer GPU; the list of majors beside it tells.
    """
    near = [f for f in log.failures if abs(f.line - failure.line) <= 400]
    if any(f.signature == "toolchain" for f in near):
        return "missing-toolchain"
    name = str(log.resolved.get("device_name", ""))
    newer = ("RTX_50", "RTX 50", "B200", "B300", "GB10", "GB200", "GB300", "RTX PRO")
    text = " ".join(f.text for f in near)
    if failure.numbers.get("sm") == 75 and any(n in name or n in text for n in newer):
        return "missing-toolchain"
    return "unsupported-arch"
