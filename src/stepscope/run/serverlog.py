"""What a server log says, as records. ``stepscope log`` prints this."""

import msgspec

from stepscope.findings import Finding


class Phase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One phase of a start-up.

    Attributes:
        name: ``spawn``, ``load_weights``, ``compile``, ``profile``,
            ``graph_profile``, ``kv_alloc``, ``kernel_warmup``, ``graph_capture``
            or ``ready``.
        seconds: Its length; None where the log does not say.
        process: The process that logged it.
        line: 1-based line of the log.
        ends_at_s: When it ended, on the log's own clock (see ``ServerLog.clock``).
        overlaps: Names of phases that ran at the same time for a second or more.
    """

    name: str
    seconds: float | None
    process: str | None = None
    line: int | None = None
    ends_at_s: float | None = None
    overlaps: tuple[str, ...] = ()


class Ledger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory budget of one GPU in GiB, as the log tells it; None: it does not.

    It closes: ``requested = weights + non_torch + activation_peak + kv +
    (graph_estimate when applied) + unaccounted``. SGLang and llama-server request
    nothing; there ``free_at_start = weights + kv + graph_actual + free_at_end +
    unaccounted``.

    Attributes:
        device_gib: What the driver calls the total.
        requested_gib: What the engine set out to use.
        utilization: The fraction that asked for it.
        weights_gib: Weights as loaded.
        non_torch_gib: Other memory in use after loading (contexts, NCCL).
        activation_peak_gib: Peak of the profiling run above that, without the
            graph estimate.
        graph_estimate_gib: What profiling expected graphs to take.
        graph_estimate_applied: Whether it was taken off the cache.
        graph_actual_gib: What capture took in the end.
        kv_gib: The cache; negative where nothing was left.
        kv_tokens: As the log says.
        max_concurrency: As the log says.
        free_at_start_gib: Free before the engine took anything.
        unaccounted_gib: What the terms above leave of the request.
        consumed_gib: Weights and non-torch in one figure, where the log gives that.
        peak_logged_gib: "peak activation" as printed.
        peak_contains_estimate: True where the printed peak includes the estimate.
        free_at_end_gib: Free after all allocations.
        device_inferred: True where ``device_gib`` was derived, not printed.
        unaccounted_name: What ``unaccounted_gib`` is made of.
    """

    device_gib: float | None = None
    requested_gib: float | None = None
    utilization: float | None = None
    weights_gib: float | None = None
    non_torch_gib: float | None = None
    activation_peak_gib: float | None = None
    graph_estimate_gib: float | None = None
    graph_estimate_applied: bool | None = None
    graph_actual_gib: float | None = None
    kv_gib: float | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    free_at_start_gib: float | None = None
    unaccounted_gib: float | None = None
    consumed_gib: float | None = None
    peak_logged_gib: float | None = None
    peak_contains_estimate: bool | None = None
    free_at_end_gib: float | None = None
    device_inferred: bool = False
    unaccounted_name: str | None = None


class CapturePass(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One pass of graph capture; a profiling pass is thrown away."""

    purpose: str
    modes: tuple[str, ...] = ()
    n_graphs: int | None = None
    seconds: float | None = None
    gib: float | None = None
    line: int | None = None


class LogEvent(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False
):
    """A line that means something to an analysis.

    Attributes:
        kind: ``jit``, ``autotune``, ``preemption``, ``stall-hint``, ``error``,
            ``ready``, ``stats`` or ``iteration``.
        line: 1-based line of the log.
        text: The message, without its frame.
        at_s: The log's own clock in seconds; ``ServerLog.clock`` says since when.
            The importer or the archive places it on the timeline.
        at_ns: The same instant on the run's timeline; None until placed.
        error_ns: How far the true instant may lie from ``at_ns`` (a log with a
            one-second clock: 1e9).
        process: The process that logged it.
        numbers: Named figures of the line (an iteration's elapsed_ms, n_running...).
        code: For ``error``: the signature of the failure, as in ``Failure``.

    A long log holds a great many of these and none refers to another, so the garbage
    collector need not walk them.
    """

    kind: str
    line: int
    text: str
    at_s: float | None = None
    at_ns: int | None = None
    error_ns: int | None = None
    process: str | None = None
    numbers: dict[str, float] = {}
    code: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line that reports a failure. It is evidence; no cause is claimed.

    Attributes:
        line: 1-based line of the log.
        signature: What kind of text it is: ``gpu-oom``, ``no-kv-memory``,
            ``wrapper`` (reports that something else failed), ``collateral`` (follows
            from another process's end), ``exception`` (nothing more is known), ...
        text: The message, without its frame.
        process: The process that logged it; None where the line does not say.
        role: ``worker``, ``engine``, ``api``, ``kernel`` or ``other``.
        at_s: The log's clock; None where the line carries no time.
        stage: The phase that the process had reached.
        exception: Class of the exception.
        frames: Functions of the traceback, outermost first.
        numbers: Named figures of the text.
        names: Named words of the text (a package, a path, a flag).
        is_quoted: The process repeats what another one reported.
        survived: The same process went on with its work afterwards.
        after_ready: The server had come up before.
        after_shutdown: A shutdown had begun before.
    """

    line: int
    signature: str
    text: str
    process: str | None = None
    role: str = "other"
    at_s: float | None = None
    stage: str | None = None
    exception: str | None = None
    frames: tuple[str, ...] = ()
    numbers: dict[str, float] = {}
    names: dict[str, str] = {}
    is_quoted: bool = False
    survived: bool = False
    after_ready: bool = False
    after_shutdown: bool = False


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that the engine itself proposed in its log.

    ``purpose`` is the engine's reason in a few words: ``fit-requested``,
    ``fill-device``, ``same-kv``.
    """

    flag: str
    value: float | int | str
    line: int
    purpose: str
    text: str = ""


class InertFlag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flag of the command that does nothing under what was resolved."""

    flag: str
    why: str
    line: int | None = None


class BootState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the server came, by the log alone.

    Attributes:
        stage: Last phase that any process reached.
        stage_line: Its line.
        ready_line: The line that says that it serves; None: it never did.
        seconds_to_ready: First dated line to ready.
        shutdown_line: First line of an orderly stop.
        first_at_s: First dated line on the log's clock.
        last_at_s: Last dated line.
        last_progress_at_s: Last dated line that moved the start-up forward.
        last_progress_line: The last line that did.
        n_stall_hints: "No available shared memory broadcast block" lines since then.
        shards_loaded: Checkpoint shards of the last load bar.
        shards_total: Its total.
        load_s: Seconds that the load bar had run.
        tracebacks: Number of tracebacks in the log.
        n_requests: Access-log lines.
        truncated: The log ends in mid-line.
        n_boots: Number of starts in the file; only the last is described.
        boot_line: First line of that start.
        pinned_host_gib: Host memory pinned by all ranks, where the log says so.
        checkpoint_gib: Size of the checkpoint, where the log says so.
        host_memory_gib: Host memory available, where the log says so.
        oom_kills: Kills that the server's control group counted while it ran; None:
            nobody looked. A log in which a count above 0 stands has a failure instead.
    """

    stage: str | None = None
    stage_line: int | None = None
    ready_line: int | None = None
    seconds_to_ready: float | None = None
    shutdown_line: int | None = None
    first_at_s: float | None = None
    last_at_s: float | None = None
    last_progress_at_s: float | None = None
    last_progress_line: int | None = None
    n_stall_hints: int = 0
    shards_loaded: int | None = None
    shards_total: int | None = None
    load_s: float | None = None
    tracebacks: int = 0
    n_requests: int = 0
    truncated: bool = False
    n_boots: int = 1
    boot_line: int = 1
    pinned_host_gib: float | None = None
    checkpoint_gib: float | None = None
    host_memory_gib: float | None = None
    oom_kills: int | None = None


class Fix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change that would let a failed boot succeed."""

    flag: str
    direction: str
    value: float | int | str | None
    effect: str
    confidence: str


class BootVerdict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Whether the server came up, and if not, why.

    Attributes:
        outcome: ``ready``, ``failed`` or ``unfinished``.
        cause: A cause code of the contract; None unless it failed.
        root_line: 1-based line of the first failure, not of its wrappers.
        process: The process that failed first.
        why: One paragraph.
        fixes: Changes that help, best first.
        wrong_readings: Tempting explanations that the log refutes.
    """

    outcome: str
    cause: str | None = None
    root_line: int | None = None
    process: str | None = None
    why: str = ""
    fixes: tuple[Fix, ...] = ()
    wrong_readings: tuple[str, ...] = ()


class ServerLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole server log, parsed.

    It holds facts only; ``stepscope.analysis.boot`` turns them into a verdict.

    Attributes:
        engine: ``vllm``, ``sglang`` or ``llamacpp``; None: not recognised.
        version: As the log says.
        n_lines: Physical lines (ended by a line feed).
        resolved: Settings as the engine resolved them.
        resolved_lines: For each of them the 1-based line that said it.
        non_default_args: Flags of the command, by their names inside the engine.
        phases: In order of their lines.
        ledger: Of the rank with the smallest cache.
        ledgers: Of every process that reported one.
        capture_passes: Profiling pass first.
        events: Lines that mean something to an analysis, in order.
        findings: What the parser has to say about the log.
        failures: Every line that reports a failure.
        suggestions: Settings that the engine proposed.
        inert_flags: Flags that do nothing.
        boot: How far it came.
        clock: What ``at_s`` counts from: ``year`` (the log has no year; days are
            counted as in a year without 29 February), ``unix`` (local time read as
            if it were UTC) or ``start`` (of the process). None: no dated line.
        event_counts: For each kind the number of lines seen, kept or not.
    """

    engine: str | None
    version: str | None
    n_lines: int
    resolved: dict[str, str | int | float | bool | None] = {}
    resolved_lines: dict[str, int] = {}
    non_default_args: dict[str, str | int | float | bool | None] = {}
    phases: tuple[Phase, ...] = ()
    ledger: Ledger = Ledger()
    capture_passes: tuple[CapturePass, ...] = ()
    events: tuple[LogEvent, ...] = ()
    findings: tuple[Finding, ...] = ()
    ledgers: dict[str, Ledger] = {}
    failures: tuple[Failure, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    inert_flags: tuple[InertFlag, ...] = ()
    boot: BootState = BootState()
    clock: str | None = None
    event_counts: dict[str, int] = {}


def counted(log: ServerLog, oom_kills: int | None) -> ServerLog:
    """Return a log with what was counted beside it while its server ran."""
    if oom_kills is None:
        return log
    boot = msgspec.structs.replace(log.boot, oom_kills=oom_kills)
    return msgspec.structs.replace(log, boot=boot)
