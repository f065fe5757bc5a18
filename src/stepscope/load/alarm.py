"""Waking at an instant: a timer of the kernel's, because loops round to milliseconds.

uvloop's timers have a grain of 1 ms. A timerfd is as exact as the scheduler and costs
nothing while it waits.
"""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable

from stepscope.clock import Clock

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCKING_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
#: ``struct itimerspec``: interval and value, seconds and nanoseconds each.
_pack = struct.Struct("@qqqq").pack


class Alarm:
    """Calls back once at each instant that it is set to.

    Args:
        loop: The event loop.
        clock: Its instants must be those of CLOCK_MONOTONIC for a kernel timer.
        ring: Called when the instant has come.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        ring: Callable[[], None],
    ) -> None:
        self._loop, self._clock, self._ring = loop, clock, ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _timer(self._libc)
        self._handle: asyncio.TimerHandle | None = None
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._on_timer)

    def set(self, at_ns: int) -> None:
        """Ring at the monotonic instant ``at_ns``; at once where it is past."""
        if self._descriptor < 0:
            wait_s = max(at_ns - self._clock.now_ns(), 0) / 1e9
            self._handle = self._loop.call_later(wait_s, self._ring)
            return
        # An absolute time of 0 would disarm it.
        spec = _pack(0, 0, *divmod(max(at_ns, 1), 1_000_000_000))
        self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, spec, None)

    def _on_timer(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)
            self._ring()

    def close(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def _timer(libc: ctypes.CDLL) -> int:
    """Return a timer's descriptor; -1 where the system has none."""
    try:
        return int(libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCKING_CLOEXEC))
    except AttributeError:
        return -1
