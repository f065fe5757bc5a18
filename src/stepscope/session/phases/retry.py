"""Retry: a boot that failed is tried again where its own log names a safe change.

Safe is a change that lets the server come up and leaves alone what is measured; the
table ``SAFE`` holds all of them. A value always comes from the figures of the failed
log. What another process caused is retried unchanged, once its memory is back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope.archive.layout import SERVER_LOG
from stepscope.findings import Finding, Severity
from stepscope.parse.serverlog import parse_log
from stepscope.recipe.records import LaunchPlan
from stepscope.run.run import AppliedFix, Launch
from stepscope.run.serverlog import BootVerdict, ServerLog, counted
from stepscope.session.context import Context
from stepscope.session.phases.freed import wait_for_room
from stepscope.session.phases.safe import safe_fix

_PIECE_BYTES = 1 << 22

#: First fixes that no flag of ours answers: another process has to give memory back.
_OUTSIDE = frozenset({"other process on the GPU", "start order"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a launch's server.

    Attributes:
        plan: Under the attempt's own name and with its own flags.
        base: Name of the plan's launch, which the first attempt bears.
        number: Retries before this attempt.
        retry_of: The failed launch that it repeats; None for the first.
        fixes: Where its command differs from its configuration's.
    """

    plan: LaunchPlan
    base: str
    number: int = 0
    retry_of: str | None = None
    fixes: tuple[AppliedFix, ...] = ()


def first_attempt(context: Context, plan: LaunchPlan) -> Attempt:
    """Return the first start of a launch, with what its configuration is known to need.

    All launches of a configuration shall run one command, so what one of them needed
    to boot the later ones are started with.
    """
    fixes = context.fixes.get(plan.configuration.name, ())
    return Attempt(plan=_changed(plan, fixes), base=plan.name, fixes=fixes)


def next_attempt(
    context: Context, attempt: Attempt, launch: Launch, oom_kills: int | None
) -> Attempt | None:
    """Return what to start after a boot that failed; None: nothing would be better.

    Args:
        context: The session.
        attempt: What was started; its server has ended.
        launch: As it was recorded when it had failed, before it was ended.
        oom_kills: Counted while it ran.
    """
    if (
        attempt.number >= context.recipe.boot.retry
        or context.doctor is None
        or context.halt.asked.is_set()
    ):
        return None
    log = counted(_log_of(context, launch), oom_kills)
    verdict = context.doctor(log, launch.exit_code)
    why: str | None
    if verdict.outcome != "failed" or not verdict.fixes:
        why = "its log names no fix"
    elif verdict.fixes[0].flag in _OUTSIDE:
        why = wait_for_room(context, attempt.plan.configuration, log)
        if why is None:
            return _unchanged(context, attempt, launch, verdict)
    else:
        fix, why = safe_fix(context, attempt.plan, verdict)
        if fix is not None:
            return _with_fix(context, attempt, launch, fix, verdict)
    _say(
        context,
        "boot-not-retried",
        launch.name,
        f"{launch.name} failed ({verdict.cause or verdict.outcome}) and is not tried"
        f" again: {why}",
    )
    return None


def booted(context: Context, attempt: Attempt) -> None:
    """Note that an attempt came up, and what it needed."""
    name = attempt.plan.configuration.name
    without = context.fixes.get(name) == ()
    context.fixes[name] = attempt.fixes
    if not attempt.fixes:
        return
    changes = " and ".join(_words(fix) for fix in attempt.fixes)
    last = attempt.fixes[-1]
    text = (
        f"{attempt.plan.name} runs with {changes}: without it {last.failed_launch} did"
        f" not boot ({last.cause}). It is the smallest change that the failed log's"
        " figures call for, not an optimization"
    )
    if without:
        text += "; earlier launches of the configuration ran without it"
    _say(
        context,
        "boot-fixed",
        attempt.plan.name,
        text,
        hint="What was measured there belongs to the changed command. Write the flag"
        " into the recipe; into [baseline] where configurations are compared.",
    )


def _log_of(context: Context, launch: Launch) -> ServerLog:
    path = context.launch_folder(launch) / SERVER_LOG
    return parse_log(_pieces(path), context.engine.log_format)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except FileNotFoundError:
        return


def _with_fix(
    context: Context,
    attempt: Attempt,
    launch: Launch,
    fix: AppliedFix,
    verdict: BootVerdict,
) -> Attempt:
    kept = tuple(f for f in attempt.fixes if f.flag != fix.flag)
    context.observer.note(
        "warning",
        f"{launch.name} failed ({verdict.cause}); it is tried again with {_words(fix)}",
    )
    return _again(attempt, launch, (*kept, fix))


def _unchanged(
    context: Context, attempt: Attempt, launch: Launch, verdict: BootVerdict
) -> Attempt:
    again = _again(attempt, launch, attempt.fixes)
    _say(
        context,
        "boot-retried",
        again.plan.name,
        f"{launch.name} failed ({verdict.cause}) because of another process;"
        f" {again.plan.name} is the same command, started when GPU memory was free",
        severity="info",
    )
    return again


def _again(attempt: Attempt, launch: Launch, fixes: tuple[AppliedFix, ...]) -> Attempt:
    number = attempt.number + 1
    name = f"{attempt.base}-try{number}"
    plan = msgspec.structs.replace(
        attempt.plan,
        name=name,
        cells=tuple(
            msgspec.structs.replace(cell, launch=name) for cell in attempt.plan.cells
        ),
    )
    return Attempt(
        plan=_changed(plan, fixes),
        base=attempt.base,
        number=number,
        retry_of=launch.name,
        fixes=fixes,
    )


def _changed(plan: LaunchPlan, fixes: tuple[AppliedFix, ...]) -> LaunchPlan:
    configuration = plan.configuration
    flags = {**configuration.flags, **{f.flag: f.value for f in fixes}}
    return msgspec.structs.replace(
        plan, configuration=msgspec.structs.replace(configuration, flags=flags)
    )


def _words(fix: AppliedFix) -> str:
    before = "the engine's default" if fix.before is None else f"{fix.before}"
    return f"--{fix.flag} {fix.value} instead of {before}"


def _say(
    context: Context,
    code: str,
    launch: str,
    message: str,
    *,
    hint: str = "",
    severity: Severity = "warning",
) -> None:
    context.book.put_finding(
        Finding(code=code, severity=severity, message=message, hint=hint, launch=launch)
    )
