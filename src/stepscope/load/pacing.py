"""The open loop of one client process: requests go out when they are due.

A request that is due takes an idle connection; where none is idle one more is opened,
unless the number in flight is capped: then it waits, and its latency counts from when
it was due all the same.
"""

from typing import TYPE_CHECKING

import numpy as np

from stepscope.clock import Clock
from stepscope.load.alarm import Alarm
from stepscope.load.arrivals import pace
from stepscope.load.stock import Stock

if TYPE_CHECKING:
    from stepscope.load.lane import Lane
    from stepscope.load.slot import Slot

#: Connections kept open beyond those in use, so that no request waits for one.
SPARES = 8
#: Longest sending between two looks at the sockets.
_SLICE_NS = 1_000_000


class Pacer:
    """Hands out a worker's stock by its schedule.

    Args:
        lane: Whose slots carry the requests.
        stock: Requests in the order in which they are due.
        grows: More connections may be opened.
        clock: The monotonic clock.
    """

    def __init__(
        self, lane: "Lane", stock: Stock, clock: Clock, *, grows: bool
    ) -> None:
        self._lane, self._stock, self._grows = lane, stock, grows
        self._due = np.array(stock.due_ns(), np.int64)
        self._idle: list[Slot] = list(reversed(lane.slots))
        self._start_at_ns = 0
        self._n_released = self._n_taken = 0
        self._pending = False
        self._alarm = Alarm(lane.loop, clock, self._ring)

    @property
    def offered_ns(self) -> int:
        """From the start to when the last request is due."""
        return int(self._due[-1]) if len(self._due) else 0

    def begin(self, at_ns: int) -> None:
        """Start the schedule at ``at_ns``."""
        self._start_at_ns = at_ns
        self._ring()

    def freed(self, slot: "Slot") -> None:
        """Hear that ``slot`` has nothing to do."""
        self._idle.append(slot)
        if self._n_taken < self._n_released:
            self._hand_out()

    def close(self) -> None:
        """Send nothing more."""
        self._alarm.close()

    def _ring(self) -> None:
        began = self._lane.now()
        step = pace(self._due, began - self._start_at_ns, self._n_released)
        self._n_released += step.n_due
        self._hand_out()
        if step.wait_ns is not None:
            self._alarm.set(self._start_at_ns + int(self._due[self._n_released]))
        self._lane.worked(began)

    def _hand_out(self) -> None:
        """Send what is due for one slice, then let the sockets be read."""
        self._pending = False
        lane = self._lane
        now = began = lane.now()
        while len(self._stock) and self._n_taken < self._n_released:
            slot = self._slot()
            if slot is None:
                lane.counts.capped = True
                return
            if now > began + _SLICE_NS:
                self._idle.append(slot)
                self._later()
                return
            self._n_taken += 1
            prompt = self._stock.take()
            lane.give(slot, prompt, self._start_at_ns + (prompt.due_ns or 0))
            now = lane.now()
        while self._grows and len(self._idle) < min(SPARES, len(self._stock)):
            slot = lane.grown()
            slot.connect()
            self._idle.insert(0, slot)

    def _later(self) -> None:
        if not self._pending:
            self._pending = True
            self._lane.loop.call_soon(self._hand_out)

    def _slot(self) -> "Slot | None":
        """Return a slot with nothing to do, one that was used last if any is."""
        if self._idle:
            return self._idle.pop()
        return self._lane.grown() if self._grows else None
