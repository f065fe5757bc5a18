"""A GPU that is not free at the start, or that changes while it is measured."""

from stepscope.analysis.boot.advice import Advice, at_least, flag
from stepscope.analysis.boot.room import floor_to
from stepscope.run.serverlog import Failure, ServerLog

#: Less than this is the driver's and the desktop's own, GiB.
TENANT_GIB = 3.0
#: A GH200 with 144 GB and a GB10; no other GPU reports these sizes.
UNIFIED_GIB = (142.5, 119.6)


def free_memory_advice(failure: Failure, log: ServerLog) -> Advice:
    """The GPU is not free: another tenant, or a share that the desktop leaves short."""
    numbers, shared = failure.numbers, 0.0
    free, total = numbers.get("free_gib"), numbers.get("total_gib")
    wanted, share = numbers.get("requested_gib"), numbers.get("utilization")
    name = flag(log, "share")
    if free is None or not total:
        return _unbalanced(failure)
    held, budget = total - free, numbers.get("budget_gib")
    advice = Advice(
        why=f"{held:.2f} of {total:.2f} GiB were in use before this server took"
        " anything" + (f"; it wanted {wanted:.2f} GiB." if wanted is not None else ".")
    )
    if budget is not None and share is not None:
        shared = max(0.0, share * total - budget)
        advice.why += (
            f" It wanted {budget:.2f} GiB beside {shared:.2f} GiB of weights that"
            " another process holds for it."
        )
        held -= shared
    fits = floor_to((max(0.0, free - 0.25) + shared) / total, 0.01)
    if held > TENANT_GIB and held > 0.04 * total:
        if unified := _is_unified(total, log):
            advice.fix(
                "page cache of the host",
                "remove",
                f"{held:.1f} GiB",
                "on a GPU that shares memory with the host the driver counts page cache"
                " as used: drop it (drop_caches) or upgrade the engine",
            )
        advice.fix(
            "other process on the GPU",
            "remove",
            f"{held:.1f} GiB",
            "another process holds this memory, often an engine process that outlived"
            " its server: find it with nvidia-smi and end it",
            "medium" if unified else "high",
        )
        advice.wrong.append(
            f"Lower {name}, as the message says first: {fits:.2f} would pass this check"
            f" with a budget of {fits * total:.1f} GiB"
            + _against_weights(log, fits * total)
        )
    else:
        advice.fix(
            name,
            "lower",
            fits,
            f"asks for {fits * total:.2f} of the {free:.2f} GiB that are free; the"
            f" cache gives up {((share or fits) - fits) * total:.2f} GiB",
            "high",
        )
        advice.wrong.append(
            f"Another server holds the GPU: only {held:.2f} GiB are in use, what a"
            " driver, a display or WSL keeps for itself."
        )
    advice.wrong.append(
        "The model is too large: nothing had been loaded when this check failed."
    )
    return advice


def _is_unified(total_gib: float, log: ServerLog) -> bool:
    """A GPU that shares its memory with the host, by its size or its name."""
    return any(abs(total_gib - size) < 0.5 for size in UNIFIED_GIB) or any(
        name in _names(log) for name in ("GH200", "GB10", "GB200", "Spark")
    )


def _unbalanced(failure: Failure) -> Advice:
    """SGLang compares the GPUs of a group with each other."""
    advice = Advice(why="Part of the GPU was not free at the start.")
    least = failure.numbers.get("least_gib")
    local = failure.numbers.get("local_gib")
    if least is not None and local is not None:
        advice.why = (
            f"One GPU of the group has {least:.2f} GiB free, this one {local:.2f} GiB:"
            f" {local - least:.2f} GiB of the other are in use."
        )
    advice.fix("other process on the GPU", "remove", None, "free the GPU first")
    return advice


def _against_weights(log: ServerLog, budget: float) -> str:
    weights = log.ledger.weights_gib
    if weights is not None and weights > budget:
        return f", less than the {weights:.1f} GiB of weights."
    return ", and leave the tenant where it is."


def _names(log: ServerLog) -> str:
    text = str(log.resolved.get("device_name", ""))
    return text + " ".join(f.text for f in log.failures[:50])


def race_advice(failure: Failure, log: ServerLog) -> Advice:
    """Another process gave memory back during the profiling run."""
    before, after = failure.numbers.get("initial"), failure.numbers.get("current")
    moved = f" by {after - before:.2f} GiB" if before and after else ""
    advice = Advice(
        why=f"Free memory rose{moved} during the profiling run: another process on this"
        " GPU released memory meanwhile (on a GPU that shares the host's memory, the"
        " page cache does the same). This server did nothing wrong."
    )
    advice.wrong.append(
        f"Lower {flag(log, 'share')}: memory was not short; it grew while it was"
        " measured."
    )
    advice.fix(
        "start order",
        "set",
        "one server after another",
        "start again once the other process has settled",
        "high",
    )
    if not at_least(log.version, 0, 10, 2):
        return advice
    advice.fix(
        "--kv-cache-memory-bytes",
        "set",
        None,
        "a fixed cache needs no profiling run; take the value from a good start",
    )
    return advice


def mamba_advice(failure: Failure, log: ServerLog) -> Advice:
    """More sequences than state blocks."""
    seqs, blocks = failure.numbers.get("seqs"), failure.numbers.get("blocks")
    advice = Advice(
        why="Each running sequence of a hybrid model needs one state block"
        + (
            f": {int(seqs)} sequences are asked for and {int(blocks)} blocks fit."
            if seqs is not None and blocks is not None
            else "."
        )
    )
    value = int(blocks) if blocks is not None else None
    advice.fix(
        flag(log, "seqs"),
        "lower",
        value,
        "the most sequences that this cache can hold",
        "high",
    )
    advice.wrong.append(
        f"Raise {flag(log, 'share')} step by step: each guess costs a whole start, and"
        " the message already names the number that fits."
    )
    return advice
