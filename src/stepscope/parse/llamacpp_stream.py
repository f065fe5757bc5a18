"""The events of llama.cpp's own ``/completion``: what each one says.

Every event counts the tokens so far (``tokens_predicted``), and the last one says
``stop``; no ``[DONE]`` follows. A character that is not whole yet is held back, so that
one event may bring several tokens.

Source: llama.cpp b11434 on the wire.
"""

from typing import Any, ClassVar

import msgspec

from stepscope.parse.answer import Answer, Count


class _Timings(msgspec.Struct, gc=False):
    cache_n: Count | None = None


class _Event(msgspec.Struct):
    content: Any = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: Count | None = None
    tokens_evaluated: Count | None = None
    timings: _Timings | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class LlamaCppStream(Answer):
    """One response of ``/completion``; its attributes are those of ``Answer``."""

    counts_as_it_goes: ClassVar[bool] = True
    __slots__ = ()

    def feed(self, data: bytes) -> bool:
        """Take the data of one event; True when it carries text."""
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.judge_oddity(data, str(error))
            return False
        if event.error:
            self.fail(event.error)
            return False
        if event.tokens_predicted is not None:
            self.output_tokens = event.tokens_predicted
        elif not event.content:
            self.judge_oddity(data, "")
        if event.tokens_evaluated is not None:
            self.prompt_tokens = event.tokens_evaluated
        if event.timings is not None:
            self.cached_tokens = event.timings.cache_n
        if event.stop:
            self.done = True
            self.finish(event.stop_type or "stop")
        if not event.content:
            return False
        self.answered = True
        if self.texts is not None and isinstance(event.content, str):
            self.texts.append(event.content)
        return True
