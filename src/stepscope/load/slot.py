"""One slot: a kept connection and the request that it carries.

Arriving bytes are stamped; one more ordinary piece of the answer is counted at sight,
everything else is put aside. Decoding waits for the loop's next slice, except that the
end of a response is decoded at once, because the next send hangs on it.
"""

import struct
from collections.abc import Iterable
from enum import Enum
from itertools import accumulate

from stepscope.load.connection import Connection
from stepscope.load.lane import Lane
from stepscope.load.limits import FURTHER, Seen
from stepscope.load.response import Response
from stepscope.load.stock import Prompt
from stepscope.run.requests import Request

_MAX_ATTEMPTS = 3
#: Waits between attempts to connect; a server that is gone must not be hammered.
_BACKOFF_S = (0.1, 0.4)
#: How a chunked response ends.
_LAST_CHUNK = b"0\r\n\r\n"


class State(Enum):
    """Where a slot stands with its connection."""

    CLOSED = "closed"
    CONNECTING = "connecting"
    IDLE = "idle"
    BUSY = "busy"


#: Asked about with each read; looking it up in its class takes as long as asking.
_BUSY = State.BUSY
#: Stands for the response of a slot that has sent nothing: its own would be 1.8 KB,
#: and held for good by its parser.
_NONE_YET = Response()
_NONE_YET.release()


class Slot:
    """A slot.

    Attributes:
        number: Its number in the cell.
        state: Of its connection.
        prompt: The request in its hand; None: none.
        queued: It waits to be decoded.
        trouble: Why its first connection failed: failure kind and detail.
    """

    __slots__ = (
        "_attempts",
        "_event_at_ns",
        "_free_at_ns",
        "_fresh",
        "_lane",
        "_line",
        "_pending",
        "_read_at_ns",
        "_replica",
        "_response",
        "_retried",
        "_scheduled",
        "_sent_at_ns",
        "number",
        "prompt",
        "queued",
        "state",
        "trouble",
    )

    def __init__(self, number: int, lane: Lane) -> None:
        self.number = number
        self.state = State.CLOSED
        self.prompt: Prompt | None = None
        self.queued = False
        self.trouble: tuple[str, str] | None = None
        self._lane = lane
        peers = lane.peers
        self._replica = number % len(peers) if len(peers) > 1 else None
        self._line = Connection(lane, self, peers[number % len(peers)])
        self._response = _NONE_YET
        self._pending: list[tuple[bytes, int, bool]] = []
        self._attempts = 0
        self._sent_at_ns = self._free_at_ns = 0
        self._read_at_ns = self._event_at_ns = 0
        self._fresh = self._retried = False
        self._scheduled = False

    @property
    def connected(self) -> bool:
        """True when its connection stands."""
        return self.state in {State.IDLE, State.BUSY}

    @property
    def _asked(self) -> int | None:
        """Tokens that the request in hand asks for; None: unknown."""
        prompt = self.prompt
        return (prompt and prompt.output_tokens) or self._lane.output_tokens

    # Connecting.

    def connect(self) -> None:
        """Start to open the connection; the lane hears how it went."""
        self.state = State.CONNECTING
        self._line.open()

    def opened(self) -> None:
        """Hear that the connection stands."""
        self._attempts = 0
        self._fresh = True
        self.state = State.IDLE
        if self.prompt is not None:
            self._send()

    def not_opened(self, kind: str, detail: str) -> None:
        """Hear that it could not be opened."""
        self.close()
        if self.prompt is None:  # before the clock starts nothing is retried
            self.trouble = (kind, detail)
            return
        self._attempts += 1
        if self._attempts >= _MAX_ATTEMPTS:
            self._attempts = 0
            self._lane.gone(self, kind, f"{detail} ({_MAX_ATTEMPTS} attempts)")
            return
        wait_s = _BACKOFF_S[min(self._attempts, len(_BACKOFF_S)) - 1]
        self._lane.loop.call_later(wait_s, self._connect_again)

    def _connect_again(self) -> None:
        if self.state is State.CLOSED and self.prompt is not None:
            self.connect()

    def close(self) -> None:
        """Close the connection and forget what came over it."""
        self._line.close()
        self._pending.clear()
        self.state = State.CLOSED

    # Sending.

    def take(self, prompt: Prompt, free_at_ns: int, *, scheduled: bool = False) -> None:
        """Carry ``prompt``, which could go since ``free_at_ns``.

        In a closed loop that is when the slot was free; ``scheduled``: when it was
        due.
        """
        self.prompt = prompt
        self._free_at_ns = free_at_ns
        self._scheduled = scheduled
        self._retried = False
        self._sent_at_ns = 0
        if self.state is State.IDLE:
            self._fresh = False
            self._send()
        elif self.state is State.CLOSED:
            self.connect()

    def _send(self) -> None:
        assert self.prompt is not None
        keep_text = self._lane.keep_text or self.prompt.talk is not None
        self._response = Response(self._lane.endpoint, keep_text=keep_text)
        self.state = State.BUSY
        now = self._lane.now()
        if not self._sent_at_ns:
            planned = self.prompt.due_ns is not None
            self._lane.counts.sent(now - self._free_at_ns, planned=planned)
        self._sent_at_ns = self._read_at_ns = self._event_at_ns = now
        self._line.send(self.prompt.rest)

    # Receiving.

    def received(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        """Take bytes that were read just now, and what the kernel said of them."""
        lane = self._lane
        if self.state is not _BUSY:  # nobody asked: not a connection to trust
            self.close()
            return
        self._read_at_ns = at_ns = lane.stamp(ancillary, self._sent_at_ns)
        if not self._pending and self._response.takes_at_sight(data, at_ns):
            self._event_at_ns = at_ns
            return
        self._pending.append((data, at_ns, lane.late))
        if data.endswith(_LAST_CHUNK):
            lane.ended(self)
        elif not self.queued:
            lane.queue(self)

    def input_ended(self, kind: str, detail: str) -> None:
        """Hear that nothing more will come over the connection."""
        if self.state is not State.BUSY:
            self._rest()
            return
        self.decode()
        if self.state is not State.BUSY:
            self._rest()
        elif self._response.end_of_input():
            self._ended(self._response.failure())
        else:
            self._lost(kind, detail)

    def _rest(self) -> None:
        """Close a connection that carries nothing.

        One that the next request is opening already is another one.
        """
        if self.state is State.IDLE:
            self.close()

    def broke(self, kind: str, detail: str) -> None:
        """Hear that the connection takes no more."""
        if self.state is State.BUSY:
            self._lost(kind, detail)

    def decode(self) -> None:
        """Decode what has been put aside."""
        pending, self._pending = self._pending, []
        response = self._response
        before = response.n_events
        for data, at_ns, late in pending:
            n = response.feed(data, at_ns)
            if n > 1:
                self._lane.merged(late=late)
            if response.complete:
                self._ended(response.failure())
                return
        if response.n_events != before:
            self._event_at_ns = self._read_at_ns

    # Ending.

    def check(self, now_ns: int) -> None:
        """End what has taken too long, or came to too much."""
        if self.state is State.CONNECTING:
            self._line.check(now_ns)
            return
        limits, response = self._lane.limits, self._response
        if response.has_bytes and self.state is _BUSY and self.prompt is not None:
            self.prompt.rest = b""  # what was answered is not sent again
        if (
            now_ns - self._event_at_ns <= limits.surely_ns
            and now_ns - self._sent_at_ns <= limits.total_ns
            and response.n_events <= FURTHER
            and (response.stream.output_tokens or 0) <= FURTHER
        ) or self._over_limit(now_ns) is None:  # the first costs a quarter
            return
        self.decode()  # what lies here unread may be what was missed, or the end
        found = self._over_limit(now_ns)
        if found is not None:
            self._fail(*found)

    def _over_limit(self, now_ns: int) -> tuple[str, str] | None:
        """Return why the response is to be given up; None: it is not, or has ended."""
        if self.state is not State.BUSY:
            return None
        seen = Seen(self._sent_at_ns, self._read_at_ns, self._event_at_ns)
        return self._lane.limits.broken(self._response, self._asked, seen, now_ns)

    def cancel(self) -> None:
        """Give up the request in hand because the cell ends."""
        if self.prompt is not None and self._sent_at_ns:
            self.decode()
        if self.prompt is not None:
            self._fail("cancelled", "the run was stopped")

    def abandon(self, kind: str, detail: str) -> None:
        """Give up a request that could not be sent."""
        if self.prompt is not None and self.state is not State.BUSY:
            self._fail(kind, detail)

    def _lost(self, kind: str, detail: str) -> None:
        """Take the loss of the connection in mid-request."""
        untouched = self._response.status is None and not self._response.has_bytes
        if untouched and not self._fresh and not self._retried:
            # The server closed a kept connection as we sent on it: no fault of the
            # request, which no server has seen.
            self._retried = True
            self._response.release()
            self.close()
            self.connect()
            return
        self._fail(kind, detail)

    def _ended(self, failure: tuple[str, str] | None) -> None:
        failure = failure or self._lane.limits.too_long(self._response, self._asked)
        keep = self._response.keep_alive and not self._line.sending
        kind, detail = failure if failure is not None else (None, None)
        self._record(kind, detail, self._read_at_ns)
        if not keep:
            self.close()
        else:
            self.state = State.IDLE
        self._lane.free(self, self._read_at_ns)

    def _fail(self, kind: str, detail: str) -> None:
        now = self._lane.now()
        self._record(kind, detail, now)
        self.close()
        self._lane.free(self, now)

    def _record(self, kind: str | None, detail: str | None, at_ns: int) -> None:
        """Hand the ended request to the lane as a record."""
        assert self.prompt is not None
        response, prompt, asked = self._response, self.prompt, self._asked
        was_sent = bool(self._sent_at_ns)
        if not was_sent:
            response = _NONE_YET
            self._sent_at_ns = at_ns
        sent_at_ns = self._sent_at_ns
        self.prompt = None
        self._pending.clear()
        self._response.release()
        response.release()
        arrivals = ascending(response.arrivals_ns)
        stream = response.stream
        request = Request(
            index=prompt.index,
            slot=self.number,
            worker=self._lane.worker,
            replica=self._replica,
            intended_at_ns=self._free_at_ns if self._scheduled else None,
            sent_at_ns=sent_at_ns,
            ended_at_ns=max(at_ns, sent_at_ns),
            first_byte_at_ns=response.first_body_at_ns,
            first_content_at_ns=arrivals[0] if arrivals else None,
            first_answer_at_ns=response.first_answer_at_ns,
            last_content_at_ns=arrivals[-1] if arrivals else None,
            prompt_tokens=stream.prompt_tokens,
            output_tokens=stream.output_tokens,
            cached_tokens=stream.cached_tokens,
            requested_output_tokens=asked,
            n_chunks=len(arrivals),
            chunk_offsets_ns=packed([at - sent_at_ns for at in arrivals]),
            finish_reason=stream.finish_reason,
            http_status=response.status,
            failure=kind,
            failure_detail=detail,
            conversation=None if prompt.talk is None else prompt.talk.number,
            turn=prompt.turn,
        )
        lane = self._lane
        lane.record(request, arrivals, stream.texts, prompt.talk, was_sent=was_sent)


def ascending(stamps: Iterable[int]) -> list[int]:
    """Return stamps so that they never fall.

    A read without a kernel stamp is stamped late, so that the next one can lie before
    it; both are then known only to lie before the late one.
    """
    found = list(stamps)
    # Sorting what is sorted takes a quarter of the time of looking at each.
    return found if sorted(found) == found else list(accumulate(found, max))


def packed(values: list[int]) -> bytes:
    """Return numbers as little-endian int64."""
    return struct.pack(f"<{len(values)}q", *values)
