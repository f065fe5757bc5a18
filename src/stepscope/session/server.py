"""A server: one that we start and must end, or one that runs already."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from stepscope.clock import Clock
from stepscope.errors import SessionError
from stepscope.recipe.schema import cpu_set
from stepscope.session.host import tree

_TERM_GRACE_NS = 15_000_000_000
_KILL_GRACE_NS = 10_000_000_000
_POLL_NS = 100_000_000


class Server(Protocol):
    """What the phases may know of a server."""

    def start(self) -> None:
        """Start it."""
        ...

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""
        ...

    def roots(self) -> set[int]:
        """Return its process ids, without descendants."""
        ...

    def stop(self) -> set[int]:
        """End it; return the processes that would not end."""
        ...


class LocalServer:
    """A server in a process group of its own, watched so that none outlives us.

    Args:
        command: Program and arguments.
        environment: Added to what we inherited.
        log: Receives its standard output and error, unbuffered, as they come.
        cpus: Processors such as ``0-3``; None: inherited.
        clock: For waiting.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        environment: dict[str, str],
        log: Path,
        cpus: str | None,
        clock: Clock,
    ) -> None:
        self._command, self._environment = command, environment
        self._log, self._cpus, self._clock = log, cpus, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[int] = set()

    def start(self) -> None:
        """Start it under the guard, which ends it when we are killed.

        Raises:
            SessionError: The program can not be started.
        """
        command = list(self._command)
        guard = [sys.executable, "-m", "stepscope.session.guard", str(os.getpid())]
        if self._cpus:
            wanted = cpu_set(self._cpus) or frozenset()
            missing = wanted - os.sched_getaffinity(0)
            if missing:
                raise SessionError(
                    "cpus",
                    f"processors {sorted(missing)} are not ours",
                    f"there are {sorted(os.sched_getaffinity(0))}",
                )
            guard += ["--cpus", self._cpus]
        with self._log.open("ab", buffering=0) as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # the recipe's own command
                    [*guard, "--", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise SessionError(command[0], str(error)) from error

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""
        if self._process is None:
            return None
        code = self._process.poll()
        # The guard exits as a shell would: 128 + signal.
        return code if code is None or code <= 128 else 128 - code

    def roots(self) -> set[int]:
        """Return the process ids that were seen, descendants included.

        Descendants are remembered: vLLM's engine processes may leave the group, and
        when their parent dies nothing else leads to them.
        """
        if self._process is not None:
            self._seen |= tree({self._process.pid} | self._seen)
        return {pid for pid in self._seen if Path(f"/proc/{pid}").exists()}

    def stop(self) -> set[int]:
        """End the group and every descendant: asked first, then killed."""
        if self._process is None:
            return set()
        self.roots()
        for sign, grace in (
            (signal.SIGTERM, _TERM_GRACE_NS),
            (signal.SIGKILL, _KILL_GRACE_NS),
        ):
            self._signal(sign)
            until = self._clock.now_ns() + grace
            while self._clock.now_ns() < until:
                self._process.poll()
                if not self._alive():
                    return set()
                self._clock.sleep_until(self._clock.now_ns() + _POLL_NS)
        return self._alive()

    def _signal(self, sign: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, sign)
        for pid in self._alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sign)

    def _alive(self) -> set[int]:
        self._seen |= tree(self._seen)
        return tree(self._seen)


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

    def stop(self) -> set[int]:
        """Do nothing."""
        return set()
