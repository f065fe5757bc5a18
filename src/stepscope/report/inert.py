"""Text of a run made fit for a page: no control characters, no endless lines."""

import re

from markupsafe import Markup, escape

#: Control characters but tab and line feed, and halves of surrogate pairs: XML and
#: UTF-8 can not hold them. Then what overrides or isolates a direction of writing: one
#: that a name leaves open turns the digits of the sentence around it. Letters of either
#: direction need none of them.
_UNFIT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]"
)
#: More of one message nobody reads; the raw file has it all.
MOST_CHARACTERS = 1500


def fit(text: str) -> str:
    """Return text with what XML can not hold replaced by U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return text of at most ``most`` characters, saying how much was left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most:,} more characters)"


def finalize(value: object) -> object:
    """Return what a template is about to print, made fit; markup stays markup.

    What must be there to the last letter goes through ``whole``.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return fit(clipped(value))
    return value


def whole(text: str) -> Markup:
    """Return a text of any length, escaped: a recipe or a command to be copied."""
    return escape(fit(text))


def fit_spec(value: object) -> object:
    """Return a figure's specification with all its text made fit, and not endless."""
    if isinstance(value, str):
        return clipped(fit(value))
    if isinstance(value, dict):
        return {key: fit_spec(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [fit_spec(inner) for inner in value]
    return value


def unique_ids(kind: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return for each name an id of the page: letters, digits, dots, dashes.

    Names that differ only in other characters get different ids.
    """
    made: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        plain = f"{kind}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:80]}"
        found, again = plain, 1
        while found in used:
            again += 1
            found = f"{plain}-{again}"
        used.add(found)
        made.setdefault(name, found)
    return made


class Links:
    """Names and concurrencies in a sentence become links to the sections of cells.

    Args:
        ids: Name of a cell or launch -> the id of its section.
        points: (configuration, concurrency) -> the cell that a number there is of.
    """

    def __init__(
        self, ids: dict[str, str], points: dict[tuple[str, int], str] | None = None
    ) -> None:
        self._ids = ids
        self._points = points or {}
        # A cell that is called "8" would be found in every number.
        named = [n for n in ids if re.search(r"[^\W\d_]", n) and re.search(r"\d", n)]
        named.sort(key=len, reverse=True)
        either = "|".join([*(re.escape(name) for name in named), r"(?!)"])
        self._seen = re.compile(
            rf"(?<![\w.-])(?P<name>{either})(?![\w-])|concurrency (?P<at>\d+)"
        )

    def told(self, text: object) -> Markup:
        """Return text escaped and clipped; what has a section is a link to it.

        A sentence that begins with a configuration's name is about that one.
        """
        plain = clipped(str(text))
        head = plain.split(":", 1)[0]
        parts, at = [], 0
        for match in self._seen.finditer(plain):
            parts.append(escape(fit(plain[at : match.start()])))
            if match["name"] is not None:
                parts.append(self.link(match[0]))
            else:
                cell = self._cell(head, int(match["at"][:9]))
                parts.append(self.link(cell, match[0]) if cell else escape(match[0]))
            at = match.end()
        parts.append(escape(fit(plain[at:])))
        return Markup().join(parts)

    def _cell(self, head: str, concurrency: int) -> str | None:
        if (head, concurrency) in self._points:
            return self._points[head, concurrency]
        every = [name for (_, c), name in self._points.items() if c == concurrency]
        # Of several configurations nothing says which one is meant.
        return every[0] if len(every) == 1 else None

    def link(self, name: str, text: str | None = None) -> Markup:
        """Return a name as a link to its section, or as text where it has none."""
        found = self._ids.get(name)
        shown = fit(clipped(text or name, 120))
        if found is None:
            return escape(shown)
        return Markup('<a href="#{}">{}</a>').format(found, shown)
