"""One HTTP response, from bytes and their arrival to a measurement or a failure.

No I/O and no clock: the same bytes give the same result however they were cut.
"""

from array import array

import httptools

from stepscope.load.shape import Shape, is_chunk, shape_of
from stepscope.parse.answer import one_line
from stepscope.parse.llamacpp_stream import LlamaCppStream
from stepscope.parse.openai_stream import OpenAIStream
from stepscope.parse.sglang_stream import SglangStream
from stepscope.parse.sse import EventTooLongError, SseDecoder

Stream = OpenAIStream | LlamaCppStream | SglangStream

#: Endpoint to the dialect of its stream.
DIALECTS: dict[str, type[Stream]] = {
    "/v1/completions": OpenAIStream,
    "/v1/chat/completions": OpenAIStream,
    "/completion": LlamaCppStream,
    "/generate": SglangStream,
}

_BUSY_STATUS = frozenset({429, 503})
#: Stands for the parser of a response that has ended.
_NOBODYS = httptools.HttpResponseParser(object())
#: A search for the shape of events takes as long as reading two: so many at first, and
#: one more each so many events.
_FIRST_SEARCHES, _EVENTS_A_SEARCH = 2, 16
#: What is kept of a body that is no event stream, to be shown.
_BODY_KEPT_BYTES = 2_000


class Response:
    """A response as it arrives.

    Attributes:
        stream: What its events said.
        arrivals_ns: Instant of each content chunk, as stamped.
        n_searches: How often the shape of its events was looked for.
        status: HTTP status; None before the status line was read.
        has_bytes: Any byte of it arrived.
        has_header: The header was read whole.
        complete: The response has ended.
        keep_alive: The connection may carry another request.
        first_body_at_ns: First byte of the body.
        first_answer_at_ns: First content that is not reasoning.
        retry_after: What the server said of when to come again.
        said: A header that explains a failure: where to go, how the body is packed.
    """

    __slots__ = (
        "_at_ns",
        "_body",
        "_framed",
        "_is_stream",
        "_last_body",
        "_may_search",
        "_n_without",
        "_next_shape",
        "_parser",
        "_plain",
        "_shape",
        "_sse",
        "_trouble",
        "arrivals_ns",
        "complete",
        "first_answer_at_ns",
        "first_body_at_ns",
        "has_bytes",
        "has_header",
        "keep_alive",
        "n_searches",
        "retry_after",
        "said",
        "status",
        "stream",
    )

    def __init__(
        self, endpoint: str = "/v1/completions", *, keep_text: bool = False
    ) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._sse = SseDecoder()
        self._at_ns = 0
        self._body = b""
        self._framed = False
        self._is_stream: bool | None = None
        self._plain = False
        self._trouble: str | None = None
        self.stream: Stream = DIALECTS[endpoint](keep_text=keep_text)
        self._shape: Shape | None = None
        self._next_shape: Shape | None = None
        self._may_search = isinstance(self.stream, OpenAIStream) and not keep_text
        self.n_searches = 0
        self._last_body: bytes | None = None
        self.arrivals_ns: array[int] = array("q")
        self._n_without = 0
        self.status: int | None = None
        self.has_bytes = False
        self.has_header = False
        self.complete = False
        self.keep_alive = False
        self.first_body_at_ns: int | None = None
        self.first_answer_at_ns: int | None = None
        self.retry_after: str | None = None
        self.said: str | None = None

    @property
    def n_events(self) -> int:
        """Events of any kind so far."""
        return len(self.arrivals_ns) + self._n_without

    def feed(self, data: bytes, at_ns: int) -> int:
        """Take the next bytes.

        Args:
            data: Bytes as they came, cut anywhere. What follows the end of the
                response is ignored and spoils the connection.
            at_ns: When they arrived.

        Returns:
            How many content chunks they completed.
        """
        if self.takes_at_sight(data, at_ns):
            return 1
        before = len(self.arrivals_ns)
        self._at_ns = at_ns
        self._read(data)
        n = len(self.arrivals_ns) - before
        self._next_shape = self._shape_after(data)
        self._last_body = None
        return n

    def takes_at_sight(self, data: bytes, at_ns: int) -> bool:
        """Take the next bytes if they are one more content chunk of the known shape.

        In less than half of the time of ``feed``. False: it did not, and ``feed`` must.
        """
        shape = self._next_shape
        if shape is None or not shape.fits(data):
            return False
        self.arrivals_ns.append(at_ns)
        return True

    def _read(self, data: bytes) -> None:
        """Take the next bytes in full."""
        self.has_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._trouble = "the server wants another protocol (HTTP upgrade)"
            self.complete = True
            self.keep_alive = False
        except httptools.HttpParserError as error:
            self.keep_alive = False
            if not self.complete:
                cause = error.__context__
                self._trouble = str(cause if cause is not None else error)
                self.complete = True

    def _shape_after(self, data: bytes) -> Shape | None:
        """Return by what the piece after ``data`` may be known; None: by nothing.

        It must be sure to begin with a chunk, which begins with an event.
        """
        body = self._last_body
        if body is None or not self._may_search:
            return None
        if not body.endswith(b"\n\n") or not is_chunk(data, body):
            return None
        if self.n_searches < _FIRST_SEARCHES + self.n_events // _EVENTS_A_SEARCH:
            self.n_searches += 1
            self._shape = shape_of(body) or self._shape
        return self._shape

    def release(self) -> None:
        """Let go of the parser, which holds this response as this holds it.

        A worker collects no cycles while it measures, so the two would stay in memory
        for good. Nothing may be fed any more.
        """
        self._parser = _NOBODYS

    def end_of_input(self) -> bool:
        """Take the end of the connection; False when the response was cut by it.

        A response without length and chunks ends with its connection, and an answer
        whose ``[DONE]`` was read has lost nothing.
        """
        self.keep_alive = False
        if not self.complete:
            whole = self.has_header and not self._framed
            if not whole and not self.stream.done:
                return False
            self._end()
        return True

    # What httptools calls while it parses.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note what decides how the body is read."""
        name = name.lower()
        if name == b"content-type":
            self._is_stream = value.lower().startswith(b"text/event-stream")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._framed = True
        elif name == b"retry-after":
            self.retry_after = value[:40].decode("latin-1")
        elif name in {b"location", b"content-encoding"}:
            self.said = one_line((name + b": " + value[:200]).decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Take the status; an interim (1xx) response is none."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.has_header = True

    def on_body(self, body: bytes) -> None:
        """Take decoded bytes of the body."""
        if not self._plain and not self._may_be_stream(body):
            return
        self._last_body = body
        try:
            events = self._sse.feed(body)
        except EventTooLongError as error:
            self._trouble = self._trouble or str(error)
            self.keep_alive = False
            self.complete = True
            return
        for data in events:
            self._take(data)

    def _may_be_stream(self, body: bytes) -> bool:
        """Keep a body that may have to be shown; False: it is no event stream."""
        if self.first_body_at_ns is None:
            self.first_body_at_ns = self._at_ns
        good = self.status == 200 and self._is_stream is not False
        self._plain = good and self._is_stream is True
        if not self._plain and len(self._body) < _BODY_KEPT_BYTES:
            self._body += body[:_BODY_KEPT_BYTES]
        return good

    def _take(self, data: bytes) -> None:
        """Take the data of one event."""
        if not self.stream.feed(data):
            self._n_without += 1
            return
        self.arrivals_ns.append(self._at_ns)
        if self.first_answer_at_ns is None and self.stream.answered:
            self.first_answer_at_ns = self._at_ns

    def on_message_complete(self) -> None:
        """Take the end of the response."""
        if not self.has_header:  # the end of an interim response
            self._framed = False
            self._is_stream = None
            return
        self.keep_alive = self._parser.should_keep_alive()
        self._end()

    def _end(self) -> None:
        if not self.complete and self.status == 200 and self._is_stream is not False:
            for data in self._sse.finish():
                self._take(data)
        self.complete = True

    def failure(self) -> tuple[str, str] | None:
        """Return the failure kind of a complete response and one line about it.

        None: it is a whole, counted answer.
        """
        if self._trouble is not None:
            return "malformed", self._trouble
        if self.status != 200:
            kind = "rate-limited" if self.status in _BUSY_STATUS else "http-status"
            again = f" (Retry-After: {self.retry_after})" if self.retry_after else ""
            body = self._shown() or self.said or "no body"
            return kind, f"HTTP {self.status}{again}: {body}"
        if self._is_stream is None and not self.n_events and self._body:
            return "not-a-stream", self._shown()
        if self._is_stream is False:
            return "not-a-stream", self._shown()
        return self._stream_failure()

    def _stream_failure(self) -> tuple[str, str] | None:
        stream = self.stream
        if stream.error is not None:
            return "stream-error", stream.error
        if stream.malformed is not None:
            return "malformed", stream.malformed
        if not self.arrivals_ns:
            said = f"{self.n_events} events, none with content"
            # A packed body, which nobody asked for, holds no events to be read.
            kind = "empty" if self.said is None else "malformed"
            usage = f"usage says {stream.output_tokens} output tokens"
            return kind, f"{said}; {self.said or usage}"
        if stream.counts_as_it_goes and stream.finish_reason is None:
            # Its last count is of what came, not of a whole answer.
            return "closed", "the stream ended without its last event"
        if stream.output_tokens is None:
            return "no-usage", f"{len(self.arrivals_ns)} chunks and no usage record"
        return None

    def _shown(self) -> str:
        """Return the kept body as one short line."""
        return one_line(self._body.decode("utf-8", "replace"))
