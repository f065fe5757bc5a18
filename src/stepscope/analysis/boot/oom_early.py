"""GPU memory that ran out before anything was set aside for the cache."""

from stepscope.analysis.boot.advice import Advice, flag, number, power_of_two_below
from stepscope.analysis.boot.room import floor_to, utilization
from stepscope.run.serverlog import Failure, ServerLog

#: Of what is free, for the cache and buffers, when layers are counted out.
BESIDE_LAYERS = 0.1


def before_cache(cause: str, failure: Failure, log: ServerLog, advice: Advice) -> None:
    """Add what helps when loading or profiling ran out."""
    other = failure.numbers.get("other_process_gib")
    if other is not None and other > 1.0:
        advice.fix(
            "other process on the GPU",
            "remove",
            f"{other:.2f} GiB",
            "another process holds this much of the GPU",
            "high",
        )
    if log.engine == "llamacpp":
        llama_advice(failure, log, advice)
        return
    if "NV_ERR_NO_MEMORY" in failure.text:
        _unified(log, advice)
        return
    workspace = any("workspace" in f or "b12x" in f.lower() for f in failure.frames)
    if workspace or "workspace" in failure.text.lower():
        advice.fix(
            "--moe-backend",
            "set",
            None,
            "a kernel's static workspace did not fit; another backend needs none",
        )
    if cause == "gpu-oom-profile":
        chunk = number(log, "max_num_batched_tokens", "chunked_prefill_size")
        if chunk is not None and chunk > 512:
            advice.fix(
                flag(log, "chunk"),
                "lower",
                power_of_two_below(chunk / 2),
                "the profiling run's peak grows with the largest step",
            )
        seqs = number(log, "max_num_seqs")
        if seqs is not None and seqs > 1:
            advice.fix(
                flag(log, "seqs"),
                "lower",
                power_of_two_below(seqs / 2),
                "the profiling run samples this many requests",
                "low",
            )
    ranks = number(log, "tensor_parallel_size") or 1
    advice.fix(
        flag(log, "tp"),
        "raise",
        ranks * 2,
        "halves the weights on each GPU; needs twice the GPUs",
        "medium" if cause == "gpu-oom-load" else "low",
    )
    advice.wrong.append(
        f"Lower {flag(log, 'share')}: it sizes the cache, and nothing had been set"
        " aside for the cache yet."
    )


def _unified(log: ServerLog, advice: Advice) -> None:
    """The driver found no memory although the host had some."""
    advice.why += (
        " The kernel driver itself found no memory: where GPU and host share it, page"
        " cache and fragmentation take what the checkpoint's reading filled."
    )
    advice.fix(
        "page cache of the host",
        "remove",
        "drop_caches and compact_memory while loading",
        "gives the driver whole pages back",
    )
    share = utilization(log)
    if share is not None and share > 0.7:
        advice.fix(flag(log, "share"), "lower", 0.7, "more room for the host", "low")


def _one_gpu(log: ServerLog) -> bool:
    """Sizes are printed for each GPU and summed here, but one of them ran out."""
    return (number(log, "n_gpus") or 1) == 1


def llama_steps_advice(failure: Failure, log: ServerLog, advice: Advice) -> None:
    """Add what helps when the buffers of a step did not fit beside the cache.

    Assumes: they grow with the micro-batch, and the cache with its tokens.
    """
    ledger = log.ledger
    asked, free = failure.numbers.get("buffer_gib"), ledger.free_at_start_gib
    weights, kv, tokens = ledger.weights_gib, ledger.kv_gib, ledger.kv_tokens
    step, context = number(log, "n_ubatch"), None
    if asked and free is not None and weights is not None and kv and _one_gpu(log):
        free -= weights + kv
        if 0 < free < asked:
            advice.why += f" {free:.2f} GiB were left beside the weights and the cache."
            step = power_of_two_below(step * free / asked) if step else None
            if tokens:
                missing = (1 + BESIDE_LAYERS) * (asked - free)
                kept = tokens * (1 - missing / kv)
                context = int(floor_to(kept, 256)) if kept >= 256 else None
        else:
            step = None
    else:
        step = None
    advice.fix(
        "--ubatch-size",
        "lower",
        step,
        "the buffers of a step grow with it; prompts are read in smaller pieces",
        "medium" if step is not None else "low",
    )
    advice.fix(
        "--ctx-size",
        "lower",
        context,
        "a shorter context gives up what is missing of the cache, and a tenth more",
        "medium" if context is not None else "low",
    )


def llama_advice(failure: Failure, log: ServerLog, advice: Advice) -> None:
    """Add what helps llama-server: fewer layers on the GPU, a shorter context."""
    layers = number(log, "n_gpu_layers", "n_layers")
    asked = failure.numbers.get("asked_gib") or failure.numbers.get("buffer_gib")
    free = failure.numbers.get("free_gib") or log.ledger.free_at_start_gib
    value, effect = None, "keeps the other layers in host memory; decoding is slower"
    if layers and asked and free is not None and free < asked and _one_gpu(log):
        value = int(layers * (1 - BESIDE_LAYERS) * free / asked)
        effect += "; a tenth of what is free is left for the cache and buffers"
    advice.fix(
        "--n-gpu-layers",
        "lower",
        value,
        effect,
        "medium" if value is not None else "low",
    )
    context = number(log, "n_ctx", "n_ctx_per_slot")
    if context:
        advice.fix(
            "--ctx-size",
            "lower",
            power_of_two_below(context / 2),
            "the cache is allocated in full for this many tokens",
            "low",
        )
