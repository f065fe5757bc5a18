"""Turning away bare lines, by words that are known to be harmless.

Text that no logger framed repeats its words more often than its lines.
"""

import re
from collections.abc import Iterator

from stepscope.parse.log.quick import STEMS, dull_bare

_ZEROS = bytes(48 if 48 <= b <= 57 else b for b in range(256))
#: What a line of llama-server that means something holds one of.
_LLAMA_STEMS = (
    b"build", b"buffer size", b"using device", b"offloaded ", b"n_slots", b"n_ctx",
    b"n_ubatch", b"MiB free", b" cells", b"listening on", b"oading model",
    b"odel loaded", b"flash_attn", b"llama_model_loader", b"slots are idle",
    b" time =", b"cleaning up",
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
_MAX_WORD = 32
_MAX_BYTES = 2048


#: What makes a line count although it tells of nothing that failed.
_COUNTED = (b" HTTP/1.", b"Iteration(")
#: A bar, or a container's name.
_PIPES = (b"| ", b"%|", b"% |", b"% Completed")


def _longest_words(stems: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return of each stem the longest part that lies within one word."""
    return tuple({max(stem.split(), key=len): None for stem in stems})


_OTHER_STEMS = (*_FRAME_STEMS, *_LLAMA_STEMS)
#: Words are compared with their digits 0, and one with a pipe is never harmless.
_WORD_STEMS = _longest_words((*STEMS, *_OTHER_STEMS, b"HTTP/", b"Iteration(", b"|"))
#: All that makes a line loud, for text that repeats no words.
_ALL_STEMS = (*STEMS, *_OTHER_STEMS, *_COUNTED, *_PIPES)
_LOUD = re.compile(b"|".join(map(re.escape, _ALL_STEMS)))


def _sieve(stems: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Find all stems by the bytes that stand at their first places, and much else.

    A choice of many words is tried word by word wherever one may begin; a row of sets
    of bytes fails at once.
    """
    places = ({re.escape(stem[n : n + 1]) for stem in stems} for n in range(_ROW))
    return re.compile(b"".join(b"[" + b"".join(sorted(p)) + b"]" for p in places))


_ROW = 4
_SIEVE = _sieve(tuple(stem for stem in _ALL_STEMS if len(stem) >= _ROW))
_SHORT_STEMS = tuple(stem for stem in _ALL_STEMS if len(stem) < _ROW)


def _starts(begin: bytes, first_words: frozenset[bytes]) -> re.Pattern[bytes]:
    """How a line begins that may be framed or told by its first word; digits are 0.

    A frame in round brackets names a process, which is a stem of its own.
    """
    words = b"|".join(map(re.escape, sorted(first_words)))
    return re.compile(
        begin + rb"(?:\{[\s\"}]|\[[\w.\- ]|0+(?:\.00\.|-00-00)|pod/|"
        rb"[A-Z][a-z]{2} [ 0]0 |[ \t\x0b\x0c]*(?:" + words
        + rb")(?![\w'#@\x80-\xff-]))"
    )  # fmt: skip


class PlainLines:
    """Knows the words of a log that can not make a bare line mean something."""

    def __init__(self, first_words: frozenset[bytes]) -> None:
        self._first_words = first_words
        self._harmless: set[bytes] = set()
        self._at_feed = _starts(rb"\n", first_words)
        self._at_return = _starts(rb"\r", first_words)

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
                self._learn({word for word in words if len(word) <= _MAX_WORD})
            return True
        return False

    def loud(self, lines: list[bytes]) -> list[int]:
        """Return the places of the lines that ``has`` may not have, in order.

        All lines at once cost a tenth of one after another: their words are compared
        as sets. A line in pieces (carriage returns) has none where its pieces have.
        """
        block = b"\n" + b"\n".join(lines)
        zeroed = block.translate(_ZEROS)
        found = {n for n, line in enumerate(lines) if len(line) > _MAX_BYTES}
        at = [hit.start() for hit in self._at_feed.finditer(zeroed)]
        if b"\r" in block:
            at += [hit.start() for hit in self._at_return.finditer(zeroed)]
        ascii_only = block.isascii()
        if ascii_only:
            bad = self._bad(set(zeroed.split()) - self._harmless)
            if bad:
                found.update(
                    n
                    for n, line in enumerate(zeroed[1:].split(b"\n"))
                    if not bad.isdisjoint(line.split())
                )
        else:
            at += [hit.start() for hit in _SIEVE.finditer(block)]
            for stem in _SHORT_STEMS:
                if stem in block:
                    at += [hit.start() for hit in re.finditer(re.escape(stem), block)]
        found.update(
            n
            for n in set(_places(block, sorted(at)))
            if n not in found and (ascii_only or self._counts(lines[n]))
        )
        return sorted(found)

    def _counts(self, line: bytes) -> bool:
        """Look closely at a line that a sieve did not let pass."""
        zeroed = line.translate(_ZEROS)
        return (
            _LOUD.search(line) is not None
            or self._at_feed.match(b"\n" + zeroed) is not None
            or (b"\r" in line and self._at_return.search(zeroed) is not None)
        )

    def _bad(self, words: set[bytes]) -> set[bytes]:
        """Return those of some new words that may make a line mean something."""
        text = b"\n".join(words)
        stems = [stem for stem in _WORD_STEMS if stem in text]
        bad = {w for w in words if any(s in w for s in stems)} if stems else set()
        self._learn({w for w in words if len(w) <= _MAX_WORD} - bad)
        return bad

    def _learn(self, words: set[bytes]) -> None:
        if len(self._harmless) > _MAX_WORDS:
            return
        new = words - self._harmless
        if new:
            text = b"\n".join(new)
            stems = [stem for stem in _WORD_STEMS if stem in text]
            if stems:
                new = {w for w in new if not any(s in w for s in stems)}
            self._harmless |= new


def _places(block: bytes, at: list[int]) -> Iterator[int]:
    """Turn places in a text, each line of which has a feed before it, into lines."""
    line, last = -1, 0
    for place in at:
        line += block.count(b"\n", last, place + 1)
        last = place + 1
        yield line


def _is_bar(raw: bytes) -> bool:
    return b"|" in raw and (b"%|" in raw or b"% |" in raw or b"% Completed" in raw)
