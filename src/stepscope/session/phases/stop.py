"""Stop: end the server, and show that nothing of it is left."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from stepscope.archive.layout import SERVER_LOG
from stepscope.findings import Finding
from stepscope.run.run import Launch
from stepscope.session.context import Context
from stepscope.session.server import Server, Stopped
from stepscope.session.watch.host import cgroup_memory_files, oom_kills
from stepscope.session.watch.kernel import KernelLog
from stepscope.units import NS_PER_MS, NS_PER_S, gib

_GPU_BACK_NS = 20 * NS_PER_S
_POLL_NS = 100 * NS_PER_MS
#: A driver keeps a little after a process has gone; no server lives on so little.
_GPU_SLACK_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Before:
    """What there was before a boot.

    Attributes:
        gpu_bytes: Memory in use of each GPU; empty where none can be seen or is ours.
        oom_kills: Kills that our control group had counted; None: it does not count.
        kernel: The kernel's log from then on; None: nothing boots.
    """

    gpu_bytes: list[int | None]
    oom_kills: int | None
    kernel: KernelLog | None = None


def before_boot(context: Context) -> Before:
    """Look at what a launch may change and must leave as it was."""
    if not context.engine.boots:
        return Before([], None)
    gpus = context.site.gpus
    return Before(
        [] if gpus is None else gpus.used_bytes(),
        oom_kills(cgroup_memory_files()),
        KernelLog(),
    )


def stopped(context: Context, launch: Launch, server: Server, before: Before) -> Launch:
    """End a launch: the server and its descendants, and what they held of the GPUs.

    Args:
        context: The session.
        launch: As it was last recorded.
        server: Ended first, before anything is written.
        before: What there was before the boot.

    Returns:
        The launch as it was recorded last.
    """
    context.observer.phase("stop", launch.name)
    end = server.stop()
    told = () if before.kernel is None else before.kernel.close()
    if launch.started_at_ns is not None:
        code = server.exit_code()
        launch = msgspec.structs.replace(
            launch,
            stopped_at_ns=context.clock.now_ns(),
            exit_code=code,
            oom_kills=_kills_since(before),
            kernel_lines=told,
        )
        context.book.put_launch(launch)
    for finding in (
        *_said_by_kernel(launch, told),
        *_left(launch, end),
        *_held(context, launch, before.gpu_bytes),
    ):
        context.book.put_finding(finding)
    return launch


def _kills_since(before: Before) -> int | None:
    now = oom_kills(cgroup_memory_files())
    if now is None or before.oom_kills is None:
        return None
    return now - before.oom_kills


def keep_foreign_log(context: Context, launch: Launch) -> None:
    """Copy the log of a server that we did not start into the run."""
    server = context.recipe.server
    if server is None or server.log_file is None:
        return
    try:
        shutil.copyfile(server.log_file, context.launch_folder(launch) / SERVER_LOG)
    except FileNotFoundError:
        context.book.put_finding(
            Finding(
                code="no-server-log",
                severity="warning",
                message=f"{server.log_file} does not exist",
                hint="Set server.log_file in the recipe.",
                launch=launch.name,
            )
        )


def _said_by_kernel(launch: Launch, told: tuple[str, ...]) -> Iterator[Finding]:
    if told:
        more = f", and {len(told) - 1} more lines" if len(told) > 1 else ""
        yield Finding(
            code="kernel-log",
            severity="warning",
            message=f"while {launch.name} ran, the kernel logged:"
            f" {told[0][:300]}{more}",
            hint="It names the process or the device; whether it is the server's own"
            " stands in the line.",
            launch=launch.name,
        )


def _left(launch: Launch, end: Stopped) -> Iterator[Finding]:
    for process in end.leftovers:
        yield Finding(
            code="orphan-process",
            severity="warning",
            message=f"{process.name} (pid {process.pid}) had left the process group of"
            f" {launch.name}, outlived it and was killed",
            launch=launch.name,
        )
    for process in end.alive:
        yield Finding(
            code="orphan-process",
            severity="error",
            message=f"{process.name} (pid {process.pid}) of {launch.name} did not end",
            hint=f"It may hold GPU memory. Try: kill -9 {process.pid}",
            launch=launch.name,
        )


def _held(
    context: Context, launch: Launch, before: list[int | None]
) -> Iterator[Finding]:
    """Wait for GPU memory to come back; name each GPU where it does not.

    Whose it is can not be known from inside a container, so no process is accused.
    """
    clock, gpus = context.clock, context.site.gpus
    if gpus is None or not before:
        return
    until = clock.now_ns() + _GPU_BACK_NS
    while (more := _more(before, gpus.used_bytes())) and clock.now_ns() < until:
        if context.halt.hurry.is_set():
            break
        clock.sleep_until(clock.now_ns() + _POLL_NS)
    for index, by in more.items():
        yield Finding(
            code="orphan-process",
            severity="warning",
            message=f"{gib(by):.1f} GiB more of GPU {index} are in use after the end"
            f" of {launch.name} than before it began",
            hint="Nothing of the server lives that can be seen from here. See what"
            " nvidia-smi lists, also on the host.",
            launch=launch.name,
        )


def _more(before: list[int | None], now: list[int | None]) -> dict[int, int]:
    return {
        i: new - old
        for i, (old, new) in enumerate(zip(before, now, strict=True))
        if old is not None and new is not None and new > old + _GPU_SLACK_BYTES
    }
