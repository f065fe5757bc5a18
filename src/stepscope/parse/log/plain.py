"""Turning away bare lines, by words that are known to be harmless.

Text that no logger framed repeats its words more often than its lines.
"""

import re

from stepscope.parse.log.quick import STEMS, dull_bare

_ZEROS = bytes(48 if 48 <= b <= 57 else b for b in range(256))
#: What a line of llama-server that means something holds one of.
_LLAMA_STEMS = (
    b"build", b"buffer size", b"using device", b"offloaded ", b"n_slots", b"n_ctx",
    b" cells", b"listening on", b"oading model", b"odel loaded", b"flash_attn",
    b"llama_model_loader", b"slots are idle", b" time =", b"cleaning up",
)  # fmt: skip
#: A frame may stand behind any prefix, so a line that holds one of these is read.
_FRAME_STEMS = (b"INFO", b"WARN", b"ERROR", b"DEBUG", b"pid=", b"NVIDIA", b"\x1b[")
#: What a container may have put before a line; wider than what is taken off in the end.
_CONTAINER = re.compile(rb"[^|]{1,78}\| |\[?pod/|[A-Z][a-z]{2} [ \d]\d ")
#: How lines begin that a known logger may have framed.
_FRAMED = frozenset(bytes([b]) for b in b"{[(0123456789")
#: The letters with which a line begins, as the tables are keyed.
_FIRST = re.compile(rb"[\w'#@\x80-\xff-]*")
_MAX_WORDS = 20_000
_MAX_BYTES = 2048


def _longest_words(stems: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return of each stem the longest part that lies within one word."""
    return tuple(max(stem.split(), key=len) for stem in stems)


_OTHER_STEMS = (*_FRAME_STEMS, *_LLAMA_STEMS)
_WORD_STEMS = _longest_words((*STEMS, *_OTHER_STEMS))


class PlainLines:
    """Knows the words of a log that can not make a bare line mean something."""

    def __init__(self, first_words: frozenset[bytes]) -> None:
        self._first_words = first_words
        self._harmless: set[bytes] = set()

    def has(self, raw: bytes) -> bool:
        """True when a line that no logger framed means nothing, in any engine's log."""
        if raw[:1] in _FRAMED or len(raw) > _MAX_BYTES or _is_bar(raw):
            return False
        words = raw.translate(_ZEROS).split()
        first = _FIRST.match(words[0]) if words else None
        if first is None or first[0] in self._first_words or _CONTAINER.match(raw):
            return False
        if self._harmless.issuperset(words):
            return True
        for stem in _OTHER_STEMS:
            if stem in raw:
                return False
        if dull_bare(raw):
            if raw.isascii():  # Other bytes hardly ever repeat.
                self._learn(words)
            return True
        return False

    def _learn(self, words: list[bytes]) -> None:
        if len(self._harmless) > _MAX_WORDS:
            return
        self._harmless.update(
            word
            for word in words
            if len(word) <= 32 and not any(stem in word for stem in _WORD_STEMS)
        )


def _is_bar(raw: bytes) -> bool:
    return b"|" in raw and (b"%|" in raw or b"% |" in raw or b"% Completed" in raw)
