import msgspec
import pytest
from hypothesis import given, strategies as st

from stepscope.parse.openai_stream import OpenAIStream

CONTENT = {
    b'{"choices":[{"index":0,"text":" a"}]}': True,
    b'{"choices":[{"index":0,"text":""}]}': False,
    b'{"choices":[{"index":0,"text":null}]}': False,
    b'{"choices":[]}': False,
    b'{"choices":null}': False,
    b"{}": False,
    b"null": False,
    b"[DONE]": False,
    b'{"choices":[{"delta":{"role":"assistant","content":""}}]}': False,
    b'{"choices":[{"delta":{"role":"assistant","content":null}}]}': False,
    b'{"choices":[{"delta":{"content":"a"}}]}': True,
    b'{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}': True,
    b'{"choices":[{"delta":{"reasoning_content":"a"}}]}': True,
    b'{"choices":[{"delta":{"reasoning":"a"}}]}': True,
    b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{}}]}}]}': True,
    b'{"choices":[{"delta":{"tool_calls":[]}}]}': False,
    b'{"choices":[{"delta":{},"finish_reason":"length"}]}': False,
    b'{"choices":[{"text":""},{"text":"b"}]}': True,
}


@pytest.mark.parametrize("data", CONTENT)
def test_only_text_reasoning_and_tool_calls_are_content(data: bytes) -> None:
    stream = OpenAIStream()
    assert stream.feed(data) is CONTENT[data]
    assert stream.malformed is None
    assert stream.error is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4}}',
        b'{"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":8,'
        b'"completion_tokens":4,"prompt_tokens_details":null}}',
    ],
)
def test_counts_come_from_the_usage_record_wherever_it_stands(data: bytes) -> None:
    stream = OpenAIStream()
    stream.feed(b'{"choices":[{"text":"a b c d e"}],"usage":null}')
    assert not stream.output_tokens
    stream.feed(data)
    assert (stream.prompt_tokens, stream.output_tokens) == (8, 4)
    assert stream.cached_tokens is None


def test_the_last_of_running_usage_records_counts() -> None:
    stream = OpenAIStream()
    for n in (1, 2, 3):
        stream.feed(
            b'{"choices":[{"text":"a"}],"usage":{"completion_tokens":%d,'
            b'"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}' % n
        )
    assert (stream.output_tokens, stream.cached_tokens) == (3, 4)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"error":{"message":"engine\\n died","code":500}}', "engine died"),
        (b'{"error":"worker is dead"}', "worker is dead"),
        (b'{"object":"error","message":"too long"}', "too long"),
        (b'{"error":{"code":7}}', '{"code":7}'),
        (b'{"choices":[{"text":"","finish_reason":"abort"}]}', "abort"),
    ],
)
def test_an_error_object_is_remembered(data: bytes, said: str) -> None:
    stream = OpenAIStream()
    assert stream.feed(data) is False
    assert stream.error is not None
    assert said in stream.error


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[{"text":"a"',
        b"junk",
        b"\xff\xfe",
        b"3",
        b'"x"',
        b'{"choices":3}',
        b'{"choices":[],"usage":{"completion_tokens":"4"}}',
    ],
)
def test_what_is_no_chunk_is_malformed(data: bytes) -> None:
    stream = OpenAIStream()
    assert stream.feed(data) is False
    assert stream.malformed is not None


def test_text_is_kept_only_when_asked_for() -> None:
    asked, unasked = OpenAIStream(keep_text=True), OpenAIStream()
    for stream in (asked, unasked):
        stream.feed(b'{"choices":[{"text":"a"}]}')
        stream.feed(b'{"choices":[{"delta":{"reasoning":"b"}}]}')
    assert asked.texts == ["a", "b"]
    assert unasked.texts is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "usage", "error", "delta", "text", "object"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_without_error(value: object) -> None:
    stream = OpenAIStream(keep_text=True)
    stream.feed(msgspec.json.encode(value))
    assert stream.output_tokens is None or isinstance(stream.output_tokens, int)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_error(data: bytes) -> None:
    stream = OpenAIStream()
    if stream.feed(data):
        assert stream.malformed is None


@pytest.mark.parametrize("count", ["-3", "1" + "0" * 30, "9007199254740993"])
def test_a_count_that_no_answer_has_is_malformed(count: str) -> None:
    stream = OpenAIStream()
    usage = f'{{"prompt_tokens":8,"completion_tokens":{count}}}'
    stream.feed(f'{{"choices":[],"usage":{usage}}}'.encode())
    assert stream.output_tokens is None
    assert stream.malformed is not None


def test_a_strangers_text_can_not_steer_a_terminal() -> None:
    stream = OpenAIStream()
    stream.feed(b'{"error":{"message":"\\u001b[31mred \\u202ertl\\u0000 \xc3\xbc"}}')
    assert stream.error is not None
    assert stream.error.isprintable()
    assert stream.error.endswith("\N{LATIN SMALL LETTER U WITH DIAERESIS}")
