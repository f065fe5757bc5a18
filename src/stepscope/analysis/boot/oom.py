"""GPU memory that ran out: before the cache, after it, or while serving."""

from stepscope.analysis.boot.advice import Advice, flag, number, power_of_two_below
from stepscope.analysis.boot.oom_early import (
    before_cache,
    llama_advice,
    llama_steps_advice,
)
from stepscope.analysis.boot.room import (
    device_gib,
    graphs_gib,
    held_since_kv_gib,
    lower_bound,
    missing_gib,
    overshoot_gib,
    tokens_text,
    utilization,
)
from stepscope.run.serverlog import Failure, ServerLog

#: What graph capture is given at least when it failed half-way, of the device.
CAPTURE_SHARE = 0.02

_AFTER = {
    "gpu-oom-warmup-after-kv": "while kernels were warmed up, after the cache had taken"
    " its share",
    "gpu-oom-capture": "while graphs were captured, after the cache had taken its"
    " share",
    "gpu-oom-sampler": "while the sampler was warmed up",
    "gpu-oom-runtime": "while serving",
    "gpu-oom-load": "while the weights were loaded, before anything was set aside for"
    " the cache",
    "gpu-oom-profile": "in the profiling run, before anything was set aside for the"
    " cache",
}


def oom_advice(cause: str, failure: Failure, log: ServerLog) -> Advice:
    """Explain an out-of-memory failure and compute what would have fitted."""
    advice = Advice(why=_why(cause, failure, log))
    if cause in ("gpu-oom-load", "gpu-oom-profile"):
        before_cache(cause, failure, log, advice)
    elif log.engine == "llamacpp" and cause == "gpu-oom-warmup-after-kv":
        llama_steps_advice(failure, log, advice)
    elif log.engine == "llamacpp":
        llama_advice(failure, log, advice)
    elif cause == "gpu-oom-sampler":
        _sampler(failure, log, advice)
    elif cause == "gpu-oom-runtime":
        _runtime(failure, log, advice)
    else:
        _after_kv(cause, failure, log, advice)
    if failure.exception == "MemoryError":
        advice.wrong.append(
            "Host memory ran out: the class is Python's MemoryError, but the text names"
            " CUDA; it is a GPU workspace that could not be allocated."
        )
    reserved = failure.numbers.get("reserved_gib")
    asked = failure.numbers.get("asked_gib")
    if reserved is not None and asked is not None and reserved < asked:
        advice.wrong.append(
            "Fragmentation, as the message's closing words suggest: only"
            f" {reserved:.2f} GiB is reserved but unallocated, less than the"
            f" {asked:.2f} GiB asked for; expandable segments would not have helped."
        )
    return advice


def _why(cause: str, failure: Failure, log: ServerLog) -> str:
    numbers = failure.numbers
    text = f"GPU memory ran out {_AFTER.get(cause, '')}".rstrip() + "."
    asked = numbers.get("asked_gib", numbers.get("buffer_gib"))
    free = numbers.get("free_gib")
    in_use, total = numbers.get("in_use_gib"), numbers.get("total_gib")
    if free is None and in_use is not None and total is not None:
        free = total - in_use
    if asked is not None and free is not None:
        text += f" It asked for {asked:.2f} GiB with {free:.2f} GiB free"
        text += f" of {total:.2f} GiB." if total is not None else "."
    elif asked is not None:
        text += f" It asked for {asked:.2f} GiB."
    ledger = log.ledger
    if log.engine == "llamacpp":
        return text.replace(
            _AFTER["gpu-oom-warmup-after-kv"],
            "when a step's buffers were allocated, after the weights and the cache",
        )
    if cause in ("gpu-oom-warmup-after-kv", "gpu-oom-capture") and (
        ledger.kv_gib is not None
    ):
        text += f" The cache had been sized at {ledger.kv_gib:.2f} GiB from a snapshot"
        text += " taken before this phase."
        consumed, device = ledger.consumed_gib, device_gib(log, failure)
        if consumed is not None and device is not None:
            text += (
                f" That left {device - consumed - ledger.kv_gib:.2f} GiB of the device"
                " free."
            )
        held = held_since_kv_gib(failure, ledger)
        if held is not None:
            text += (
                f" Since then {held:.2f} GiB had been taken, so this phase needs at"
                f" least {held + (asked or 0.0):.2f} GiB."
            )
    estimate = ledger.graph_estimate_gib
    if estimate is not None and estimate < 0:
        text += (
            f" The graph estimate is {estimate:.2f} GiB: free memory was not monotonic"
            " while it was taken, and the cache was inflated by that much."
        )
    return text


def _after_kv(cause: str, failure: Failure, log: ServerLog, advice: Advice) -> None:
    name = flag(log, "share")
    other = failure.numbers.get("other_process_gib")
    if other is not None and other > 1.0 and "in_use_gib" in failure.numbers:
        advice.fix(
            "other process on the GPU",
            "remove",
            f"{other:.2f} GiB",
            "another process took this much after the check at the start",
        )
    missing, graphs = missing_gib(failure), graphs_gib(log.ledger)
    estimate = log.ledger.graph_estimate_gib
    if estimate is not None and estimate < 0:
        advice.fix(
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
            "set",
            "0",
            "takes the negative estimate out of the cache's size; then leave room for"
            " graphs with a lower --gpu-memory-utilization",
        )
        advice.wrong.append(
            f"The cache of {log.ledger.kv_gib or 0.0:.2f} GiB is what the GPU has room"
            " for: it was inflated by the negative estimate."
        )
        if missing is not None and -estimate >= missing:
            missing = None  # Taking the estimate out is enough.
    if missing is not None:
        alone = lower_bound(log, failure, missing)
        extra = graphs if cause == "gpu-oom-warmup-after-kv" else None
        both = lower_bound(log, failure, missing + extra) if extra else None
        best = both or alone
        if cause == "gpu-oom-capture" and alone is not None:
            # Graphs that were still to come need room too; no line says how much.
            least = CAPTURE_SHARE * (device_gib(log, failure) or 0.0)
            best = lower_bound(log, failure, max(missing, least))
        if best is not None and alone is not None:
            effect = f"{missing:.2f} GiB were missing: at most {alone.value:.3f} for"
            effect += " this allocation alone"
            if both is not None:
                effect += (
                    f", at most {both.value:.3f} with the {extra:.2f} GiB that graph"
                    " capture takes next"
                )
            effect += f"; {tokens_text(best)}. The failed request is a lower bound:"
            effect += " if a later one fails, the same arithmetic gives the next value."
            advice.fix(name, "lower", best.value, effect, "medium")
    if not any(
        fix.flag == name or fix.flag.startswith("VLLM_") for fix in advice.fixes
    ):
        _step_down(log, advice)
    _smaller_steps(cause, failure, log, advice)
    _not_a_larger_share(log, advice)


def _not_a_larger_share(log: ServerLog, advice: Advice) -> None:
    name, share = flag(log, "share"), utilization(log)
    at = f" from {share:g}" if share is not None else ""
    advice.wrong.append(
        f"Raise {name}{at}: that hands more memory to the cache and leaves less for"
        " this phase; it makes the failure worse."
    )
    if log.ledger.weights_gib is not None:
        advice.wrong.append(
            f"The model is too large for the GPU: its {log.ledger.weights_gib:.2f} GiB"
            " of weights were loaded and the profiling run passed."
        )


def _step_down(log: ServerLog, advice: Advice) -> None:
    share = utilization(log)
    advice.fix(
        flag(log, "share"),
        "lower",
        round(share - 0.05, 3) if share is not None and share > 0.1 else None,
        "a step, not a computed value: the message has no figures; each 0.01 frees 1 %"
        " of the device",
        "low",
    )


def _smaller_steps(
    cause: str, failure: Failure, log: ServerLog, advice: Advice
) -> None:
    chunk = number(log, "max_num_batched_tokens", "chunked_prefill_size")
    tuning = any("autotune" in frame for frame in failure.frames)
    if cause == "gpu-oom-warmup-after-kv" and chunk is not None and chunk > 2048:
        advice.fix(
            flag(log, "chunk"),
            "lower",
            power_of_two_below(chunk / 2),
            "workspaces of the kernel warm-up grow with the largest step; also shortens"
            " prefill steps",
            "low",
        )
    if tuning and log.engine == "vllm":
        advice.fix(
            "--kernel-config",
            "set",
            '{"enable_flashinfer_autotune": false}',
            "skips the autotuner; the server then runs untuned kernels",
            "medium",
        )
    if cause == "gpu-oom-capture":
        largest = number(log, "max_cudagraph_capture_size")
        if largest is not None and largest > 8 and flag(log, "graphs"):
            advice.fix(
                flag(log, "graphs"),
                "lower",
                power_of_two_below(largest / 2),
                "fewer and smaller graphs; larger batches run without one",
                "medium",
            )
        if flag(log, "eager"):
            advice.fix(
                flag(log, "eager"),
                "set",
                "true",
                "no graphs at all: decode steps become slower",
                "medium",
            )


def _sampler(failure: Failure, log: ServerLog, advice: Advice) -> None:
    asked, free = failure.numbers.get("asked_gib"), failure.numbers.get("free_gib")
    seqs = (
        number(log, "max_num_seqs") or int(failure.numbers.get("requests", 0)) or None
    )
    missing = missing_gib(failure)
    over = overshoot_gib(log.ledger)
    if over and over > 0.1 and over > (missing or 0.0):
        missing = over
        advice.why += (
            f" The printed parts exceed the request by {over:.2f} GiB before the"
            " sampler takes anything."
        )
    if missing is not None:
        bound = lower_bound(log, failure, max(missing, 0.0))
        if bound is not None:
            advice.fix(
                flag(log, "share"),
                "lower",
                bound.value,
                f"{missing:.2f} GiB were missing; {tokens_text(bound)}",
            )
    else:
        device, share = device_gib(log, failure), utilization(log)
        if share is not None:
            advice.fix(
                flag(log, "share"),
                "lower",
                round(share - 0.03, 3),
                "no figures in the message: three points"
                + (f" free {0.03 * device:.1f} GiB" if device else ""),
                "low",
            )
    advice.wrong.append(
        f"Raise {flag(log, 'share')}: the sampler's memory is not in the profile, so a"
        " larger cache leaves it less."
    )
    if seqs is None:
        advice.fix(
            flag(log, "seqs"),
            "lower",
            256,
            "its memory grows with this number, whose default is up to 1024",
            "low",
        )
    else:
        scale = free / asked if asked and free is not None and free < asked else 0.5
        advice.fix(
            flag(log, "seqs"),
            "lower",
            max(1, power_of_two_below(seqs * scale)),
            f"the warm-up samples {seqs} requests at once; its memory grows with that"
            " number",
        )


def _slots(log: ServerLog, advice: Advice) -> None:
    """SGLang says "out of memory" too when the cache has no slot left."""
    advice.why = (
        "The cache had no slots left for a step: requests grew beyond what it holds."
        " The GPU's memory did not run out."
    )
    running = number(log, "max_running_requests")
    advice.fix(
        flag(log, "seqs"),
        "lower",
        power_of_two_below(running / 2) if running and running > 1 else None,
        "fewer requests share the cache",
    )
    advice.fix(
        "--schedule-conservativeness",
        "raise",
        1.3,
        "admits fewer requests for the tokens that they may still produce",
        "low",
    )
    advice.wrong.append(
        f"Lower {flag(log, 'share')}, as one does for an out-of-memory error: that"
        " makes the cache smaller, which is what ran out."
    )


def _runtime(failure: Failure, log: ServerLog, advice: Advice) -> None:
    if "Try to lower your batch size" in failure.text:
        _slots(log, advice)
        return
    missing = missing_gib(failure)
    if missing is not None:
        # Other requests were in flight: one more allocation of this size may follow.
        room = missing + max(1.0, failure.numbers.get("asked_gib", 0.0))
        bound = lower_bound(log, failure, room)
        if bound is not None:
            advice.fix(
                flag(log, "share"),
                "lower",
                bound.value,
                f"{missing:.2f} GiB were missing; room for that and as much again:"
                f" {tokens_text(bound)}",
            )
    if not advice.fixes:
        _step_down(log, advice)
    seqs = number(log, "max_num_seqs", "max_running_requests")
    if seqs is not None and seqs > 1:
        advice.fix(
            flag(log, "seqs"),
            "lower",
            power_of_two_below(seqs / 2),
            "smaller batches need smaller workspaces",
            "low",
        )
    advice.wrong.append(
        "The start-up was at fault: the server came up and served; what failed is an"
        " allocation of a step, outside the cache."
    )
