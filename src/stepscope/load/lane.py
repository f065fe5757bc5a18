"""The event loop of one client process: its slots, its stamps, its slices of decoding.

Order of work in one turn of the loop: every readable socket is read and stamped, then
at most one slice is decoded, then the sockets are looked at again. So a burst is
stamped before any of it is decoded.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepscope.clock import Clock
from stepscope.load.counts import Counts
from stepscope.load.spec import LoadSpec
from stepscope.load.stamps import Stamper
from stepscope.run.requests import Request
from stepscope.units import ns

if TYPE_CHECKING:
    from stepscope.load.slot import Slot

#: Longest decoding between two looks at the sockets.
_SLICE_NS = 50_000
#: The same for responses that have ended: the next sends hang on them. It is kept
#: short of a step, so that a whole wave that ends together does not hold up reading.
_ENDING_SLICE_NS = 1_000_000
#: A turn that begins this long after the sockets were looked at had slept in between.
_SLEPT_NS = 100_000
#: Merged reads that could have waited longer than this may be the client's doing.
_LATE_NS = 1_000_000
_READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request to send: its place in the cell's order and its bytes on the wire."""

    index: int
    request: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """Where the server listens, resolved: address family and socket address."""

    family: socket.AddressFamily
    address: Any


class Lane:
    """What the slots of one process share.

    Args:
        spec: What to do.
        worker: Number of this process.
        peer: The server.
        write: Takes each ended request and the pieces of its text, at once.
        clock: The monotonic clock.
    """

    def __init__(
        self,
        spec: LoadSpec,
        worker: int,
        peer: Peer,
        write: Callable[[Request, list[str] | None], None],
        clock: Clock,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.worker = worker
        self.peer = peer
        self.now = clock.now_ns
        self.output_tokens = spec.output_tokens
        self.keep_text = spec.keep_text
        self.header_timeout_ns = ns(spec.header_timeout_s)
        self.stall_timeout_ns = ns(spec.stall_timeout_s)
        self.connect_timeout_ns = ns(spec.connect_timeout_s)
        self.view = memoryview(bytearray(_READ_BYTES))
        self.buffers = [self.view]
        self.slots: list[Slot] = []
        self.over = asyncio.Event()
        self.stamper = Stamper(clock)
        self.counts = Counts(0, 0, clock)
        self._clock = clock
        self._write = write
        self._left: deque[Prompt] = deque()
        self._running = False
        self._start_at_ns = 0
        self._to_decode: deque[Slot] = deque()
        self._to_end: deque[Slot] = deque()
        self._to_start: deque[Slot] = deque()
        self._in_turn = False
        self._turn_at_ns = self._before_ns = self._looked_at_ns = clock.now_ns()

    # The cell.

    def start(self, prompts: list[Prompt]) -> None:
        """Give every slot its first request."""
        self._left.extend(prompts)
        self._running = True
        self.counts = Counts(len(self.slots), len(prompts), self._clock)
        self._to_start.extend(self.slots)
        self._start_at_ns = self.now()
        self._start_some()

    def _start_some(self) -> None:
        """Send first requests for one slice, then let the sockets be read."""
        began = now = self.now()
        while self._to_start and self._left and now < began + _ENDING_SLICE_NS:
            self._give(self._to_start.popleft(), self._start_at_ns)
            now = self.now()
        if not self._in_turn:
            self.counts.busy_ns += now - began
        if self._to_start and self._left:
            self.loop.call_soon(self._start_some)

    def stop(self) -> None:
        """Cancel what is in flight; what was never sent stays unrecorded."""
        self._left.clear()
        self.counts.dropped()
        for slot in self.slots:
            slot.cancel()
        self._end_if_over()

    def check(self) -> None:
        """Look at the clocks and at what takes too long; called now and then."""
        self.stamper.watch()
        self.counts.fold()
        now = self.now()
        for slot in self.slots:
            slot.check(now)

    def close(self) -> None:
        """Close all connections."""
        self._running = False
        for slot in self.slots:
            slot.close()
        self.stamper.close()

    def _give(self, slot: "Slot", free_at_ns: int) -> None:
        self.counts.taken()
        slot.take(self._left.popleft(), free_at_ns)

    def _end_if_over(self) -> None:
        if self._running and self.counts.over:
            self.over.set()

    # What slots tell.

    @property
    def n_connected(self) -> int:
        """Slots that have a connection."""
        return sum(slot.connected for slot in self.slots)

    def gone(self, slot: "Slot", kind: str, detail: str) -> None:
        """Hear that ``slot`` gave up connecting.

        While any connection stands, only its own request is lost. With none left the
        server is gone, and everything that is left has failed.
        """
        if any(other.connected for other in self.slots):
            slot.abandon(kind, detail)
            return
        left, self._left = self._left, deque()
        self.counts.dropped()
        for other in self.slots:
            other.abandon(kind, detail)
        now = self.now()
        for prompt in left:
            self.counts.never_sent()
            self._write(
                Request(
                    index=prompt.index,
                    worker=self.worker,
                    sent_at_ns=now,
                    ended_at_ns=now,
                    requested_output_tokens=self.output_tokens,
                    failure=kind,
                    failure_detail=f"never sent: {detail}",
                ),
                None,
            )
        self._end_if_over()

    def free(self, slot: "Slot", at_ns: int) -> None:
        """Hear that ``slot`` has been free since ``at_ns``."""
        if self._left:
            self._give(slot, at_ns)
        else:
            self._end_if_over()

    def record(
        self,
        request: Request,
        arrivals: npt.NDArray[np.int64],
        texts: list[str] | None,
        *,
        was_sent: bool,
    ) -> None:
        """Write an ended request and count it."""
        self._write(request, texts)
        self.counts.ended(request, arrivals, was_sent=was_sent)

    def merged(self, *, late: bool) -> None:
        """Hear of a read that held several content chunks."""
        self.counts.n_merged += 1
        self.counts.n_late_merged += late

    # The turn.

    def stamp(
        self, ancillary: list[tuple[int, int, bytes]], not_before_ns: int
    ) -> tuple[int, bool]:
        """Return when the bytes just read arrived, and whether they may have waited.

        Without a usable kernel stamp that is now, and the delay counted is a bound: a
        turn that slept began with the arrival; otherwise bytes that the look before
        did not show came after it.
        """
        now = self.now()
        if not self._in_turn:
            self._in_turn = True
            slept = now - self._looked_at_ns > _SLEPT_NS
            self._before_ns = now if slept else self._turn_at_ns
            self._turn_at_ns = now
            self.loop.call_soon(self._end_turn)
        counts = self.counts
        counts.n_reads += 1
        bound = now - self._before_ns
        arrival = self.stamper.arrival_ns(ancillary) if ancillary else None
        # A stamp from before the send or from the future is one of a stepped clock.
        if arrival is not None and not_before_ns <= arrival <= now:
            counts.delays.add(now - arrival)
            return arrival, bound > _LATE_NS
        counts.n_unstamped += 1
        counts.delays.add(bound)
        return now, bound > _LATE_NS

    def ended(self, slot: "Slot") -> None:
        """Decode the end of a response at once, or first of all in the next turn."""
        if self.now() - self._turn_at_ns < _ENDING_SLICE_NS:
            slot.decode()
        else:
            self._to_end.append(slot)

    def queue(self, slot: "Slot") -> None:
        """Decode what ``slot`` has read in one of the next slices."""
        slot.queued = True
        self._to_decode.append(slot)

    def _end_turn(self) -> None:
        """Decode one slice, then let the loop look at the sockets again."""
        ending, waiting = self._to_end, self._to_decode
        now = self.now()
        until = now + _ENDING_SLICE_NS
        while ending and now < until:
            ending.popleft().decode()
            now = self.now()
        until = now + _SLICE_NS
        while waiting and now < until:
            slot = waiting.popleft()
            slot.queued = False
            slot.decode()
            now = self.now()
        self._looked_at_ns = now
        self.counts.busy_ns += now - self._turn_at_ns
        if waiting or ending:
            self._before_ns, self._turn_at_ns = self._turn_at_ns, now
            self.loop.call_soon(self._end_turn)
        else:
            self._in_turn = False
