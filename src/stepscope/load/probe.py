"""One short request before anything is measured: what kind of server is this?"""

import socket

import httptools
import msgspec

from stepscope.clock import Clock
from stepscope.load.answer import Answer
from stepscope.load.prompts import requests
from stepscope.load.spec import LoadSpec, address

_READ_BYTES = 1 << 16


class ProbeResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What one request showed.

    ``raw`` is every byte of the answer. ``streams``: content arrived in more than
    one piece (None below two tokens). ``failure`` is a failure kind or None.
    """

    streams: bool | None
    usage: bool
    n_chunks: int
    output_tokens: int | None
    prompt_tokens: int | None
    tokens_per_chunk: float | None
    http_status: int | None
    failure: str | None
    failure_detail: str | None
    raw: bytes


def probe(spec: LoadSpec, clock: Clock) -> ProbeResult:
    """Send one request of the spec and look at the answer.

    Raises:
        RecipeError: The address or the key is wrong.
    """
    where = address(spec.base_url)
    request = requests(spec, range(1))[0]
    answer = Answer(0, clock.now_ns(), spec.output_tokens)
    failure: tuple[str, str] | None = None
    raw = bytearray()
    try:
        with socket.create_connection((where.host, where.port), 10.0) as sock:
            sock.settimeout(spec.header_timeout_s)
            sock.sendall(request)
            while not answer.complete:
                data = sock.recv(_READ_BYTES)
                if not data:
                    break
                raw += data
                answer.feed(data, clock.now_ns())
                sock.settimeout(spec.stall_timeout_s)
    except ConnectionRefusedError as error:
        failure = ("refused", str(error))
    except ConnectionResetError as error:
        failure = ("reset", str(error))
    except TimeoutError:
        kind = "stall" if raw else "header-timeout"
        failure = (kind, "the server did not answer in time")
    except OSError as error:
        failure = ("connect", str(error))
    except httptools.HttpParserError as error:
        failure = ("malformed", f"no HTTP: {error}")
    if failure is None and not answer.complete and not answer.closes_the_message():
        failure = ("closed", "the connection closed before the response was complete")
    record = answer.request(
        clock.now_ns(), slot=0, worker=0,
        failure=failure and failure[0], detail=failure and failure[1],
    )  # fmt: skip
    tokens, chunks = record.output_tokens, record.n_chunks
    return ProbeResult(
        streams=chunks > 1 if tokens is not None and tokens > 1 else None,
        usage=tokens is not None,
        n_chunks=chunks,
        output_tokens=tokens,
        prompt_tokens=record.prompt_tokens,
        tokens_per_chunk=tokens / chunks if tokens and chunks else None,
        http_status=record.http_status,
        failure=record.failure,
        failure_detail=record.failure_detail,
        raw=bytes(raw),
    )
