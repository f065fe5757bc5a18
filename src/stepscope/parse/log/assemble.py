"""State to record: the last step of reading a log."""

import re
from operator import attrgetter

import msgspec

from stepscope.findings import Finding
from stepscope.parse.log.ledger import all_ledgers
from stepscope.parse.log.state import PassFacts, State
from stepscope.run.serverlog import (
    BootState,
    CapturePass,
    Failure,
    LogEvent,
    Phase,
    ServerLog,
)

#: Releases whose wording was read, (major, minor, patch) inclusive.
KNOWN = {
    "vllm": ((0, 8, 0), (0, 33, 99)),
    "sglang": ((0, 4, 6), (0, 5, 23)),
}
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def assemble(
    state: State, *, n_lines: int, n_boots: int, truncated: bool, n_cut: int
) -> ServerLog:
    """Turn what was read into a ``ServerLog``."""
    ledger, ledgers = all_ledgers(state)
    events: list[LogEvent] = []
    for kept in state.events.values():
        events.extend(kept.events)
    events.sort(key=attrgetter("line"))
    phases = _overlapping(
        tuple(sorted(state.phases.values(), key=lambda phase: phase.line or 0))
    )
    passes = tuple(
        _capture_pass(purpose, found)
        for purpose in ("profile", "real")
        if (found := state.passes.get(purpose)) is not None and _worth(found)
    )
    return ServerLog(
        engine=state.engine,
        version=state.version,
        n_lines=n_lines,
        resolved=state.resolved,
        resolved_lines=state.resolved_lines,
        non_default_args=state.args,
        phases=phases,
        ledger=ledger,
        capture_passes=passes,
        events=tuple(events),
        findings=tuple(_findings(state, ledger.device_inferred, n_cut)),
        ledgers=ledgers,
        failures=tuple(_settled(state)),
        suggestions=tuple(state.suggestions),
        inert_flags=tuple(state.inert.values()),
        boot=_boot(state, n_boots, truncated),
        clock=state.clock,
        event_counts={kind: kept.n for kind, kept in state.events.items()},
    )


def _worth(found: PassFacts) -> bool:
    return bool(found.bars) or found.seconds is not None


def _capture_pass(purpose: str, found: PassFacts) -> CapturePass:
    return CapturePass(
        purpose=purpose,
        modes=tuple(found.bars),
        n_graphs=sum(found.bars.values()) or None,
        seconds=found.seconds,
        gib=round(found.gib, 2) if found.gib is not None else None,
        line=found.line,
    )


def _overlapping(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Name for each phase the others that ran at the same time for over a second."""

    def span(phase: Phase) -> tuple[float, float] | None:
        if phase.seconds is None or phase.ends_at_s is None:
            return None
        return phase.ends_at_s - phase.seconds, phase.ends_at_s

    result = []
    for phase in phases:
        mine = span(phase)
        names = []
        for other in phases:
            theirs = span(other)
            if other is phase or mine is None or theirs is None:
                continue
            # Ends are stamped to a whole second, so a second of overlap is no news.
            if min(mine[1], theirs[1]) - max(mine[0], theirs[0]) > 1.0:
                names.append(other.name)
        result.append(msgspec.structs.replace(phase, overlaps=tuple(names)))
    return tuple(result)


def _settled(state: State) -> list[Failure]:
    """Mark the failures that their process outlived."""
    settled = []
    for failure in state.failures:
        facts = state.process(failure.process)
        work = facts.last_work_line
        if failure.process is None:
            work = state.last_progress_line
        survived = work > failure.line
        settled.append(
            msgspec.structs.replace(failure, survived=True) if survived else failure
        )
    return settled


def _boot(state: State, n_boots: int, truncated: bool) -> BootState:
    shards = state.shards or (None, None, None)
    pinned = sum(state.pinned.values()) + state.pinned_shared_gib
    seconds = None
    if state.ready_at_s is not None and state.first_at_s is not None:
        took = round(state.ready_at_s - state.first_at_s, 3)
        seconds = took if took >= 0 else None
    return BootState(
        stage=state.anyone.stage if state.stage_line is not None else None,
        stage_line=state.stage_line,
        ready_line=state.ready_line,
        seconds_to_ready=seconds,
        shutdown_line=state.shutdown_line,
        first_at_s=state.first_at_s,
        last_at_s=state.last_at_s,
        last_progress_at_s=state.last_progress_at_s,
        last_progress_line=state.last_progress_line or None,
        n_stall_hints=state.n_stall_hints,
        shards_loaded=shards[0],
        shards_total=shards[1],
        load_s=shards[2],
        tracebacks=state.tracebacks,
        n_requests=state.n_requests,
        truncated=truncated,
        n_boots=n_boots,
        boot_line=state.boot_line,
        pinned_host_gib=round(pinned, 2) if pinned else None,
        checkpoint_gib=state.figures.get("checkpoint_gib"),
        host_memory_gib=state.figures.get("host_memory_gib"),
        oom_kills=0 if "oom_kills" in state.marks else None,
    )


def _findings(state: State, inferred: bool, n_cut: int) -> list[Finding]:
    found = []
    version = _unknown_version(state)
    if version is not None:
        found.append(version)
    for kind, kept in state.events.items():
        if kept.stride == 1:
            continue
        found.append(
            Finding(
                code="log-events-thinned",
                severity="info",
                message=(
                    f"{kept.n} {kind} lines; only about every {kept.stride}th is kept"
                ),
                hint="Split the log by time to keep them all.",
            )
        )
    if state.n_failures > len(state.failures):
        found.append(
            Finding(
                code="log-failures-capped",
                severity="info",
                message=(
                    f"{state.n_failures} failure lines; the first"
                    f" {len(state.failures)} are kept"
                ),
            )
        )
    if n_cut:
        found.append(
            Finding(
                code="log-lines-cut",
                severity="info",
                message=f"{n_cut} lines were longer than 256 KiB and were cut",
            )
        )
    if inferred:
        found.append(
            Finding(
                code="device-size-inferred",
                severity="info",
                message="no line prints the GPU's size; it was derived from others",
            )
        )
    found.extend(_untuned(state))
    return found


def _untuned(state: State) -> list[Finding]:
    """The autotuner's own out-of-memory warnings, as one finding."""
    kept = state.events.get("autotune")
    events = kept.events if kept is not None else ()
    count = sum(1 for e in events if e.code == "autotune-oom")
    if not count:
        return []
    return [
        Finding(
            code="autotune-oom",
            severity="warning",
            message=(
                f"the autotuner ran out of GPU memory {count} times and fell back to"
                " default tactics: the server runs untuned kernels"
            ),
            hint=(
                "The cache was sized before the autotuner ran. Lower"
                " --gpu-memory-utilization so that it has room."
            ),
        )
    ]


def _unknown_version(state: State) -> Finding | None:
    if state.engine not in KNOWN:
        if state.engine is None:
            return Finding(
                code="unknown-log-version",
                severity="warning",
                message="this is no log of an engine that is known here",
                hint="Known are vLLM, SGLang and llama-server.",
            )
        return None
    low, high = KNOWN[state.engine]
    if state.version is None:
        if state.engine == "sglang":
            return None
        return Finding(
            code="unknown-log-version",
            severity="warning",
            message=f"the log does not say which version of {state.engine} wrote it",
            hint="Lines are read by their wording; what does not match is left out.",
        )
    hit = _VERSION.match(state.version)
    number = tuple(int(part or 0) for part in hit.groups()) if hit else None
    if number is not None and low <= number <= high and "dev" not in state.version:
        return None
    return Finding(
        code="unknown-log-version",
        severity="warning",
        message=(
            f"{state.engine} {state.version} is outside the releases whose wording is"
            f" known ({'.'.join(map(str, low))} to {high[0]}.{high[1]})"
        ),
        hint="What still matches is shown; other lines are left out.",
    )
