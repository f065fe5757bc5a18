"""One request as the client saw it."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt and its answer, or how it failed.

    Attributes:
        index: Position in the cell's prompt order, from 0.
        slot: Client slot (one kept connection) that carried it.
        worker: Client process that carried it.
        replica: Which of several base URLs it went to, from 0; None: there is one.
        intended_at_ns: When the schedule wanted it sent; None in a closed loop.
        sent_at_ns: When the client handed it to the socket.
        first_byte_at_ns: First byte of the response body.
        first_content_at_ns: First chunk that carries content.
        first_answer_at_ns: First chunk of the answer itself: content that is not
            reasoning. Where a model does not reason it is the first content.
        last_content_at_ns: Last chunk that carries content.
        ended_at_ns: End of the response, or the moment it failed.
        prompt_tokens: From the server's usage record; None if it sent none.
        output_tokens: From the server's usage record; None if it sent none.
        cached_tokens: Prompt tokens that the server says came from its cache.
        requested_output_tokens: What was asked for.
        n_chunks: Chunks that carry content.
        chunk_offsets_ns: Arrival of each content chunk after ``sent_at_ns``:
            little-endian int64, 8 bytes each. Read it through ``chunks_ns``; empty
            where ``Cell.chunks`` has them.
        finish_reason: As the server said it.
        http_status: Status code, None when no status line arrived.
        failure: Failure kind; None when the request succeeded. See
            ``FAILURE_KINDS``. A failed request never enters a latency.
        failure_detail: One line of what was seen.
        conversation: Number of the conversation that it is a turn of; None: of none.
        turn: Position in that conversation, from 0.
    """

    index: int
    sent_at_ns: int
    ended_at_ns: int
    slot: int = 0
    worker: int = 0
    replica: int | None = None
    intended_at_ns: int | None = None
    first_byte_at_ns: int | None = None
    first_content_at_ns: int | None = None
    first_answer_at_ns: int | None = None
    last_content_at_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    requested_output_tokens: int | None = None
    n_chunks: int = 0
    chunk_offsets_ns: bytes = b""
    finish_reason: str | None = None
    http_status: int | None = None
    failure: str | None = None
    failure_detail: str | None = None
    conversation: int | None = None
    turn: int | None = None

    @property
    def due_at_ns(self) -> int:
        """When it was to be sent: by the schedule, or in a closed loop when it was."""
        return self.sent_at_ns if self.intended_at_ns is None else self.intended_at_ns

    @property
    def ok(self) -> bool:
        """True when it succeeded."""
        return self.failure is None

    @property
    def chunks_ns(self) -> "npt.NDArray[np.int64]":
        """Arrival instants of the content chunks, ascending, int64[n_chunks]."""
        import numpy as np  # a client process has no other use for it

        offsets = np.frombuffer(self.chunk_offsets_ns, dtype="<i8")
        return offsets.astype(np.int64) + self.sent_at_ns

    @property
    def ttft_ns(self) -> int | None:
        """``due_at_ns`` to first content, nanoseconds.

        From the intended send in an open loop: a send that came late has delayed its
        user, and leaving that out would flatter the server.
        """
        if self.first_content_at_ns is None:
            return None
        return self.first_content_at_ns - self.due_at_ns

    @property
    def ttfat_ns(self) -> int | None:
        """``due_at_ns`` to the first content that is not reasoning, nanoseconds."""
        if self.first_answer_at_ns is None:
            return None
        return self.first_answer_at_ns - self.due_at_ns

    @property
    def e2el_ns(self) -> int | None:
        """``due_at_ns`` to last content, nanoseconds."""
        if self.last_content_at_ns is None:
            return None
        return self.last_content_at_ns - self.due_at_ns

    @property
    def tpot_ns(self) -> float | None:
        """(E2EL - TTFT) / (output tokens - 1), nanoseconds; None below two tokens."""
        ttft, e2el, n = self.ttft_ns, self.e2el_ns, self.output_tokens
        if ttft is None or e2el is None or n is None or n < 2:
            return None
        return (e2el - ttft) / (n - 1)


#: Every way a request can fail. A new kind is added here and nowhere else.
FAILURE_KINDS: dict[str, str] = {
    "connect": "the connection could not be opened",
    "refused": "the server refused the connection",
    "reset": "the connection was reset",
    "closed": "the connection closed before the response was complete",
    "http-status": "an HTTP status other than 200",
    "rate-limited": "HTTP 429 or 503",
    "not-a-stream": "HTTP 200 with a body that is no event stream",
    "stream-error": "an error object inside the stream after HTTP 200",
    "malformed": "bytes that are no HTTP or no event stream",
    "empty": "a stream that ended without content",
    "no-usage": "no token count arrived, so nothing can be divided by it",
    "header-timeout": "no response header within the limit",
    "stall": "no byte within the limit in mid-stream",
    "cancelled": "the run was stopped while it was in flight",
    "abandoned": "an earlier turn of its conversation failed",
}
