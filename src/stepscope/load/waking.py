"""How late this process may have woken when the loop found its sockets readable.

A loop that slept can not tell by its own clock whether bytes came just now or whether
nobody let it run. Two things can: the scheduler counts how long the process waited for
a core (Linux, ``/proc/self/schedstat``), and a heartbeat that is overdue shows whatever
else held it up: a stop signal, or another thread that keeps the interpreter.
"""

import asyncio
import os
from pathlib import Path

from stepscope.clock import Clock

_SCHEDSTAT = Path("/proc/self/schedstat")
_BEAT_S = 0.01
#: uvloop's timers are rounded up to milliseconds.
_GRAIN_NS = 2_000_000


class Waking:
    """Watches how the loop wakes, from ``start`` to ``close``.

    Args:
        loop: The event loop.
        clock: The monotonic clock.
        schedstat: Where the scheduler says what it counted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        schedstat: Path = _SCHEDSTAT,
    ) -> None:
        self._loop, self._now = loop, clock.now_ns
        self._descriptor = -1
        if schedstat.exists():
            self._descriptor = os.open(schedstat, os.O_RDONLY | os.O_CLOEXEC)
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns: int | None = None
        self._asked_ns = self._first_ns = self._waited()

    def start(self) -> None:
        """Start the heartbeat and count from here."""
        self._asked_ns = self._first_ns = self._waited()
        self._beat()

    def _beat(self) -> None:
        self._due_ns = self._now() + round(_BEAT_S * 1e9)
        self._handle = self._loop.call_later(_BEAT_S, self._beat)

    def _waited(self) -> int:
        """Return how long this process has waited for a core; 0: not known."""
        if self._descriptor < 0:
            return 0
        return int(os.pread(self._descriptor, 96, 0).split()[1])

    def late_ns(self, now_ns: int) -> int:
        """Return by how much the wake-up just seen may have been late.

        It is what the process waited for a core since it was last asked, or by how
        much the heartbeat is overdue, whichever is more.
        """
        waited = self._waited()
        late, self._asked_ns = waited - self._asked_ns, waited
        if self._due_ns is not None and now_ns - self._due_ns > _GRAIN_NS:
            late = max(late, now_ns - self._due_ns)
        return late

    @property
    def waited_ns(self) -> int | None:
        """Waited for a core since ``start``, nanoseconds; None: the system is mute."""
        return None if self._descriptor < 0 else self._waited() - self._first_ns

    def close(self) -> None:
        """Stop the heartbeat."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
