"""Deaths without a word: host memory, signals, and servers that only wait."""

from stepscope.analysis.boot.advice import Advice, number
from stepscope.analysis.boot.root import Root
from stepscope.run.serverlog import ServerLog

#: Host memory of one rank's process, and what a pinned GiB takes while it is filled.
PER_RANK_GIB = 6.5
PINNED_WHILE_LOADING = 1.4

#: Hints of one minute each without any progress, after the cache and before it.
HANG_HINTS_AFTER_KV = 5
HANG_HINTS = 30
#: A process that says this of itself did not fall silent; what follows is missing.
_OTHERS_WORDS = (
    "initialization failed",
    "died unexpectedly",
    "process failed to start",
    "scheduler is dead",
    "scheduler died",
    "died (",
)
_OWN_KILL = ("igquit", "SIGQUIT", "fatal signal from worker")
_OWN_WORDS = ("WorkerProc failed", "WorkerProc hit an exception", "hit an exception:")
_LATE = ("kv_alloc", "kernel_warmup", "graph_capture", "sampler_warmup", "ready")
_SIGNALS = {-6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}


def silent_cause(root: Root, log: ServerLog) -> tuple[str, Advice]:
    """Name the cause of a death that no traceback explains, or say that none is."""
    stage = log.boot.stage
    # A log without its head does not say that weights were being loaded either.
    began = stage == "spawn" or (stage is None and bool(log.non_default_args))
    loading = stage == "load_weights" or (began and root.exit_code == -9)
    loaded = log.boot.shards_total is not None and (
        log.boot.shards_loaded == log.boot.shards_total
    )
    weights_in = log.ledger.weights_gib is not None and (loaded or _all_ranks_in(log))
    counted = log.boot.oom_kills
    if root.kernel is not None or (counted and root.exit_code in (None, 1, -9)):
        return "host-oom-kill", _killed(root, log, certain=True)
    if root.exit_code == -7:
        advice = Advice(
            why="A process died of SIGBUS: a page of a shared memory segment could not"
            " be backed."
        )
        advice.fix("--shm-size", "raise", "16g", "or --ipc=host")
        return "shm-exhausted", advice
    if (
        loading
        and counted != 0
        and not weights_in
        and root.silent
        and not _ended_itself(log)
        and (root.exit_code == -9 or _child_vanished(root, log))
    ):
        return "host-oom-kill", _killed(root, log, certain=False)
    return "unknown", _unexplained(root, log)


def _child_vanished(root: Root, log: ServerLog) -> bool:
    """A process waited for another that ended and had said nothing.

    A server whose worker was killed ends by itself, with 1. A traceback that stops in
    the middle says that the log was cut, not that a process fell silent.
    """
    if root.exit_code not in (None, 1) or log.engine == "llamacpp":
        return False
    if log.boot.tracebacks > sum(bool(f.frames) for f in log.failures):
        return False
    told = [f.text for f in log.failures if f.signature in ("wrapper", "killed")]
    if any(words in text for text in told for words in _OWN_WORDS):
        return False
    return any(words in text for text in told for words in _OTHERS_WORDS)


def _ended_itself(log: ServerLog) -> bool:
    """A child reported a failure, and the server killed all its processes for it.

    What the child wrote before is missing; the SIGKILL is the server's own.
    """
    told = (f.text for f in log.failures if f.signature == "wrapper")
    return any(words in text for text in told for words in _OWN_KILL)


def _all_ranks_in(log: ServerLog) -> bool:
    """Every rank has said that its weights are loaded, and no load bar denies it."""
    ranks = number(log, "world_size", "tensor_parallel_size") or 1
    n_in = sum(ledger.weights_gib is not None for ledger in log.ledgers.values())
    return log.boot.shards_total is None and max(n_in, 1) >= ranks


def ray_advice(log: ServerLog) -> Advice:
    """Ray ended a worker because the node's memory ran short."""
    root = Root(None, silent=True, fatal_line=None, kernel=None, exit_code=None,
                exit_line=None)  # fmt: skip
    advice = Advice(
        why="Ray killed a worker because the node ran low on host memory; the class is"
        " called OutOfMemoryError, but no GPU is meant."
    )
    _host_fixes(root, log, advice, certain=True)
    advice.wrong.append("GPU memory ran out: Ray's error is about the host.")
    return advice


def _killed(root: Root, log: ServerLog, *, certain: bool) -> Advice:
    boot = log.boot
    advice = Advice()
    if certain and root.kernel is None:
        advice.why = (
            "The out-of-memory killer ended a process of this server: the control"
            f" group counted {boot.oom_kills} such kills while it ran."
        )
    elif certain and root.kernel is not None:
        rss = {k: v for k, v in root.kernel.numbers.items() if k.endswith("_rss_gib")}
        advice.why = "The kernel's out-of-memory killer ended a process of this server."
        if rss:
            shown = ", ".join(
                f"{k.removesuffix('_rss_gib')} {v:.1f} GiB" for k, v in rss.items()
            )
            advice.why += f" It held {shown}"
            advice.why += (
                "; pinned host memory counts as shmem."
                if "shmem_rss_gib" in rss
                else "."
            )
    else:
        advice.why = (
            "A process vanished while the weights were loaded and left no traceback:"
            " it was killed. The usual sender is the out-of-memory killer of the"
            " control group or the host; dmesg or memory.events would prove it."
        )
        if root.exit_code == -9:
            advice.why += " Its exit code is that of SIGKILL."
    if boot.pinned_host_gib is not None:
        advice.why += f" All ranks together pinned {boot.pinned_host_gib:.1f} GiB."
    if boot.checkpoint_gib is not None:
        advice.why += (
            f" The checkpoint's {boot.checkpoint_gib:.1f} GiB pass through the page"
            " cache."
        )
    _host_fixes(root, log, advice, certain=certain)
    advice.wrong.append(
        "GPU memory ran out: that raises an exception with figures; there is none."
    )
    advice.wrong.append(
        '"See root cause above" and "exception in a background process": nothing stands'
        " above; a killed process cannot write."
    )
    return advice


def _host_fixes(root: Root, log: ServerLog, advice: Advice, *, certain: bool) -> None:
    boot = log.boot
    confidence = "high" if certain else "medium"
    need, words = _host_need(root, log)
    advice.fix(
        "memory limit of the container",
        "raise",
        round(need) if need is not None else None,
        words,
        confidence if need is not None else "medium",
    )
    if boot.pinned_host_gib is not None and log.engine == "vllm":
        advice.fix(
            "--engram-config",
            "set",
            '{"cpu_offload": false}',
            f"moves the {boot.pinned_host_gib:.1f} GiB of pinned tables to the GPUs, at"
            " the cost of as much cache",
            "medium",
        )
    if str(log.resolved.get("load_format", "")).startswith("runai"):
        advice.fix(
            "--load-format",
            "set",
            "auto",
            "this loader keeps about a whole checkpoint in host memory per worker",
            "medium",
        )
    if not certain:
        advice.fix(
            "dmesg / memory.events",
            "set",
            "look for oom_kill",
            "proves or refutes this verdict",
            "high",
        )


def _host_need(root: Root, log: ServerLog) -> tuple[float | None, str]:
    """Host memory that the start-up asks for, GiB, as far as the log tells.

    Source: two starts of one 8-rank server with a checkpoint of 475.25 GiB peaked at
    527.2 GiB with nothing pinned and at 792.1 GiB with 188.8 GiB pinned.
    Assumes: those proportions. Page cache can be reclaimed, so less may do, slower.
    """
    boot = log.boot
    ranks = number(log, "world_size", "data_parallel_size", "tensor_parallel_size") or 1
    if root.kernel is not None:
        rss = sum(
            value
            for name, value in root.kernel.numbers.items()
            if name in ("anon_rss_gib", "shmem_rss_gib")
        )
        if rss > 1.0:
            need = rss * max(1, ranks) * 1.25
            return need, (
                f"one process held {rss:.1f} GiB that can not be reclaimed when it was"
                f" killed; {ranks} ranks and a quarter on top give a lower bound"
            )
    if boot.pinned_host_gib is None:
        return None, "the log does not say how much host memory the ranks need"
    pinned = PINNED_WHILE_LOADING * boot.pinned_host_gib
    own = PER_RANK_GIB * ranks
    words = (
        f"{pinned:.0f} GiB for the {boot.pinned_host_gib:.1f} GiB that are pinned (they"
        f" are filled from a copy), {own:.0f} GiB for {ranks} processes"
    )
    if boot.checkpoint_gib is None:
        return None, (
            f"at least {pinned + own:.0f} GiB ({words}) and the checkpoint's size on"
            " top, which this log does not say"
        )
    words += f", {boot.checkpoint_gib:.0f} GiB of page cache for the checkpoint"
    return pinned + own + boot.checkpoint_gib, words


def _unexplained(root: Root, log: ServerLog) -> Advice:
    name = _SIGNALS.get(root.exit_code or 0)
    stage = log.boot.stage or "spawn"
    advice = Advice(why=f"A process ended in the phase {stage} without a traceback")
    if name is not None:
        advice.why += f", by {name}"
    elif root.exit_code is not None:
        advice.why += f", with exit code {root.exit_code}"
    advice.why += "; the log does not say why."
    if root.exit_code == -9 and log.boot.oom_kills == 0:
        advice.why += (
            " The control group counted no out-of-memory kill, so SIGKILL came"
        )
        advice.why += " from a supervisor, or from a kill that another group counts."
    elif root.exit_code == -9:
        advice.why += " SIGKILL comes from the kernel or from a supervisor; only dmesg,"
        advice.why += " memory.events or the supervisor's own log can tell."
    if root.exit_code == -11:
        advice.fix(
            "PYTHONFAULTHANDLER",
            "set",
            "1",
            "prints a traceback when native code crashes",
        )
    else:
        advice.fix(
            "dmesg / memory.events",
            "set",
            "look for oom_kill",
            "tells whether the kernel killed it",
        )
    return advice


def hang_advice(log: ServerLog, text: str = "") -> Advice:
    """Say what a process that waits for another may be told to do without."""
    advice = Advice(
        why="A collective or a step did not finish in time: a process waits for"
        f" another that does not come. {text[:200]}".rstrip(),
        wrong=["A slow GPU: the limit is minutes, a step takes milliseconds."],
    )
    ranks = number(log, "world_size", "tensor_parallel_size") or 1
    if ranks > 1 and log.engine in ("vllm", "sglang"):
        advice.fix(
            "--disable-custom-all-reduce",
            "set",
            "true",
            "takes the engine's own collective out of the suspects; steps become"
            " slower",
            "low",
        )
        advice.fix(
            "NCCL_DEBUG",
            "set",
            "INFO",
            "shows which rank entered which collective last",
            "low",
        )
    return advice


def waiting(log: ServerLog) -> tuple[str | None, str, list[str]]:
    """Judge a log that ends before the server is ready and without a failure.

    Returns:
        Cause (``hang`` or None), why, and refuted readings.
    """
    boot = log.boot
    wrong: list[str] = []
    limit = HANG_HINTS_AFTER_KV if boot.stage in _LATE else HANG_HINTS
    if boot.n_stall_hints >= limit:
        return (
            "hang",
            f"No process has moved for {boot.n_stall_hints} minutes: since the last"
            f" progress, in the phase {boot.stage or 'spawn'}, the log holds only hints"
            " that a process is hanging.",
            ["It is only slow: slow work prints progress in between."],
        )
    hints = log.event_counts.get("stall-hint", 0)
    if hints:
        wrong.append(
            '"No available shared memory broadcast block" is an error: it says that a'
            f" worker has been busy for a minute ({hints} times by now), which loading"
            " and compiling are."
        )
    why = "The log ends"
    why += " in mid-line" if boot.truncated and log.n_lines else ""
    if log.engine is None and boot.stage is None:
        why = "This is no server log that is known here, or it is empty"
    elif boot.stage is not None:
        why += f" in the phase {boot.stage}"
    if boot.shards_total:
        why += f", {boot.shards_loaded} of {boot.shards_total} shards loaded"
    return None, why + "; nothing in it failed.", wrong
