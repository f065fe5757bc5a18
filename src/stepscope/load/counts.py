"""What one client process counts about its cell, for the client's verdict on itself."""

import resource
from bisect import bisect_left
from collections.abc import Sequence

from stepscope.clock import Clock
from stepscope.load.messages import Tally
from stepscope.load.spec import LoadProgress
from stepscope.load.spread import Spread
from stepscope.run.requests import Request
from stepscope.units import NS_PER_S


class Counts:
    """Counters of one cell in one process.

    Attributes:
        delays: Time that bytes waited in this process, one for each read that brought
            bytes of a response.
        n_unstamped: Those without a usable kernel stamp.
        n_merged: Those that held more than one content chunk.
        n_late_merged: Merged ones that may have waited here.
        busy_ns: Time in which the loop was not asleep.
        n_left: Requests that no slot has taken yet.
        capped: A request that was due found no slot and none might be opened.
    """

    def __init__(
        self, n_slots: int, n_left: int, clock: Clock, ahead_ns: int = 0
    ) -> None:
        self._ahead_ns = ahead_ns
        self.delays = Spread()
        self.n_unstamped = self.n_merged = self.n_late_merged = 0
        self.busy_ns = 0
        self.n_left = n_left
        self._n_slots = n_slots
        self._now = clock.now_ns
        self._late_sends = Spread()
        self._n_open = self._in_flight = 0
        self._n_sent = self._n_ok = self._n_failed = 0
        self._n_ended_chunks = self._n_chunks = self._tokens = 0
        self._tpot_sum_ns, self._n_tpot = 0.0, 0
        self._by_second: dict[int, int] = {}
        self._held_ns = self._blocked_ns = self._asked_ns = 0
        self.capped = False
        self._offered_ns: int | None = None
        self._offered_from_ns = self._planned_at_ns = 0
        self._started_at_ns = self._area_at_ns = clock.now_ns()
        self._cpu_ns = _cpu_ns()

    @property
    def over(self) -> bool:
        """True when every request has ended."""
        return not self.n_left and not self._n_open

    def taken(self) -> None:
        """Count a request that a slot took."""
        self._settle()
        self.n_left -= 1
        self._n_open += 1

    def offer(self, from_ns: int, span_ns: int) -> None:
        """Take note of a schedule: its start, and how long it is."""
        self._offered_ns, self._offered_from_ns = span_ns, from_ns

    def sent(self, late_ns: int, *, planned: bool = False) -> None:
        """Count a request that was sent this long after it could go.

        ``planned``: by a schedule; a later turn of a conversation is not.
        """
        self._settle()
        self._n_sent += 1
        self._in_flight += 1
        self._late_sends.add(max(late_ns, 0))
        if planned:
            self._planned_at_ns = self._now()

    def dropped(self) -> None:
        """Count out everything that no slot has taken."""
        self._settle()
        self.n_left = 0

    def ended(
        self, request: Request, arrivals: Sequence[int], *, was_sent: bool
    ) -> None:
        """Count a request that a slot had taken and that has ended.

        ``arrivals``: the instants of its content chunks, ascending.
        """
        self._settle()
        self._n_open -= 1
        self._in_flight -= was_sent
        self._n_ended_chunks += request.n_chunks
        at, by_second = 0, self._by_second
        while at < len(arrivals):
            second = (arrivals[at] - self._ahead_ns) // NS_PER_S
            ends_at_ns = (second + 1) * NS_PER_S + self._ahead_ns
            until = bisect_left(arrivals, ends_at_ns, at)
            by_second[second] = by_second.get(second, 0) + until - at
            at = until
        if not request.ok:
            self._n_failed += 1
            return
        self._n_ok += 1
        self._n_chunks += request.n_chunks
        self._tokens += request.output_tokens or 0
        tpot_ns = request.tpot_ns
        if tpot_ns is not None:
            self._tpot_sum_ns += tpot_ns
            self._n_tpot += 1

    def never_sent(self) -> None:
        """Count a request that failed before any slot took it."""
        self.n_left -= 1
        self._n_failed += 1

    def fold(self) -> None:
        """Keep memory bounded; called now and then."""
        self.delays.fold()
        self._late_sends.fold()

    def _settle(self) -> None:
        """Carry the integrals up to now, as long as requests are left to send."""
        now = self._now()
        if self.n_left:
            span = now - self._area_at_ns
            self._asked_ns += span * self._n_slots
            self._held_ns += span * self._in_flight
            # A request in a slot's hand and not in flight waits for a connection.
            self._blocked_ns += span * (self._n_open - self._in_flight)
        self._area_at_ns = now

    def progress(self) -> LoadProgress:
        """Return how far it is."""
        return LoadProgress(
            n_sent=self._n_sent,
            n_done=self._n_ok,
            n_failed=self._n_failed,
            n_chunks=self._n_ended_chunks,
            output_tokens=self._tokens,
            in_flight=self._in_flight,
        )

    def tally(
        self, loop: str, clock_step_ns: int, waited_ns: int | None = None
    ) -> Tally:
        """Return everything that was counted."""
        return Tally(
            loop=loop,
            n_ok=self._n_ok,
            n_failed=self._n_failed,
            n_reads=self.delays.n,
            n_unstamped=self.n_unstamped,
            n_merged=self.n_merged,
            n_late_merged=self.n_late_merged,
            delays=self.delays.to_bytes(),
            late_sends=self._late_sends.to_bytes(),
            busy_ns=self.busy_ns,
            cpu_ns=_cpu_ns() - self._cpu_ns,
            wall_ns=self._now() - self._started_at_ns,
            n_slots=self._n_slots,
            held_ns=self._held_ns,
            blocked_ns=self._blocked_ns,
            asked_ns=self._asked_ns,
            chunks_by_second=self._by_second,
            n_chunks=self._n_chunks,
            output_tokens=self._tokens,
            tpot_sum_ns=self._tpot_sum_ns,
            n_tpot=self._n_tpot,
            clock_step_ns=clock_step_ns,
            waited_ns=waited_ns,
            offered_ns=self._offered_ns,
            achieved_ns=self._achieved_ns(),
            capped=self.capped,
        )

    def _achieved_ns(self) -> int | None:
        if self._offered_ns is None or not self._planned_at_ns:
            return None
        return max(self._planned_at_ns - self._offered_from_ns, 1)


def _cpu_ns() -> int:
    """Return the CPU time of this process, user and system, nanoseconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round((used.ru_utime + used.ru_stime) * NS_PER_S)
