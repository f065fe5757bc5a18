"""The process between stepscope and a server: it alone starts, reaps and ends it.

``python -m stepscope.session.guard`` reads one JSON line (argv, environment, log, cpus,
grace_s, linger_s, scratch) from stdin, starts the server in a session of its own and
answers with JSON lines: ``{"pid"}`` or ``{"error"}``, then ``{"exit_code"}`` when the
server ends, then ``{"stopped"}`` once everything is gone, the scratch folder too. It
ends the server at ``stop`` or ``kill`` on stdin, at the end of stdin, at SIGTERM, and
when its parent is gone: that is what ends a server whose stepscope was killed with
``kill -9``.

It is a child subreaper: a worker that leaves the server's session, or whose parent
died, still is its descendant and can not be lost. Should the guard itself be killed,
the kernel sends the server SIGTERM (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from stepscope.clock import SystemClock

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_NS = 50_000_000
#: The kernel may need long to take back the memory of a killed GPU process.
_AFTER_KILL_NS = 20_000_000_000


@dataclass(slots=True)
class _Guarded:
    """The server and what has been told of its end.

    ``linger_ns``: how long what left the group may live on after the group has ended.
    """

    process: "subprocess.Popen[bytes]"
    parent: int
    grace_ns: int
    linger_ns: int
    announced: bool = False


def main() -> None:
    """Guard one server from its start to the end of its last descendant."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    parent = os.getppid()
    order = json.loads(_line())
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))
    scratch = order["scratch"]
    try:
        if scratch is not None:
            _make(scratch)
        process = _start(order, libc)
    except OSError as error:
        _clear(scratch)
        _say({"error": error.strerror or str(error), "file": error.filename})
        return
    _say({"pid": process.pid})
    grace_ns, linger_ns = (round(order[k] * 1e9) for k in ("grace_s", "linger_s"))
    guarded = _Guarded(process, parent, grace_ns, linger_ns)
    at_once = _await_order(guarded, terminated)
    ended = _stop(guarded, at_once=at_once)
    _clear(scratch)
    _say({"stopped": ended})


def _make(scratch: str) -> None:
    """Make a folder for us alone; what a killed guard left there goes first."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch)
    Path(scratch).mkdir(mode=0o700)


def _clear(scratch: str | None) -> None:
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def _line() -> bytes:
    """Read one line without reading ahead: what follows is watched by ``select``."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(1)
        line += byte
    return line


def _start(order: dict[str, Any], libc: ctypes.CDLL) -> "subprocess.Popen[bytes]":
    if order["cpus"]:
        os.sched_setaffinity(0, order["cpus"])  # the server inherits it

    def end_with_the_guard() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        return subprocess.Popen(  # noqa: S603  # the recipe's own command
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **order["environment"]},
            start_new_session=True,
            preexec_fn=end_with_the_guard,  # noqa: PLW1509  # there is one thread
        )
    finally:
        os.close(log)


def _await_order(guarded: _Guarded, terminated: list[int]) -> bool:
    """Wait until the server is to end; return True when without grace."""
    while True:
        _reap(guarded)
        if terminated or os.getppid() != guarded.parent:
            return False
        ready, _, _ = select.select([0], [], [], _TICK_NS / 1e9)
        if ready:
            return b"kill" in os.read(0, 4096)


def _reap(guarded: _Guarded) -> None:
    """Collect dead children: the server first, then the orphans that came to us."""
    code = guarded.process.poll()
    if code is None:
        return
    if not guarded.announced:
        guarded.announced = True
        _say({"exit_code": code})
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            continue
    except ChildProcessError:
        return


def _stop(guarded: _Guarded, *, at_once: bool) -> dict[str, object]:
    """End the group, then everything that left it; return what that took."""
    clock = SystemClock()
    group = guarded.process.pid
    killed = at_once or _outlives_term(guarded, group, clock)
    _signal_group(group, signal.SIGKILL)
    _pause(clock)
    leftovers = [] if at_once else _described(_alive(guarded))
    until = clock.now_ns() + _AFTER_KILL_NS
    while (alive := _alive(guarded)) and clock.now_ns() < until:
        for process in alive:
            _signal(process.pid)
        _pause(clock)
    return {
        "killed": killed,
        "leftovers": leftovers,
        "alive": _described(alive),
        "exit_code": guarded.process.poll(),
    }


def _outlives_term(guarded: _Guarded, group: int, clock: SystemClock) -> bool:
    """Ask the group to end; return True when some of it must be killed."""
    _signal_group(group, signal.SIGTERM)
    until = clock.now_ns() + guarded.grace_ns
    left_at: int | None = None
    while alive := _alive(guarded):
        now = clock.now_ns()
        if any(_group(p.pid) == group for p in alive):
            left_at = None
        elif left_at is None:
            left_at = now
        elif now - left_at > guarded.linger_ns:
            return False
        if now > until:
            return left_at is None
        _pause(clock)
        if select.select([0], [], [], 0)[0] and b"kill" in os.read(0, 4096):
            return True
    return False


def _pause(clock: SystemClock) -> None:
    clock.sleep_until(clock.now_ns() + _TICK_NS)


def _alive(guarded: _Guarded) -> list[psutil.Process]:
    _reap(guarded)
    alive = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
        except psutil.NoSuchProcess:
            continue
    return alive


def _described(processes: list[psutil.Process]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for process in processes:
        try:
            found.append({"pid": process.pid, "name": process.name()})
        except psutil.NoSuchProcess:
            continue
    return found


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _signal_group(group: int, what: signal.Signals) -> None:
    try:
        os.killpg(group, what)
    except ProcessLookupError:
        return


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _say(answer: dict[str, object]) -> None:
    """Write one line; a parent that is gone can not read it, and that is fine."""
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except OSError:
        return


if __name__ == "__main__":
    main()
