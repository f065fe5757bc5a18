"""Top-level pairs of a printed Python dict or of ``key=value, ...``, without eval."""

import re
from collections.abc import Iterator

Value = str | int | float | bool | None

_SPECIAL = re.compile(r"[\\'\"()\[\]{}<>,]")
_WORDS: dict[str, Value] = {"None": None, "True": True, "False": False}
MAX_VALUE = 2_000


def pieces(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets and quotes."""
    depth, start, quote, skip = 0, 0, "", -1
    for match in _SPECIAL.finditer(text):
        char, at = match[0], match.start()
        if at == skip:
            continue
        if quote:
            if char == "\\":
                skip = at + 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            if char != ">" or text[at - 1 : at] not in "-=":
                depth = max(0, depth - 1)
        elif char == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    last = text[start:].strip()
    if last:
        yield last


def scalar(text: str) -> Value:
    """Read one value; what is no plain value stays the text that was printed."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1][:MAX_VALUE]
    if len(text) < 40:
        try:
            return int(text)
        except ValueError:
            pass
        try:
            number = float(text)
        except ValueError:
            pass
        else:
            return number if number - number == 0 else text
    return text[:MAX_VALUE]


def pairs(text: str) -> dict[str, Value]:
    """Read ``{'a': 1, ...}`` or ``a=1, ...``; pieces of neither form are left out."""
    text = text.strip()
    if text.startswith("{"):
        text = text[1:-1] if text.endswith("}") else text[1:]
    found: dict[str, Value] = {}
    for piece in pieces(text):
        if piece.startswith(("'", '"')):
            key, colon, value = piece[1:].partition(piece[0])
            value = value.lstrip()
            if colon and value.startswith(":"):
                found[key] = scalar(value[1:])
            continue
        key, equals, value = piece.partition("=")
        if equals and key.strip().replace("_", "a").isalnum():
            found[key.strip()] = scalar(value)
    return found
