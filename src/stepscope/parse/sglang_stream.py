"""The events of SGLang's own ``/generate``: what each one says.

Each event holds the whole text so far (with ``--incremental-streaming-output`` the new
part alone) and counts the tokens so far in ``meta_info``. So an event carries content
when that count has grown; where an event has no count, when its text is another one.

Source: SGLang 0.5.23, its tokenizer manager and HTTP server.
"""

from typing import Any, ClassVar

import msgspec

from stepscope.parse.answer import Answer, Count, one_line

_DONE = b"[DONE]"


class _Meta(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    finish_reason: Any = None


class _Event(msgspec.Struct):
    text: str | None = None
    meta_info: _Meta | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class SglangStream(Answer):
    """One response of ``/generate``; its attributes are those of ``Answer``."""

    counts_as_it_goes: ClassVar[bool] = True
    __slots__ = ("_text",)

    def __init__(self, *, keep_text: bool = False) -> None:
        super().__init__(keep_text=keep_text)
        self._text = ""

    def feed(self, data: bytes) -> bool:
        """Take the data of one event; True when it brings tokens."""
        if data == _DONE:
            self.done = True
            return False
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.judge_oddity(data, str(error))
            return False
        if event.error:
            self.fail(event.error)
            return False
        if event.meta_info is None and event.text is None:
            self.judge_oddity(data, "")
            return False
        before = self.output_tokens or 0
        if event.meta_info is not None:
            self._take(event.meta_info)
        if event.meta_info is None or event.meta_info.completion_tokens is None:
            brings = bool(event.text) and event.text != self._text
        else:
            brings = event.meta_info.completion_tokens > before
        self._keep(event.text or "")
        self.answered = self.answered or brings
        return brings

    def _take(self, meta: _Meta) -> None:
        if meta.prompt_tokens is not None:
            self.prompt_tokens = meta.prompt_tokens
        if meta.completion_tokens is not None:
            self.output_tokens = meta.completion_tokens
        if meta.cached_tokens is not None:
            self.cached_tokens = meta.cached_tokens
        reason = meta.finish_reason
        if isinstance(reason, dict):
            said = reason.get("message")
            reason = reason.get("type")
            if reason == "abort" and said:
                self.fail(f"the server gave up: {one_line(said)}")
        if reason:
            self.finish(reason)

    def _keep(self, text: str) -> None:
        """Remember the text; what goes on from it replaces it."""
        if text.startswith(self._text):
            new, self._text = text[len(self._text) :], text
        else:  # a server that sends new parts alone
            new, self._text = text, text
        if self.texts is not None and new:
            self.texts.append(new)
