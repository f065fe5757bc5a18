from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from stepscope.parse.sse import MAX_EVENT_BYTES, EventTooLongError, SseDecoder


def decoded(pieces: Iterable[bytes], *, end: bool = True) -> list[bytes]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish() if end else events


def one_byte_at_a_time(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


CASES = {
    b"data: a\n\n": [b"a"],
    b"data:a\n\n": [b"a"],
    b"data:  a\n\n": [b" a"],
    b"data: a\r\n\r\n": [b"a"],
    b"data: a\r\r": [b"a"],
    b"data: a\n\ndata: b\n\n": [b"a", b"b"],
    b"data: a\ndata: b\n\n": [b"a\nb"],
    b"data\n\n": [],
    b"data: \n\n": [],
    b":\n\n": [],
    b": ping\n\ndata: a\n\n": [b"a"],
    b":\ndata: a\n\n": [b"a"],
    b"event: x\nid: 1\nretry: 5\ndata: a\n\n": [b"a"],
    b"\xef\xbb\xbfdata: a\n\n": [b"a"],
    b"\n\n\ndata: a\n\n\n\n": [b"a"],
    b"data: a": [b"a"],
    b"data: a\n": [b"a"],
    b"data: a\n\ndata: [DONE]": [b"a", b"[DONE]"],
    b"datax: a\n\n": [],
    b"": [],
}


@pytest.mark.parametrize("data", CASES)
def test_events_come_out_whole_however_the_bytes_are_cut(data: bytes) -> None:
    assert decoded([data]) == CASES[data]
    assert decoded(one_byte_at_a_time(data)) == CASES[data]


def test_an_event_is_given_as_soon_as_its_blank_line_is_read() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [b"a"]
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.feed(b"\n") == [b"b"]


def test_what_follows_an_event_is_kept_for_the_next() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: b") == [b"a"]
    assert decoder.feed(b"c\n\n") == [b"bc"]


def test_an_event_without_end_is_refused() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: " + b"x" * (MAX_EVENT_BYTES - 6))
    with pytest.raises(EventTooLongError):
        decoder.feed(b"xxxxxxxx")


LINES = st.sampled_from(
    [b"data: {}", b"data:x", b"data", b": c", b":", b"event: e", b"", b"", b"junk"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS)), st.lists(st.integers(0, 200)))
def test_cuts_change_nothing(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = b"".join(line + end for line, end in lines)
    places = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert decoded(pieces) == decoded([data]) == decoded(one_byte_at_a_time(data))


@given(st.binary())
def test_any_bytes_are_read_without_error(data: bytes) -> None:
    assert decoded([data]) == decoded(one_byte_at_a_time(data))
