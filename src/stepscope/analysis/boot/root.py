"""The first failure in time over all processes, not one of its wrappers."""

from dataclasses import dataclass

from stepscope.run.serverlog import Failure, ServerLog

#: Failures this close belong to one cascade, in which a worker speaks for the cause.
CASCADE_S = 15.0
CASCADE_LINES = 400

_ROLE_RANK = {"kernel": 0, "worker": 0, "engine": 1, "other": 2, "api": 3}
#: Follow from another rank's end as often as they are a cause of their own.
_WEAK = frozenset({"nccl-system-error", "exception"})
_NOT_ROOTS = frozenset({"wrapper", "error", "collateral", "killed", "kernel-oom-kill"})
_FATAL_TEXT = (
    "EngineCore encountered",
    "EngineDeadError",
    "Engine core proc",
    "Worker proc",
    "died unexpectedly",
    "AsyncEngineDeadError",
    "MQEngineDeadError",
    "Scheduler hit an exception",
    "Received sigquit",
    "WorkerProc hit an exception",
    "terminating server process",
)


@dataclass(frozen=True, slots=True)
class Root:
    """What is known of the first failure.

    Attributes:
        failure: The root; None for a death without a word.
        silent: A process vanished without any traceback.
        fatal_line: The line that says that the server is gone; None if none does.
        kernel: The kernel's own record of a kill.
        exit_code: Negative for a signal; from the caller or the log.
        exit_line: The log's line with the exit code.
    """

    failure: Failure | None
    silent: bool
    fatal_line: Failure | None
    kernel: Failure | None
    exit_code: int | None
    exit_line: Failure | None


def find_root(log: ServerLog, exit_code: int | None) -> Root | None:
    """Return the root of the failure, or None when nothing in the log failed."""
    serving = log.boot.ready_line is not None
    relevant = [
        f for f in log.failures if f.after_ready == serving and not f.after_shutdown
    ]
    kernel = _kernel(log)
    exited = next(
        (
            f
            for f in relevant
            if f.signature == "killed" and _code(f) not in (None, 0, 1, -15, 143)
        ),
        None,
    )
    code = _normal(exit_code)
    if exited is not None:
        code = _code(exited)
    fatal = next((f for f in relevant if _is_fatal(f, serving=serving)), None)
    if serving:
        if fatal is None and exited is None and not _abrupt(log, code):
            return None
        relevant = _near(relevant, fatal or exited)
    candidates = [f for f in relevant if f.signature not in _NOT_ROOTS]
    candidates = [f for f in candidates if not (f.survived and _may_survive(f))]
    if fatal is None and code in (None, 0):
        candidates = [f for f in candidates if not _is_missed_in_passing(f)]
    own = [f for f in candidates if not f.is_quoted]
    candidates = own or candidates
    first = _detail(_compiler(_first(candidates), candidates), candidates)
    if first is not None:
        return Root(first, silent=False, fatal_line=fatal, kernel=kernel,
                    exit_code=code, exit_line=exited)  # fmt: skip
    orderly = code in (None, 0, -2, -15) or (serving and code == -9)
    if fatal is None and exited is None and kernel is None and orderly:
        return None
    silent = not any(f.signature == "error" and f.exception for f in relevant)
    return Root(None, silent=silent, fatal_line=fatal, kernel=kernel, exit_code=code,
                exit_line=exited)  # fmt: skip


def _kernel(log: ServerLog) -> Failure | None:
    """The kernel's record of a kill; the line that names the process, if there is one.

    A line that says who asked for memory stands before it, and the figures behind it.
    """
    ours = [f for f in log.failures if f.signature == "kernel-oom-kill" and _ours(f)]
    named = (f for f in ours if "name" in f.names)
    return next(named, next(iter(ours), None))


def _first(candidates: list[Failure]) -> Failure | None:
    if not candidates:
        return None
    start = min(candidates, key=lambda f: f.line)
    cascade = [
        f
        for f in candidates
        if f.line - start.line <= CASCADE_LINES
        and (f.at_s is None or start.at_s is None or f.at_s - start.at_s <= CASCADE_S)
    ]
    return min(
        cascade,
        key=lambda f: (_is_weak(f), _ROLE_RANK.get(f.role, 2), f.line),
    )


def _is_weak(failure: Failure) -> bool:
    return _is_missed_in_passing(failure) or failure.signature in _WEAK


def _is_missed_in_passing(failure: Failure) -> bool:
    """A package that is missed outside any traceback may be one that nobody needs."""
    return failure.signature == "missing-package" and not failure.frames


def _detail(first: Failure | None, candidates: list[Failure]) -> Failure | None:
    """A validation error's first line says nothing; what was refused follows it."""
    if first is None or "validation error" not in first.text:
        return first
    inner = (
        f
        for f in candidates
        if first.line < f.line <= first.line + 6 and f.process == first.process
    )
    return next(inner, first)


def _compiler(first: Failure | None, candidates: list[Failure]) -> Failure | None:
    """A failed build wraps the compiler's own line, which follows it."""
    if first is None or "Ninja build failed" not in first.text:
        return first
    inner = (
        f
        for f in candidates
        if f.signature == "toolchain"
        and first.line < f.line <= first.line + CASCADE_LINES
        and "Ninja build failed" not in f.text
    )
    return next(inner, first)


def _may_survive(failure: Failure) -> bool:
    """Going on with the work clears an exception, not an exhausted memory."""
    return failure.signature in (
        "exception",
        "missing-package",
        "toolchain",
        "unsupported-arch",
        "model-not-found",
        "bad-argument",
        "port-in-use",
        "unbalanced-memory",
        "collective-timeout",
    )


def _is_fatal(failure: Failure, *, serving: bool) -> bool:
    if failure.signature == "kernel-oom-kill":
        # A counter without a name may have counted something else, or an earlier start.
        return _ours(failure) and (not serving or "name" in failure.names)
    if not serving:
        return failure.signature == "wrapper" or failure.is_quoted
    return failure.signature in ("wrapper", "killed") and any(
        words in failure.text for words in _FATAL_TEXT
    )


def _near(failures: list[Failure], fatal: Failure | None) -> list[Failure]:
    """Failures of the fall of a serving server; refused requests are not among them."""
    if fatal is None:
        return []
    return [
        f
        for f in failures
        if f.line >= fatal.line - CASCADE_LINES
        and (f.at_s is None or fatal.at_s is None or f.at_s >= fatal.at_s - CASCADE_S)
    ]


def _abrupt(log: ServerLog, code: int | None) -> bool:
    """A serving server ended by itself: a crash signal or an error code."""
    if log.boot.shutdown_line is not None or code is None:
        return False
    return code not in (0, -2, -9, -15)


def _ours(failure: Failure) -> bool:
    name = failure.names.get("name", "").lower()
    words = ("vllm", "python", "sglang", "llama", "ray", "pt_main", "engine", "worker")
    return not name or any(word in name for word in words)


def _code(failure: Failure) -> int | None:
    if "exit_code" in failure.numbers:
        return _normal(int(failure.numbers["exit_code"]))
    if "signal" in failure.numbers:
        return -int(failure.numbers["signal"])
    word = failure.names.get("bare") or failure.names.get("signal") or ""
    if word.startswith(("Killed", "SIGKILL")):
        return -9
    if "segfault" in failure.names or word.startswith(("Segmentation", "SIGSEGV")):
        return -11
    if word.startswith(("Aborted", "SIGABRT")):
        return -6
    return -15 if word == "SIGTERM" else None


def _normal(code: int | None) -> int | None:
    """A shell reports a signal as 128 plus its number."""
    if code is not None and 128 < code < 160:
        return 128 - code
    return code
