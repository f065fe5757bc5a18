"""One request before the load: does this server stream, and does it count tokens?"""

import errno
import socket

import msgspec

from stepscope.clock import Clock
from stepscope.load.drawing import first_request
from stepscope.load.limits import Seen, limits_of
from stepscope.load.prompts import WORDED, uses_token_ids
from stepscope.load.response import Response
from stepscope.load.spec import LoadSpec
from stepscope.load.text import text_plan
from stepscope.load.wire import connected

_READ_BYTES = 1 << 16
#: No answer to one request is as long; it is held whole.
_MOST_BYTES = 256 << 20


class ProbeResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What one request showed.

    Attributes:
        streams: Content came in more than one chunk; None: an answer of one token or
            none can not show it.
        usage: A token count came with the answer.
        n_chunks: Content chunks.
        output_tokens: From the usage record.
        prompt_tokens: From the usage record.
        tokens_per_chunk: Mean over the answer.
        http_status: Status code.
        failure: Failure kind; None: the server can be measured.
        failure_detail: One line of what was seen.
        raw: Every byte of the answer, as it came.
        retry_after: What the server said of when to come again.
        n_tries: Requests that it took.
        failed_before: Failure kind and detail of the try before; None: the first.
    """

    streams: bool | None
    usage: bool
    n_chunks: int
    output_tokens: int | None
    prompt_tokens: int | None
    tokens_per_chunk: float | None
    http_status: int | None
    failure: str | None
    failure_detail: str | None = None
    raw: bytes = b""
    retry_after: str | None = None
    n_tries: int = 1
    failed_before: str | None = None


def probe(spec: LoadSpec, clock: Clock) -> ProbeResult:
    """Send the first request of ``spec`` and look at the answer.

    Args:
        spec: The load whose server is to be looked at.
        clock: The machine's clock.

    Raises:
        RecipeError: The spec is wrong.
    """
    spec.check()
    plain = uses_token_ids(spec) or spec.source.name in WORDED
    request = first_request(spec, None if plain else text_plan(spec))
    response, raw = Response(spec.endpoint), bytearray()
    failure = _exchange(spec, request, response, raw, clock)
    if failure is None:
        failure = response.failure()
    stream, n_chunks = response.stream, len(response.arrivals_ns)
    tokens = stream.output_tokens
    return ProbeResult(
        streams=n_chunks > 1 if tokens is not None and tokens > 1 else None,
        usage=tokens is not None,
        n_chunks=n_chunks,
        output_tokens=tokens,
        prompt_tokens=stream.prompt_tokens,
        tokens_per_chunk=tokens / n_chunks if tokens and n_chunks else None,
        http_status=response.status,
        failure=failure[0] if failure else None,
        failure_detail=failure[1] if failure else None,
        raw=bytes(raw),
        retry_after=response.retry_after,
    )


def _exchange(
    spec: LoadSpec, request: bytes, response: Response, raw: bytearray, clock: Clock
) -> tuple[str, str] | None:
    """Send and read; return how the connection failed, if it did."""
    url, limit_s, is_connected = spec.base_url, spec.connect_timeout_s, False
    try:
        with connected(url, limit_s, insecure=spec.insecure) as sock:
            is_connected = True
            sock.settimeout(spec.header_timeout_s)
            sock.sendall(request)
            return _read(sock, spec, response, raw, clock)
    except TimeoutError:
        if not is_connected:
            return "connect", f"no connection in {limit_s:g} s"
        if response.has_header:
            return "stall", f"no byte for {spec.stall_timeout_s:g} s"
        return "header-timeout", f"no response header in {spec.header_timeout_s:g} s"
    except OSError as error:
        kinds = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset"}
        return kinds.get(error.errno or 0, "connect"), error.strerror or str(error)


def _read(
    sock: socket.socket,
    spec: LoadSpec,
    response: Response,
    raw: bytearray,
    clock: Clock,
) -> tuple[str, str] | None:
    """Read the answer to its end, or to where it has none."""
    limits = limits_of(spec)
    sent_at_ns = event_at_ns = clock.now_ns()
    while not response.complete:
        data = sock.recv(_READ_BYTES)
        if not data:
            if response.end_of_input():
                return None
            return "closed", "the server closed the connection in mid-response"
        raw += data
        n_events, now_ns = response.n_events, clock.now_ns()
        response.feed(data, now_ns)
        if response.complete:
            return None
        if response.n_events != n_events:
            event_at_ns = now_ns
        seen = Seen(sent_at_ns, now_ns, event_at_ns)
        broken = limits.broken(response, spec.output_tokens, seen, now_ns)
        if broken is not None:
            return broken
        if len(raw) > _MOST_BYTES:
            return "overlong", f"{len(raw)} bytes and no end"
        if response.has_header:
            sock.settimeout(spec.stall_timeout_s)
    return None
