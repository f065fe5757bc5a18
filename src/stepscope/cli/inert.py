"""An output that foreign text can not steer: names and log lines reach a terminal."""

import io
import re

#: Colours are ours, and harmless; every other escape is not. Then control characters
#: but tab and line feed, and those that turn the direction of what follows.
_COLOUR = r"\x1b\[[0-9;]*m"
_STEERS = re.compile(
    rf"({_COLOUR})|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def inert(text: str) -> str:
    """Return text with all that would move a cursor, or turn it, as U+FFFD."""
    return _STEERS.sub(lambda found: found[1] or "\ufffd", text)


class Inert(io.TextIOWrapper):
    """Standard output, over the same bytes, that lets no text steer the terminal.

    Bytes that a command writes to ``buffer`` itself are a document and pass as they
    are: JSON escapes its control characters.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._of = stream  # which would close the bytes when it is collected

    def write(self, text: str) -> int:
        """Write text, made inert; return the number of characters taken."""
        super().write(inert(text))
        return len(text)
