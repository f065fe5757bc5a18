"""A server: one that we start and must end, or one that runs already."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from stepscope.errors import SessionError
from stepscope.recipe.schema import cpu_set
from stepscope.session.halt import Halt

_GRACE_S = 10.0
_LINGER_S = 3.0
#: The guard's own limits, and some seconds more.
_GUARD_S = _GRACE_S + 30.0
_POLL_S = 0.05


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A process that did not end with its server."""

    pid: int
    name: str


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a server ended.

    Attributes:
        killed: Its group did not end when asked and was killed.
        leftovers: What had left the group and had to be killed by pid.
        alive: What lives still.
        exit_code: Of the server, negative for a signal.
    """

    killed: bool = False
    leftovers: tuple[Left, ...] = ()
    alive: tuple[Left, ...] = ()
    exit_code: int | None = None


class Server(Protocol):
    """What the phases may know of a server."""

    def start(self) -> None:
        """Start it."""
        ...

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""
        ...

    def roots(self) -> set[int]:
        """Return the process ids under which all of it is found."""
        ...

    def stop(self) -> Stopped:
        """End it and all its descendants; return when they are gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOrder:
    """What to start.

    Attributes:
        command: Program and arguments.
        environment: Added to what we inherited.
        log: Receives standard output and error as they come.
        cpus: Processors such as ``0-3``; None: inherited.
        grace_s: How long it may take to end when asked.
        linger_s: How long what left its process group may outlive the group.
        scratch: A folder that is new when it starts and gone when it has ended, even
            if we were killed; None: it needs none.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    cpus: str | None = None
    grace_s: float = _GRACE_S
    linger_s: float = _LINGER_S
    scratch: str | None = None


class LocalServer:
    """A server in a session of its own, under a guard that outlives us."""

    def __init__(self, order: ServerOrder, halt: Halt) -> None:
        self._order, self._halt = order, halt
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._exit_code: int | None = None
        self._stopped: Stopped | None = None
        self._heard: threading.Thread | None = None

    def start(self) -> None:
        """Start it.

        Raises:
            SessionError: The program can not be started, or processors are not ours.
        """
        order = self._order
        asked = {
            "argv": order.command,
            # A server that buffers its log would take the last lines with it.
            "environment": {"PYTHONUNBUFFERED": "1", **order.environment},
            "log": str(order.log.absolute()),
            "cpus": sorted(_cpus(order.cpus)),
            "grace_s": order.grace_s,
            "linger_s": order.linger_s,
            "scratch": order.scratch,
        }
        with order.log.open("ab", buffering=0) as log:
            self._guard = subprocess.Popen(  # our own module
                [sys.executable, "-P", "-m", "stepscope.session.guard"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._tell(json.dumps(asked))
        assert self._guard.stdout is not None
        answer = _decoded(self._guard.stdout.readline())
        if "pid" not in answer:
            self._guard.wait()
            self._guard.stdout.close()
            self._hang_up()
            error = answer.get("error", "its guard did not start")
            raise SessionError(order.command[0], f"can not be started: {error}")
        self._pid = answer["pid"]
        self._heard = threading.Thread(
            target=self._listen, args=(self._guard.stdout,), daemon=True
        )
        self._heard.start()

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""
        if self._exit_code is None and self._guard_is_gone():
            # Killed from outside: the kernel then asks the server to end.
            return -signal.SIGTERM
        return self._exit_code

    def roots(self) -> set[int]:
        """Return the guard's process id: every process of the server is below it."""
        return set() if self._guard is None else {self._guard.pid}

    def stop(self) -> Stopped:
        """End it and all its descendants: asked first, then killed."""
        if self._guard is None or self._pid is None or self._heard is None:
            return Stopped()
        hurried = self._halt.hurry.is_set()
        self._tell("kill" if hurried else "stop")
        for _ in range(round((_GUARD_S + self._order.grace_s) / _POLL_S)):
            self._heard.join(_POLL_S)
            if not self._heard.is_alive():
                break
            if self._halt.hurry.is_set() and not hurried:
                hurried = True
                self._tell("kill")
        if self._stopped is None:
            self._end_without_guard()
        self._guard.wait()
        self._hang_up()
        return self._stopped or Stopped(exit_code=self.exit_code())

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            answer = _decoded(line)
            if "exit_code" in answer:
                self._exit_code = answer["exit_code"]
            if "stopped" in answer:
                self._stopped = msgspec.convert(answer["stopped"], Stopped)
                if self._exit_code is None:
                    self._exit_code = self._stopped.exit_code
        stream.close()

    def _guard_is_gone(self) -> bool:
        return self._heard is not None and not self._heard.is_alive()

    def _end_without_guard(self) -> None:
        """Do what is left to do when the guard was killed or hangs."""
        assert self._guard is not None
        assert self._pid is not None
        self._guard.kill()
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _hang_up(self) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()

    def _tell(self, word: str) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(word.encode() + b"\n")
            self._guard.stdin.flush()


class RunningServer:
    """A server that somebody else started; it is neither started nor ended here."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._pids = set(pids)

    def start(self) -> None:
        """Do nothing."""

    def exit_code(self) -> int | None:
        """Return None: whether it lives shows in its answers."""
        return None

    def roots(self) -> set[int]:
        """Return the process ids that the recipe gave."""
        return self._pids

    def stop(self) -> Stopped:
        """Do nothing."""
        return Stopped()


def _cpus(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset()
    wanted, ours = cpu_set(text) or frozenset(), os.sched_getaffinity(0)
    if not wanted <= ours:
        raise SessionError(
            "cpus",
            f"processors {sorted(wanted - ours)} are not ours",
            f"ours are {sorted(ours)}",
        )
    return wanted


def _decoded(line: bytes) -> dict[str, Any]:
    answer = json.loads(line) if line.strip() else {}
    return answer if isinstance(answer, dict) else {}
