"""One slot: a kept connection that carries one request after another.

Law of this file: a read is stamped and queued at once; decoding comes later, in short
slices, so that no stamp waits for another response's JSON.
"""

import errno
import socket
from collections.abc import Callable
from typing import Protocol

import httptools

from stepscope.load.answer import Answer
from stepscope.load.stamps import ANCILLARY_BYTES, realtime_ns

_END_OF_CHUNKS = b"0\r\n\r\n"
_READ_BYTES = 1 << 16
_BUFFER = bytearray(_READ_BYTES)
_VIEW = memoryview(_BUFFER)


class Pool(Protocol):
    """What a slot asks of the pool that owns it (the worker; a list in tests)."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds."""
        ...

    def monotonic(self, realtime: int | None, read_at_ns: int) -> int:
        """Place a kernel stamp on the monotonic clock; count the delay."""
        ...

    def queued(self, slot: "Slot", *, at_once: bool) -> None:
        """The slot has reads to decode."""
        ...

    def finished(
        self, slot: "Slot", *, at_ns: int, failure: str | None, detail: str | None
    ) -> None:
        """The slot's request ended."""
        ...


class Slot:
    """A connection and the request it carries."""

    def __init__(self, index: int, pool: Pool) -> None:
        self.index = index
        self.sock: socket.socket | None = None
        self.answer: Answer | None = None
        self.retried = False
        self.request = b""
        self.last_byte_at_ns = 0
        self.n_connect_failures = 0
        self.unsent = b""
        self._pool = pool
        self._reads: list[tuple[int, bytes]] = []
        self._ended: tuple[int, str, str] | None = None

    def start(self, index: int, request: bytes, asked_tokens: int) -> None:
        """Send a request on the open connection."""
        now = self._pool.now_ns()
        self.answer = Answer(index, now, asked_tokens)
        self.request = request
        self.last_byte_at_ns = now
        self._reads.clear()
        self._ended = None
        self._send(request)

    def _send(self, data: bytes) -> None:
        assert self.sock is not None
        try:
            n = self.sock.send(data)
        except BlockingIOError:
            n = 0
        except OSError as error:
            self._ended = (self._pool.now_ns(), "reset", str(error))
            self._pool.queued(self, at_once=True)
            return
        self.unsent = data[n:]

    def writable(self) -> None:
        """Send what the socket did not take before."""
        if self.unsent:
            self._send(self.unsent)

    def readable(self) -> None:
        """Read once, stamp, queue."""
        assert self.sock is not None
        try:
            n, ancillary, _, _ = self.sock.recvmsg_into([_VIEW], ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            kind = "reset" if error.errno == errno.ECONNRESET else "closed"
            self._ended = (self._pool.now_ns(), kind, str(error))
            self._pool.queued(self, at_once=True)
            return
        now = self._pool.now_ns()
        if not n:
            self._ended = (now, "closed", "the server closed the connection")
            self._pool.queued(self, at_once=True)
            return
        stamp = self._pool.monotonic(realtime_ns(ancillary), now)
        self.last_byte_at_ns = now
        data = bytes(_VIEW[:n])
        self._reads.append((stamp, data))
        # A response that may be over is decoded at once: its slot is free.
        self._pool.queued(self, at_once=data.endswith(_END_OF_CHUNKS) or n < 6)

    def decode(self, each: Callable[[int, int], None]) -> None:
        """Decode the queued reads; ``each(stamp, events)`` for every read."""
        answer = self.answer
        if answer is None:
            self._reads.clear()
            return
        try:
            for stamp, data in self._reads:
                each(stamp, answer.feed(data, stamp))
                if answer.complete:
                    self._reads.clear()
                    self._pool.finished(self, at_ns=stamp, failure=None, detail=None)
                    return
        except httptools.HttpParserError as error:
            now = self._pool.now_ns()
            self._reads.clear()
            answer.keep_alive = False
            detail = f"no HTTP: {error}"
            self._pool.finished(self, at_ns=now, failure="malformed", detail=detail)
            return
        self._reads.clear()
        if self._ended is not None:
            at, kind, detail = self._ended
            answer.keep_alive = False
            if kind == "closed" and answer.closes_the_message():
                self._pool.finished(self, at_ns=at, failure=None, detail=None)
            else:
                self._pool.finished(self, at_ns=at, failure=kind, detail=detail)
