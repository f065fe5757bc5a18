"""An output that foreign text can not steer: names and log lines reach a terminal."""

import re
from typing import TextIO

#: Colours are ours, and harmless; every other escape is not. Then control characters
#: but tab and line feed, and those that turn the direction of what follows.
_STEERS = re.compile(
    r"(\x1b\[[0-9;]*m)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def inert(text: str) -> str:
    """Return text with all that would move a cursor, or turn it, as U+FFFD."""
    return _STEERS.sub(lambda found: found[1] or "\ufffd", text)


class Inert:
    """Standard output that lets no text steer the terminal; otherwise the stream.

    Bytes that a command writes to ``buffer`` itself are a document and pass as they
    are: JSON escapes its control characters.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, made inert; return the number of characters taken."""
        self._stream.write(inert(text))
        return len(text)
