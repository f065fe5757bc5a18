"""A parsed log to a verdict: ready, failed with a cause, or unfinished."""

from collections.abc import Callable

from stepscope.analysis.boot.advice import Advice
from stepscope.analysis.boot.cache import no_kv_advice, small_kv_advice
from stepscope.analysis.boot.causes import cause_of, pins_host_memory
from stepscope.analysis.boot.host import (
    hang_advice,
    ray_advice,
    silent_cause,
    waiting,
)
from stepscope.analysis.boot.oom import oom_advice
from stepscope.analysis.boot.root import Root, find_root
from stepscope.analysis.boot.setup import ADVICE as SETUP
from stepscope.analysis.boot.tenants import (
    free_memory_advice,
    mamba_advice,
    race_advice,
)
from stepscope.run.serverlog import BootVerdict, Failure, ServerLog

_ADVICE: dict[str, Callable[[Failure, ServerLog], Advice]] = {
    "no-kv-memory": no_kv_advice,
    "kv-smaller-than-context": small_kv_advice,
    "free-memory-below-request": free_memory_advice,
    "memory-race": race_advice,
    "mamba-blocks": mamba_advice,
    **SETUP,
}


def diagnose(log: ServerLog, *, exit_code: int | None = None) -> BootVerdict:
    """Say whether the server came up, and if not, why.

    Args:
        log: The parsed log.
        exit_code: Of the server's first process where it is known; negative, or 128
            plus a number, for a signal.

    Returns:
        ``ready`` for a server that came up, served and was stopped in an orderly way;
        ``failed`` with a cause (``unknown`` where the log does not tell) for one that
        did not come up or fell while serving; ``unfinished`` where the log ends first.
    """
    root = find_root(log, exit_code)
    if root is None:
        return _no_failure(log, exit_code)
    if root.failure is None:
        return _without_words(root, log)
    failure = root.failure
    cause = cause_of(failure, log)
    if root.kernel is not None and cause == "unknown":
        return _without_words(root, log)
    if cause.startswith("gpu-oom"):
        advice = oom_advice(cause, failure, log)
    elif cause == "host-oom-kill":
        advice = ray_advice(log)
    elif cause == "hang":
        advice = hang_advice(log, failure.text)
    elif cause in _ADVICE:
        advice = _ADVICE[cause](failure, log)
    else:
        advice = _unknown(failure)
    return BootVerdict(
        outcome="failed",
        cause=cause,
        root_line=failure.line,
        process=failure.process,
        why=_came_up_first(log) + advice.why,
        fixes=tuple(advice.fixes),
        wrong_readings=(*advice.wrong, *_wrapper_reading(root)),
    )


def _no_failure(log: ServerLog, exit_code: int | None) -> BootVerdict:
    boot = log.boot
    if boot.ready_line is not None:
        why = f"The server says that it serves in line {boot.ready_line}"
        if boot.seconds_to_ready is not None:
            why += f", {boot.seconds_to_ready:.0f} s after its first line"
        if boot.shutdown_line is not None:
            why += f"; it was stopped in an orderly way in line {boot.shutdown_line}"
        elif exit_code in (-9, 137):
            why += "; it was ended by SIGKILL, by its supervisor or for want of host"
            why += " memory (dmesg or memory.events tells), and could not say so"
        return BootVerdict(
            outcome="ready", why=why + ".", wrong_readings=_harmless(log)
        )
    if boot.shutdown_line is not None:
        return BootVerdict(
            outcome="unfinished",
            why="The start-up was stopped from outside in line"
            f" {boot.shutdown_line}; nothing had failed before.",
        )
    cause, why, wrong = waiting(log)
    return BootVerdict(
        outcome="failed" if cause is not None else "unfinished",
        cause=cause,
        root_line=boot.last_progress_line if cause is not None else None,
        why=why,
        fixes=tuple(hang_advice(log).fixes) if cause == "hang" else (),
        wrong_readings=tuple(wrong),
    )


def _without_words(root: Root, log: ServerLog) -> BootVerdict:
    cause, advice = silent_cause(root, log)
    line = root.kernel or root.exit_line or root.fatal_line
    return BootVerdict(
        outcome="failed",
        cause=cause,
        root_line=line.line if line is not None else None,
        process=line.process if line is not None else None,
        why=_came_up_first(log) + advice.why,
        fixes=tuple(advice.fixes),
        wrong_readings=tuple(advice.wrong),
    )


def _came_up_first(log: ServerLog) -> str:
    if log.boot.ready_line is None:
        return ""
    return f"The server came up (line {log.boot.ready_line}) and fell while serving. "


def _unknown(failure: Failure) -> Advice:
    advice = Advice(
        why=f"The first failure is: {failure.text[:300].rstrip('.')}. It is none of"
        " the causes that are known here."
    )
    if failure.frames:
        advice.why += f" It was raised in {failure.frames[-1]}."
    if failure.signature == "gpu-oom":
        advice.why = "GPU memory ran out, and the log does not show in which phase of"
        advice.why += f" the start: its head is missing. {failure.text[:200]}"
    if failure.signature == "host-alloc" or pins_host_memory(failure):
        size = failure.numbers.get("buffer_gib", failure.numbers.get("asked_gib"))
        advice.why = "Host memory could not be allocated"
        advice.why += f" ({size:.2f} GiB)" if size is not None else ""
        advice.why += f", not the GPU's; nothing was killed: {failure.text[:200]}"
        if "hierarchical cache" in failure.text:
            effect = "a smaller cache on the host; the message has the figures"
            advice.fix("--hicache-ratio", "lower", None, effect, "medium")
        advice.fix(
            "memory limit of the container",
            "raise",
            round(size * 1.25, 1) if size is not None else None,
            "at least this much on top of what is in use",
            "low",
        )
    if "Gloo connectFullMesh" in failure.text:
        advice.fix(
            "GLOO_SOCKET_IFNAME",
            "set",
            "the interface on which the hosts reach each other",
            "the ranks could not connect: the host's name leads to an address that"
            " others do not reach",
            "medium",
        )
    if failure.signature == "illegal-access":
        advice.fix(
            "CUDA_LAUNCH_BLOCKING",
            "set",
            "1",
            "makes the failing kernel raise where it is launched; such errors are"
            " reported late",
            "medium",
        )
    return advice


def _wrapper_reading(root: Root) -> tuple[str, ...]:
    wrapper = root.fatal_line
    if wrapper is None or root.failure is None or wrapper.signature != "wrapper":
        return ()
    if wrapper.line == root.failure.line:
        return ()
    return (
        f'Line {wrapper.line} ("{wrapper.text[:60].rstrip(".")}") is the cause: it only'
        f" reports what line {root.failure.line} says.",
    )


def _harmless(log: ServerLog) -> tuple[str, ...]:
    readings = []
    hints = log.event_counts.get("stall-hint", 0)
    if hints:
        readings.append(
            f"{hints} hints of a missing broadcast block mean a hang: the start-up went"
            " on after them."
        )
    if any(f.code == "autotune-oom" for f in log.findings):
        readings.append(
            "The autotuner's out-of-memory warnings are harmless: it fell back to"
            " untuned kernels, and the server serves with those."
        )
    return tuple(readings)
