"""The shape of an answer's ordinary pieces, by which the next one is known at sight.

An engine sends the same bytes for every token: one HTTP chunk with one event, in which
nothing differs but a text. Law of this file: a piece that fits means what reading it in
full would say, which is one more content chunk and nothing else. What is proved is
proved by reading in full; whatever is not plain fits no shape and is read in full.

Of OpenAI's dialect alone: the engines' own streams count tokens in every event, so that
no two are alike.
"""

import re
from functools import lru_cache

from stepscope.parse.openai_stream import OpenAIStream

_QUOTE, _BACKSLASH = b'"\\'
#: A text without escapes in one of the places where the dialect carries it.
_TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content)": ?"([^"\\]+)"')
#: What may stand between the quotes of a JSON string, but for characters by number.
_STRING = re.compile(rb'(?:[^"\\]|\\["\\/bfnrt])+')
#: A count that no server states.
_UNTOUCHED = -1
#: Longer pieces are no single tokens, and few.
_LONGEST_BYTES = 1_000


def _size_lines() -> dict[int, bytes]:
    """Return the line that opens a chunk, by the length of the whole chunk."""
    lines = (b"%x\r\n" % size for size in range(1, _LONGEST_BYTES))
    return {len(line) + size + 2: line for size, line in enumerate(lines, 1)}


_SIZE_LINES = _size_lines()


class Shape:
    """What surrounds the text of a content event, from ``data:`` to the chunk's end."""

    __slots__ = ("_around", "_begin", "_end")

    def __init__(self, begin: bytes, end: bytes) -> None:
        self._begin, self._end = begin, end
        self._around = len(begin) + len(end)

    def fits(self, piece: bytes) -> bool:
        """Return whether a piece is one whole chunk of this shape with another text.

        Args:
            piece: Bytes of the response from the beginning of a chunk on.
        """
        line = _SIZE_LINES.get(len(piece))
        if line is None:
            return False
        text = piece.removeprefix(line + self._begin).removesuffix(self._end)
        # What does not begin or end so is left as it was, and is too long. Asking
        # first and cutting then takes 0.15 us more.
        if not 0 < len(text) == len(piece) - len(line) - self._around:
            return False
        if (_QUOTE in text or _BACKSLASH in text) and not _STRING.fullmatch(text):
            return False
        try:  # JSON knows no raw control characters and nothing but UTF-8
            return text.decode().isprintable()
        except UnicodeDecodeError:
            return False


def is_chunk(piece: bytes, body: bytes) -> bool:
    """Return whether a piece is one whole HTTP chunk that holds ``body``.

    Args:
        piece: What an HTTP parser was fed.
        body: What it then called body, last. Had it stood anywhere but at the beginning
            of a chunk, it would have called other bytes so; it now stands at the
            beginning of the next.
    """
    line = _SIZE_LINES.get(len(piece))
    return line is not None and piece == line + body + b"\r\n"


def shape_of(body: bytes) -> Shape | None:
    """Return the shape of a content event that does nothing but bring a text.

    Args:
        body: One event, whole.

    Returns:
        None: it says more than that (a count, a reason to end, an error), or where its
        text stands is not known.
    """
    place = _TEXT.search(body)
    if place is None or not body.startswith(b"data: ") or not body.endswith(b"\n\n"):
        return None
    if not _only_brings(body[6:-2]):
        return None
    return Shape(body[: place.start(1)], _shared(body[place.end(1) :] + b"\r\n"))


@lru_cache(maxsize=64)
def _shared(end: bytes) -> bytes:
    """Return the one copy of an end, which thousands of answers have in common."""
    return end


def _only_brings(data: bytes) -> bool:
    """Return whether an event brings content and leaves everything else as it was."""
    read = OpenAIStream()
    read.prompt_tokens = read.output_tokens = read.cached_tokens = _UNTOUCHED
    if not read.feed(data):
        return False
    counts = {read.prompt_tokens, read.output_tokens, read.cached_tokens}
    reasons = (read.finish_reason, read.error, read.malformed)
    return counts == {_UNTOUCHED} and reasons == (None, None, None)
