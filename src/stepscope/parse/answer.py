"""What the events of one streamed answer have said so far, in any dialect."""

from typing import Annotated, Any, ClassVar

import msgspec

#: A count of tokens as a server may state it; anything else is no answer.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]

#: Finish reasons with which a server gives a request up.
_ABORTED = frozenset({"abort", "error"})


class Answer:
    """What one response has said; a dialect's ``feed`` fills it.

    Attributes:
        done: The server said that this was all. Some never do.
        answered: Content other than reasoning was seen.
        prompt_tokens: As the server counted last; None: it did not.
        output_tokens: The same.
        cached_tokens: The same.
        finish_reason: As the server said it.
        error: One line of an error object inside the stream; None: none came.
        malformed: One line about an event that is no JSON of this kind.
        texts: The pieces of text, where they were asked for.
        counts_as_it_goes: Of a dialect: every event counts, and the last one says why
            it is the last.
    """

    counts_as_it_goes: ClassVar[bool] = False

    __slots__ = (
        "answered",
        "cached_tokens",
        "done",
        "error",
        "finish_reason",
        "malformed",
        "output_tokens",
        "prompt_tokens",
        "texts",
    )

    def __init__(self, *, keep_text: bool = False) -> None:
        self.done = False
        self.answered = False
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.malformed: str | None = None
        self.texts: list[str] | None = [] if keep_text else None

    def finish(self, reason: Any) -> None:
        """Take a finish reason."""
        self.finish_reason = reason if isinstance(reason, str) else one_line(reason)
        if self.finish_reason in _ABORTED and self.error is None:
            self.error = f"the server gave up: finish_reason {self.finish_reason!r}"

    def fail(self, what: Any) -> None:
        """Take an error object; the first one counts."""
        if self.error is None:
            if isinstance(what, dict) and isinstance(what.get("message"), str):
                what = what["message"]
            self.error = one_line(what)

    def judge_oddity(self, data: bytes, why: str) -> None:
        """Judge an event that is no ordinary chunk."""
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if self.malformed is None:
                text = data[:120].decode("utf-8", "replace")
                self.malformed = f"{error}: {text!r}"
            return
        if isinstance(value, dict):
            if value.get("error"):
                self.fail(value["error"])
            elif value.get("object") == "error":
                self.fail(value.get("message", value))
            elif why and self.malformed is None:
                self.malformed = why
        elif value is not None and self.malformed is None:
            self.malformed = f"an event that is no object: {one_line(value)}"


def one_line(value: Any, limit: int = 300) -> str:
    """Return ``value`` as one line of at most ``limit`` characters, all printable.

    It is a stranger's text on its way to a terminal: escapes would be obeyed there.
    """
    if isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode("utf-8", "replace")
    line = " ".join(text[: 4 * limit].split())[:limit]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
