"""The events of an OpenAI-style completion stream: what each one says.

Both dialects (``text`` of completions, ``delta`` of chat completions) are read by one
type. Token counts come from the usage record alone; a chunk is never counted as a
token. Fields that no measurement needs are skipped unread, which is what makes it
cheap: 0.3 us a chunk against 3 us for ``json.loads``.
"""

from typing import Any

import msgspec

from stepscope.parse.answer import Answer, Count

_DONE = b"[DONE]"
_NOTHING, _REASONING, _ANSWER = 0, 1, 2


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None


# What counts as content is typed Any: only its truth is asked, and servers send text,
# null, or lists of parts in the same place.
class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None


class _Choice(msgspec.Struct):
    text: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIStream(Answer):
    """One response of a completion endpoint; its attributes are those of ``Answer``."""

    __slots__ = ()

    def feed(self, data: bytes) -> bool:
        """Take the data of one event.

        Args:
            data: Data of one event, as ``SseDecoder`` gives it.

        Returns:
            True when the event carries content: text, reasoning or a tool call. A
            role, an empty text, a usage record or an error is no content.
        """
        if data == _DONE:
            self.done = True
            return False
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.judge_oddity(data, str(error))
            return False
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        if chunk.error:
            self.fail(chunk.error)
            return False
        if not chunk.choices:
            if chunk.usage is None:
                self.judge_oddity(data, "")
            return False
        has_content = False
        for choice in chunk.choices:
            if choice.finish_reason:
                self.finish(choice.finish_reason)
            if choice.text:
                has_content = self.answered = True
            elif choice.delta is not None and (kind := _says(choice.delta)):
                has_content = True
                self.answered = self.answered or kind == _ANSWER
        if has_content and self.texts is not None:
            self._keep(chunk.choices)
        return has_content

    def _take_usage(self, usage: _Usage) -> None:
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None:
            self.output_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None:
            self.cached_tokens = usage.prompt_tokens_details.cached_tokens

    def _keep(self, choices: list[_Choice]) -> None:
        assert self.texts is not None
        for choice in choices:
            piece = choice.text
            if not piece and choice.delta is not None:
                delta = choice.delta
                piece = delta.content or delta.reasoning_content or delta.reasoning
            if isinstance(piece, str):
                self.texts.append(piece)


def _says(delta: _Delta) -> int:
    """Return whether a delta holds nothing, reasoning, or a part of the answer."""
    if delta.content or delta.tool_calls or delta.function_call or delta.refusal:
        return _ANSWER
    return _REASONING if delta.reasoning_content or delta.reasoning else _NOTHING
