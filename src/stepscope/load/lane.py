"""The event loop of one client process: its slots, its stamps, its slices of decoding.

Order of work in one turn of the loop: every readable socket is read and stamped, then
at most one slice is decoded, then the sockets are looked at again. So a burst is
stamped before any of it is decoded, but for pieces that are known at sight.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stepscope.clock import Clock
from stepscope.load.conversation import Talk
from stepscope.load.counts import Counts
from stepscope.load.limits import limits_of
from stepscope.load.spec import LoadSpec
from stepscope.load.stamps import Stamper
from stepscope.load.stock import Prompt, Stock
from stepscope.load.waking import Waking
from stepscope.load.wire import Peer
from stepscope.run.requests import Request
from stepscope.units import ns

if TYPE_CHECKING:
    from stepscope.load.pacing import Pacer
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


class Lane:
    """What the slots of one process share.

    Args:
        spec: What to do.
        worker: Number of this process.
        peers: The servers; slots are dealt over them in turn.
        write: Takes each ended request and the pieces of its text, at once.
        clock: The monotonic clock.
        ahead_ns: What it is ahead of the parent's by.
    """

    def __init__(
        self,
        spec: LoadSpec,
        worker: int,
        peers: Sequence[Peer],
        write: Callable[[Request, list[str] | None], None],
        clock: Clock,
        ahead_ns: int = 0,
    ) -> None:
        self._ahead_ns = ahead_ns
        self.loop = asyncio.get_running_loop()
        self.worker = worker
        self.peers = peers
        self.now = clock.now_ns
        self.endpoint = spec.endpoint
        self.output_tokens = spec.output_tokens
        self.keep_text = spec.keep_text
        self.limits = limits_of(spec)
        self.connect_timeout_ns = ns(spec.connect_timeout_s)
        self.slots: list[Slot] = []
        self.new_slot: Callable[[], Slot] | None = None
        self.over = asyncio.Event()
        self.stamper = Stamper(clock)
        self.waking = Waking(self.loop, clock)
        self.counts = Counts(0, 0, clock)
        self._clock = clock
        self._write = write
        self._capped = spec.arrivals is None or spec.concurrency is not None
        self._open_loop = spec.arrivals is not None
        self._pacer: Pacer | None = None
        self._left = Stock()
        self._following: dict[int, Prompt] = {}
        self._running = False
        self._start_at_ns = 0
        self._to_decode: deque[Slot] = deque()
        self._to_end: deque[Slot] = deque()
        self._to_start: deque[Slot] = deque()
        self._in_turn = False
        self._turn_at_ns = self._before_ns = self._looked_at_ns = clock.now_ns()
        self._read_at_ns = self._turn_at_ns

    # The cell.

    def start(self, stock: Stock, at_ns: int) -> None:
        """Give every slot its first request, or in an open loop those that are due.

        Args:
            stock: What is to be sent.
            at_ns: The common start, which a schedule counts from.
        """
        self._left = stock
        self._running = True
        self.waking.start()
        n_held = 0 if self._open_loop else len(self.slots)
        self.counts = Counts(n_held, stock.n_requests, self._clock, self._ahead_ns)
        if self._open_loop:
            from stepscope.load.pacing import Pacer  # numpy: 13 MB

            grows = not self._capped
            self._pacer = Pacer(self, stock, self._clock, grows=grows)
            self.counts.offer(at_ns, self._pacer.offered_ns)
            self._pacer.begin(at_ns)
            self._end_if_over()
            return
        self._to_start.extend(self.slots)
        self._start_at_ns = self.now()
        self._start_some()

    def _start_some(self) -> None:
        """Send first requests for one slice, then let the sockets be read."""
        began = now = self.now()
        while self._to_start and len(self._left) and now < began + _ENDING_SLICE_NS:
            self.give(self._to_start.popleft(), self._left.take(), self._start_at_ns)
            now = self.now()
        self.worked(began)
        if self._to_start and len(self._left):
            self.loop.call_soon(self._start_some)

    def stop(self) -> None:
        """Cancel what is in flight; what was never sent stays unrecorded."""
        self._running, was_running = False, self._running
        self._left.clear()
        self.counts.dropped()
        for slot in self.slots:
            slot.cancel()
        self._running = was_running
        self._end_if_over()

    def check(self) -> None:
        """Look at the clocks and at what takes too long; called now and then."""
        self.stamper.watch()
        now = self.now()
        for slot in self.slots:
            slot.check(now)

    def close(self) -> None:
        """Close all connections."""
        self._running = False
        if self._pacer is not None:
            self._pacer.close()
        self._left.close()
        for slot in self.slots:
            slot.close()
        self.waking.close()
        self.stamper.close()

    def give(self, slot: "Slot", prompt: Prompt, from_ns: int) -> None:
        """Let ``slot`` carry ``prompt``, which could go since ``from_ns``."""
        self.counts.taken()
        slot.take(prompt, from_ns, scheduled=self._open_loop)

    def worked(self, since_ns: int) -> None:
        """Count time in which the loop was busy outside of a turn."""
        if not self._in_turn:
            self.counts.busy_ns += self.now() - since_ns

    def grown(self) -> "Slot":
        """Return a further slot, not yet connected."""
        assert self.new_slot is not None
        slot = self.new_slot()
        self.slots.append(slot)
        return slot

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
        while len(self._left):
            prompt = self._left.take()
            self._never_sent(prompt, kind, f"never sent: {detail}")
            if prompt.talk is not None:
                self._break_off(prompt.talk)
        for other in list(self.slots):
            other.abandon(kind, detail)
        self._end_if_over()

    def _never_sent(self, prompt: Prompt, kind: str, detail: str) -> None:
        """Record a request that failed before any slot took it."""
        now = self.now()
        self.counts.never_sent()
        self._write(
            Request(
                index=prompt.index,
                worker=self.worker,
                sent_at_ns=now,
                ended_at_ns=now,
                requested_output_tokens=prompt.output_tokens or self.output_tokens,
                failure=kind,
                failure_detail=detail,
                conversation=None if prompt.talk is None else prompt.talk.number,
                turn=prompt.turn,
            ),
            None,
        )

    def _break_off(self, talk: Talk) -> None:
        """Record the turns that a failed one leaves without their history."""
        for prompt in talk.break_off():
            self._never_sent(prompt, "abandoned", "an earlier turn failed")

    def free(self, slot: "Slot", at_ns: int) -> None:
        """Hear that ``slot`` has been free since ``at_ns``.

        A conversation goes on at once, over the connection that it has.
        """
        following = self._following.pop(slot.number, None)
        if following is not None:
            self.give(slot, following, at_ns)
        elif self._pacer is not None:
            self._pacer.freed(slot)
            self._end_if_over()
        elif len(self._left):
            self.give(slot, self._left.take(), at_ns)
        else:
            self._end_if_over()

    def record(
        self,
        request: Request,
        arrivals: Sequence[int],
        texts: list[str] | None,
        talk: Talk | None,
        *,
        was_sent: bool,
    ) -> None:
        """Write an ended request and count it; ``talk`` is what it was a turn of."""
        self._write(request, texts)
        self.counts.ended(request, arrivals, was_sent=was_sent)
        if talk is None or not self._running:
            return
        if not request.ok:
            self._break_off(talk)
            return
        following = talk.go_on("".join(texts or []))
        if following is not None:
            self._following[request.slot] = following

    def merged(self, *, late: bool) -> None:
        """Hear of a read that held several content chunks."""
        self.counts.n_merged += 1
        self.counts.n_late_merged += late

    # The turn.

    def stamp(self, ancillary: list[tuple[int, int, bytes]], not_before_ns: int) -> int:
        """Return when the bytes just read arrived.

        Without a usable kernel stamp that is now, and the delay counted is a bound: a
        turn that slept began with the arrival, or later by as much as the process may
        have woken late; otherwise bytes that the look before did not show came after
        it.
        """
        now = self.now()
        if not self._in_turn:
            self._begin_turn(now)
        self._read_at_ns = now
        arrival = self.stamper.arrival_ns(ancillary) if ancillary else None
        # A stamp from before the send or from the future is one of a stepped clock.
        if arrival is not None and not_before_ns <= arrival <= now:
            self.counts.delays.add(now - arrival)
            return arrival
        self.counts.n_unstamped += 1
        self.counts.delays.add(now - self._before_ns)
        return now

    @property
    def late(self) -> bool:
        """True when the bytes stamped last may have waited here."""
        return self._read_at_ns - self._before_ns > _LATE_NS

    def _begin_turn(self, now: int) -> None:
        """Find out since when bytes that are read in this turn may have waited."""
        self._in_turn = True
        self._before_ns = self._turn_at_ns
        gap = now - self._looked_at_ns
        if gap > _LATE_NS:
            self._before_ns = now - min(self.waking.late_ns(now), gap)
        elif gap > _SLEPT_NS:  # it can not have woken late by much
            self._before_ns = now
        self._turn_at_ns = now
        self.loop.call_soon(self._end_turn)

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
