"""How a message finds its meaning: by its first word, then by a pattern."""

import re
from collections.abc import Callable, Mapping

from stepscope.parse.log.state import Here, State

Handler = Callable[[State, Here, re.Match[str]], None]
Rules = Mapping[str, tuple[tuple[re.Pattern[str], Handler], ...]]

_CHOICE = re.compile(r"\((?:\?:)?([A-Za-z|]+)\)")
#: A digit that a pattern asks for by its value, outside of counts and classes of all.
_VALUE = re.compile(r"(?<!\\)(?:\[[^\]]*\]|\{[^}]*\})|(?<!\\)\d")
_FIRST_WORD = re.compile(r"[\w'#@-]{0,40}")
_TAG = re.compile(r"\[[\w.\- ]{1,40}\] (?=[A-Z])")


def compiled(*rules: tuple[str, Handler]) -> Rules:
    """Build the table: a pattern starts with a literal word or a choice of them."""
    table: dict[str, list[tuple[re.Pattern[str], Handler]]] = {}
    for pattern, handler in rules:
        choice = _CHOICE.match(pattern)
        words = (
            choice[1].split("|")
            if choice is not None
            else [re.split(r"[ \\(\[{?*+.|:=,/]", pattern, maxsplit=1)[0]]
        )
        for word in words:
            assert word, pattern
            table.setdefault(word, []).append((re.compile(pattern), handler))
    return {word: tuple(rows) for word, rows in table.items()}


def valued(rules: Rules) -> frozenset[str]:
    """Return the first words under which a pattern asks for digits by their value."""
    return frozenset(
        word
        for word, rows in rules.items()
        for pattern, _ in rows
        if any(hit[0][0] not in "[{" for hit in _VALUE.finditer(pattern.pattern))
        or re.search(r"\[[^\]]*\d(?!-9)[^\]]*\]", pattern.pattern)
    )


def first_word(text: str) -> str:
    """Return what the tables are keyed by."""
    match = _FIRST_WORD.match(text)
    return match[0] if match is not None else ""


def untagged(text: str) -> str:
    """Return a message without a tag in brackets before it."""
    if text.startswith("[") and not text.startswith("[shutdown]"):
        tag = _TAG.match(text)
        if tag is not None:
            return text[tag.end() :]
    return text


def apply(rules: Rules, state: State, here: Here) -> bool:
    """Apply the first rule that matches; say whether one did."""
    text = untagged(here.text)
    rows = rules.get(first_word(text))
    if rows is None:
        return False
    for pattern, handler in rows:
        match = pattern.match(text)
        if match is not None:
            handler(state, here, match)
            return True
    return False
