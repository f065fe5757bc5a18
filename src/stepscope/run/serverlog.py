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
    """

    name: str
    seconds: float | None
    process: str | None = None
    line: int | None = None


class Ledger(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory budget of one GPU in GiB, as the log tells it; None: it does not."""

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


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that means something to an analysis.

    Attributes:
        kind: ``jit``, ``autotune``, ``preemption``, ``stall-hint``, ``error``,
            ``ready``, ``stats`` or ``iteration``.
        line: 1-based line of the log.
        text: The message, without its frame.
        at_s: The log's own clock in seconds. Without a year or zone it counts from
            the start of the year as if it were UTC; the importer or the archive
            places it on the timeline.
        at_ns: The same instant on the run's timeline; None until placed.
        error_ns: How far the true instant may lie from ``at_ns`` (a log with a
            one-second clock: 1e9).
        process: The process that logged it.
        numbers: Named figures of the line (an iteration's elapsed_ms, n_running...).
    """

    kind: str
    line: int
    text: str
    at_s: float | None = None
    at_ns: int | None = None
    error_ns: int | None = None
    process: str | None = None
    numbers: dict[str, float] = {}


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
    ``resolved_lines`` holds for each resolved setting the 1-based line that said it.
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
