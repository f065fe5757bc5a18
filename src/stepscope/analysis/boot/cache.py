"""A cache that is empty, or too small for one request of the full length."""

import msgspec

from stepscope.analysis.boot.advice import Advice, flag, number
from stepscope.analysis.boot.oom_early import BESIDE_LAYERS
from stepscope.analysis.boot.room import (
    ceil_to,
    device_at_least_gib,
    device_gib,
    floor_to,
    free_share,
    raised,
    utilization,
)
from stepscope.run.serverlog import Failure, ServerLog

#: A larger share leaves too little for what is allocated after the cache.
MAX_SHARE = 0.95
#: What a working cache should have at least, GiB.
SMALL_CACHE_GIB = 1.0


def no_kv_advice(failure: Failure, log: ServerLog) -> Advice:
    """Nothing is left for the cache: too small a share, or something takes too much."""
    ledger = log.ledger
    share, name = utilization(log), flag(log, "share")
    advice = Advice()
    kv, requested = ledger.kv_gib, ledger.requested_gib
    parts = []
    if requested is not None and share is not None:
        parts.append(f"{requested:.2f} GiB were requested ({share:g} of the device)")
    if ledger.weights_gib is not None:
        parts.append(f"weights take {ledger.weights_gib:.2f} GiB of it")
    if kv is not None:
        parts.append(f"{kv:.2f} GiB are left for the cache")
    advice.why = "Nothing is left for the cache: " + (
        "; ".join(parts) if parts else "the log does not say what took the memory"
    )
    advice.why += "."
    needed = (SMALL_CACHE_GIB - kv) if kv is not None else None
    value = raised(log, needed) if needed is not None else None
    if log.engine == "sglang":
        value, needed = _sglang_share(log), 0.0
    limit = min(MAX_SHARE, free_share(log) or MAX_SHARE)
    if value is not None and value <= limit:
        _raise(log, advice, value)
    elif needed is None or value is None:
        if share is None or share < 0.9:
            advice.fix(
                name,
                "raise",
                0.9,
                "the log does not hold the figures to compute a value",
                "low",
            )
        else:
            _little_room(share, name, advice)
        _many_sequences(log, advice)
    elif log.engine == "vllm" and ledger.device_gib is None and share is not None:
        _little_room(share, name, advice)
        _many_sequences(log, advice)
    else:
        advice.wrong.append(
            f"Raise {name}, as the message says: {value:.2f} would be needed and more"
            f" than {limit:.2f} leaves no room for what is allocated after the cache."
        )
    _estimate(log, advice, needed)
    _peak(log, advice, needed, raise_works=value is not None and value <= limit)
    if value is not None and value <= limit:
        advice.wrong.append(
            f"Lower {name}, as one does for an out-of-memory error: nothing ran out;"
            " the budget is smaller than the model."
        )
    return advice


def _little_room(share: float, name: str, advice: Advice) -> None:
    if share >= MAX_SHARE:
        advice.wrong.append(
            f"Raise {name}, as the message says: it is {share:g} already, and what is"
            " allocated after the cache needs the rest."
        )
        return
    advice.fix(
        name,
        "raise",
        MAX_SHARE,
        "all that can be asked for; the log does not hold the figures that say whether"
        " it is enough",
        "low",
    )


def _sglang_share(log: ServerLog) -> float | None:
    """The static fraction that leaves 1 GiB for the cache.

    Source: SGLang's model_runner: cache = free after load - free before x (1 - share).
    """
    before, weights = log.ledger.free_at_start_gib, log.ledger.weights_gib
    if before is None or weights is None or before <= 0:
        return None
    return ceil_to(1 - (before - weights - SMALL_CACHE_GIB) / before, 0.01)


def _raise(log: ServerLog, advice: Advice, value: float) -> None:
    if log.engine == "sglang":
        advice.fix(
            flag(log, "share"),
            "raise",
            value,
            f"leaves about {SMALL_CACHE_GIB:g} GiB for the cache; more is better",
            "high",
        )
        return
    kv, share = log.ledger.kv_gib or 0.0, utilization(log) or 0.0
    if log.ledger.device_gib is None:
        least = device_at_least_gib(log) or 0.0
        advice.fix(
            flag(log, "share"),
            "raise",
            value,
            f"the log does not say the GPU's size; by its figures it has at least"
            f" {least:.1f} GiB, so that each 0.01 adds {0.01 * least:.2f} GiB or more"
            f" and the cache gets at least {kv + (value - share) * least:.2f} GiB",
        )
        return
    device = log.ledger.device_gib
    even = share + max(0.0, -kv) / device
    advice.fix(
        flag(log, "share"),
        "raise",
        value,
        f"{ceil_to(even, 0.001):.3f} is where the cache is empty; {value:g} gives it"
        f" {kv + (value - share) * device:.2f} GiB, and each further 0.01 adds"
        f" {0.01 * device:.2f} GiB",
        "high",
    )


def _estimate(log: ServerLog, advice: Advice, needed: float | None) -> None:
    """The graph estimate took the cache: an over-estimate, not a small budget."""
    ledger = log.ledger
    estimate = ledger.graph_estimate_gib
    if estimate is None or not ledger.graph_estimate_applied or estimate <= 0:
        return
    enough = needed is not None and estimate >= needed
    if not enough:
        return
    large = estimate >= 4.0 or estimate >= 0.1 * (ledger.requested_gib or 1e9)
    confidence = "medium" if large else "low"
    advice.fix(
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
        "set",
        "0",
        f"gives the {estimate:.2f} GiB of the graph estimate back to the cache; capture"
        " still takes what it takes, so leave room for it",
        confidence,
    )
    largest = number(log, "max_cudagraph_capture_size")
    if large and largest is not None and largest > 64:
        advice.fix(
            "--max-cudagraph-capture-size",
            "lower",
            max(8, largest // 4),
            "fewer graphs, and a smaller estimate",
            "low",
        )
    if large:
        name = flag(log, "share")
        advice.fixes[:] = [
            msgspec.structs.replace(fix, confidence="low") if fix.flag == name else fix
            for fix in advice.fixes
        ]
        advice.wrong.append(
            f"The budget is too small, as the message says: without the estimate the"
            f" cache would have {(ledger.kv_gib or 0.0) + estimate:.2f} GiB at the same"
            f" {name}."
        )
        advice.why += (
            f" The graph estimate of {estimate:.2f} GiB is what took it: it scales a"
            " sample of graphs to all of them, though they share a pool."
        )
        advice.fixes.sort(key=lambda fix: not fix.flag.startswith("VLLM_MEMORY"))


def _peak(
    log: ServerLog, advice: Advice, needed: float | None, *, raise_works: bool
) -> None:
    ledger = log.ledger
    peak = ledger.activation_peak_gib
    if peak is None:
        peak = ledger.unaccounted_gib
    weights, requested = ledger.weights_gib, ledger.requested_gib
    seqs = number(log, "max_num_seqs")
    if raise_works:
        return
    if peak is not None and needed is not None and peak >= needed:
        advice.why += f" The profiling run's peak takes {peak:.2f} GiB."
        advice.fix(
            flag(log, "seqs"),
            "lower",
            min(256, max(1, (seqs or 1024) // 4)),
            "the profile runs this many sequences at once; a smaller number lowers its"
            " peak",
        )
        chunk = number(log, "max_num_batched_tokens")
        if chunk is not None and chunk > 2048:
            advice.fix(
                flag(log, "chunk"),
                "lower",
                chunk // 2,
                "lowers the profile's peak",
                "low",
            )
    if log.engine == "sglang":
        requested = ledger.free_at_start_gib
    if weights is not None and requested is not None and weights > 0.9 * requested:
        advice.fix(
            flag(log, "tp"),
            "raise",
            2 * (number(log, "tensor_parallel_size") or 1),
            "halves the weights on each GPU; needs twice the GPUs",
        )


def _many_sequences(log: ServerLog, advice: Advice) -> None:
    seqs = number(log, "max_num_seqs")
    if log.engine == "vllm" and (seqs is None or seqs > 256):
        advice.fix(
            flag(log, "seqs"),
            "lower",
            256,
            "the profiling run samples this many requests; a smaller number lowers its"
            " peak",
            "medium" if seqs is not None else "low",
        )


def small_kv_advice(failure: Failure, log: ServerLog) -> Advice:
    """The cache holds less than one request of the full length."""
    numbers = failure.numbers
    if log.engine == "llamacpp":
        return _llama_context(failure, log)
    length = numbers.get("tokens")
    needed, available = numbers.get("needed_gib"), numbers.get("available_gib")
    fits = numbers.get("estimated")
    advice = Advice(
        why="The cache holds less than one request of the full length"
        + (f" of {int(length):,} tokens" if length else "")
        + (
            f": {needed:.2f} GiB are needed and {available:.2f} GiB are there."
            if needed is not None and available is not None
            else "."
        )
    )
    if fits is None and length and needed and available is not None and available > 0:
        fits = floor_to(length * available / needed, 16)
    if fits is not None and fits >= 1:
        advice.fix(
            flag(log, "length"),
            "lower",
            int(fits),
            "longer requests are refused; one request of this length fills the cache",
            "high" if "estimated" in numbers else "medium",
        )
    share = utilization(log)
    device = device_gib(log, failure)
    kv = log.ledger.kv_gib
    if needed is None and length and fits and kv is not None and kv > 0:
        needed, available = kv * length / fits, kv
    device = device or device_at_least_gib(log)
    if needed is not None and available is not None and share is not None and device:
        value = ceil_to(share + (needed - available) / device, 0.01)
        if value <= MAX_SHARE:
            advice.fix(
                flag(log, "share"),
                "raise",
                value,
                f"gives the cache the missing {needed - available:.2f} GiB; keeps the"
                " length",
            )
        elif device_gib(log, failure) is None:
            _little_room(share, flag(log, "share"), advice)
        else:
            advice.wrong.append(
                f"Raise {flag(log, 'share')}: {value:.2f} would be needed, which leaves"
                " nothing for what is allocated after the cache."
            )
    elif share is not None and share < 0.9:
        advice.fix(flag(log, "share"), "raise", 0.9, "a larger cache", "low")
    advice.wrong.append(
        "The model does not fit: its weights were loaded; only the context limit is too"
        " long for what is left."
    )
    return advice


def _llama_context(failure: Failure, log: ServerLog) -> Advice:
    context = number(log, "n_ctx", "n_ctx_per_slot")
    asked = failure.numbers.get("asked_gib") or failure.numbers.get("buffer_gib")
    free = log.ledger.free_at_start_gib
    if free is not None:
        free -= log.ledger.weights_gib or 0.0
    value, effect = context // 2 if context else None, "a shorter context and cache"
    one = (number(log, "n_gpus") or 1) == 1
    if context and asked and one and free is not None and 0 < free < asked:
        value = int(floor_to(context * (1 - BESIDE_LAYERS) * free / asked, 256))
        effect += "; a tenth of what is free is left for the buffers of a step"
    advice = Advice(
        why="The cache for the whole context is allocated at once, and it did not fit"
        + (f": {asked:.2f} GiB." if asked else ".")
    )
    advice.fix("--ctx-size", "lower", value, effect)
    advice.fix(
        "--cache-type-k", "set", "q8_0", "halves the keys' share of the cache", "low"
    )
    return advice
