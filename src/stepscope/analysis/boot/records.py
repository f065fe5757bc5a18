"""What starts return: records."""

from typing import Literal

import msgspec

from stepscope.run.run import AppliedFix


class BootResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch: phases, ledger and verdict are those of `log --json`.

    Attributes:
        launch: Its name.
        ready: Whether it came up.
        seconds_to_ready: From the start of the process to ready; None: it never was.
        phases: Each with ``usd`` besides; they overlap, so neither seconds nor money
            add up.
        ledger: Memory of one GPU.
        verdict: Whether it came up and why not.
        log_path: Where its log lies.
        configuration: What was started.
        session: Where.
        cold: First start of its configuration in its session; None: not known.
        startup_usd: Price of the time to ready, or of the whole failed start.
        unnamed_s: Seconds of the start that are in no phase that the log tells.
        retry_of: The failed launch that it repeats.
        retried_by: The launch that repeats this one.
        applied_fixes: What was changed so that it boots.
    """

    launch: str
    ready: bool
    seconds_to_ready: float | None
    phases: tuple[dict[str, object], ...]
    ledger: dict[str, object]
    verdict: dict[str, object]
    log_path: str | None = None
    configuration: str | None = None
    session: str | None = None
    cold: bool | None = None
    startup_usd: float | None = None
    unnamed_s: float | None = None
    retry_of: str | None = None
    retried_by: str | None = None
    applied_fixes: tuple[AppliedFix, ...] = ()


class StartupPhase(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A phase of a configuration's start; medians, and what ran at the same time."""

    name: str
    cold_s: float | None
    warm_s: float | None
    overlaps: tuple[str, ...] = ()


class StartupCost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a configuration's start takes.

    ``cold``: its first start in the session; ``warm``: the median of the ``n_warm``
    later ones, which find the checkpoint in the page cache and kernels compiled.
    """

    configuration: str
    session: str
    cold_s: float | None
    warm_s: float | None
    n_warm: int
    cold_usd: float | None
    warm_usd: float | None
    phases: tuple[StartupPhase, ...] = ()


class BreakEven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When B, started at the same time as A, has produced as many tokens.

    Attributes:
        a: The configuration that is compared with.
        b: The other one.
        concurrency: Where both were measured.
        verdict: ``after``: B is ahead from ``hours`` on; ``until``: up to then;
            ``at-once``; ``never``; ``undetermined``: no difference is established.
        hours: From the start of both processes; None where there is no such instant.
        ci95_hours: From the interval of the difference alone.
        a_startup_s: What A's start takes.
        b_startup_s: What B's takes.
        startup: Which starts those are: ``cold`` or ``warm``.
        why: In words.
    """

    a: str
    b: str
    concurrency: int | None
    verdict: Literal["after", "until", "at-once", "never", "undetermined"]
    hours: float | None = None
    ci95_hours: tuple[float, float] | None = None
    a_startup_s: float | None = None
    b_startup_s: float | None = None
    startup: Literal["cold", "warm"] | None = None
    why: str = ""
