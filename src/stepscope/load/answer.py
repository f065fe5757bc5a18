"""One response: bytes with their stamps in, a Request out. No I/O, no clock."""

from array import array

import httptools

from stepscope.parse.openai_stream import OpenAIStream
from stepscope.parse.sse import EventTooLongError, SseDecoder
from stepscope.run.requests import Request

_MOST_BODY = 4096


class Answer:
    """Decodes one response; httptools calls the ``on_*`` methods.

    ``complete`` is set when HTTP says that the response ended, ``keep_alive`` when
    the connection may carry another.
    """

    def __init__(self, index: int, sent_at_ns: int, asked_tokens: int) -> None:
        self.index = index
        self.sent_at_ns = sent_at_ns
        self.asked_tokens = asked_tokens
        self.complete = False
        self.keep_alive = True
        self.status: int | None = None
        self.first_byte_at_ns: int | None = None
        self.n_bytes = 0
        self.n_events_now = 0
        self.offsets = array("q")
        self._stamp = 0
        self._streams = False
        self._body = b""
        self._sse = SseDecoder()
        self._said = OpenAIStream()
        self._too_long = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes, stamp_ns: int) -> int:
        """Take bytes that arrived at ``stamp_ns``; return the content events in them.

        Raises:
            httptools.HttpParserError: They are no HTTP.
        """
        self._stamp = stamp_ns
        self.n_events_now = 0
        self.n_bytes += len(data)
        self._parser.feed_data(data)
        return self.n_events_now

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the body is an event stream."""
        if name.lower() == b"content-type":
            self._streams = value.lower().startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        """Take the status line."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Decode a piece of the body."""
        if self.first_byte_at_ns is None:
            self.first_byte_at_ns = self._stamp
        if self.status != 200 or not self._streams:
            if len(self._body) < _MOST_BODY:
                self._body += data
            return
        try:
            for event in self._sse.feed(data):
                self._take(event)
        except EventTooLongError:
            self._too_long = True

    def _take(self, event: bytes) -> None:
        if self._said.feed(event):
            self.n_events_now += 1
            self.offsets.append(self._stamp - self.sent_at_ns)

    def on_message_complete(self) -> None:
        """Note the end; a stream may end without its last blank line."""
        for event in self._sse.finish():
            self._take(event)
        self.complete = True
        self.keep_alive = bool(self._parser.should_keep_alive())

    def closes_the_message(self) -> bool:
        """Return True when the end of the connection is how this body ends.

        HTTP/1.0 style: neither a length nor chunks. The stream's own end mark, or a
        finish reason with usage, must have come.
        """
        said = self._said
        ended = said.done or (
            said.finish_reason is not None and said.output_tokens is not None
        )
        return self.status == 200 and not self._parser.should_keep_alive() and ended

    def request(
        self, ended_at_ns: int, *, slot: int, worker: int, failure: str | None = None,
        detail: str | None = None,
    ) -> Request:  # fmt: skip
        """Return the record. Without a ``failure`` the response itself is judged."""
        said = self._said
        if failure is None:
            failure, detail = self._judgement()
        first = self.offsets[0] + self.sent_at_ns if self.offsets else None
        last = self.offsets[-1] + self.sent_at_ns if self.offsets else None
        return Request(
            index=self.index,
            slot=slot,
            worker=worker,
            sent_at_ns=self.sent_at_ns,
            first_byte_at_ns=self.first_byte_at_ns,
            first_content_at_ns=first,
            last_content_at_ns=last,
            ended_at_ns=ended_at_ns,
            prompt_tokens=said.prompt_tokens,
            output_tokens=said.output_tokens,
            cached_tokens=said.cached_tokens,
            requested_output_tokens=self.asked_tokens,
            n_chunks=len(self.offsets),
            chunk_offsets_ns=self.offsets.tobytes(),
            finish_reason=said.finish_reason,
            http_status=self.status,
            failure=failure,
            failure_detail=detail,
        )

    def _judgement(self) -> tuple[str | None, str | None]:
        said = self._said
        verdict: tuple[str | None, str | None] = (None, None)
        if self.status in (429, 503):
            verdict = ("rate-limited", f"HTTP {self.status}: {self._text()}")
        elif self.status != 200:
            verdict = ("http-status", f"HTTP {self.status}: {self._text()}")
        elif not self._streams:
            verdict = ("not-a-stream", self._text())
        elif said.error is not None:
            verdict = ("stream-error", said.error)
        elif self._too_long:
            verdict = ("malformed", "an event without end")
        elif said.malformed is not None:
            verdict = ("malformed", said.malformed)
        elif not self.offsets:
            verdict = ("empty", "the stream ended without content")
        elif said.output_tokens is None:
            verdict = ("no-usage", "no usage record came with the stream")
        return verdict

    def _text(self) -> str:
        return " ".join(self._body.decode("utf-8", "replace").split())[:300]
