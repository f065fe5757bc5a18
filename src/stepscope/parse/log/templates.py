"""Samples whose wording was met before: numbers by their place, not by their names.

A message is cut at its numbers; what stands between them is its template. The first
message of a template is read by name, with numbers that tell where each one went; all
others are read by a pattern that is made of the template.
"""

import re

from stepscope.parse.log.samples import Named, figures

_TOKEN = re.compile(rb"([0-9]+(?:\.[0-9]+)?)")
#: Wider than a token and twice as fast to find; what is no number is refused later.
_NUMBER = rb"([0-9.]+)"
_COUNT = rb"0*([0-9]+)"
_FIRST_TOKEN = 10_000
_MAX_TEMPLATES = 512
_MAX_BYTES = 2_000
#: How samples begin, those excepted that print rates of an engine.
_SAMPLES = (b"SpecDecoding metrics", b"Decode batch", b"Prefill batch")
_RATES = b"Avg prompt throughput"

Template = tuple[bytes, ...]
Form = tuple[re.Pattern[bytes], Named]


class Templates:
    """Knows the templates of a log and what their numbers are called."""

    def __init__(self) -> None:
        self._known: dict[Template, Form | None] = {}
        self._last: dict[bytes, Form] = {}

    def read(self, message: bytes) -> dict[str, float] | None:
        """Return the named figures of a sample; None: ask ``figures``.

        The number of the engine that a message begins with is one of them.
        """
        start = message[:6]
        form = self._last.get(start)
        match = form[0].fullmatch(message) if form is not None else None
        if form is None or match is None:
            form = self._form(message)
            match = form[0].fullmatch(message) if form is not None else None
            if form is None or match is None:
                return None
            self._last[start] = form
        try:
            return form[1].read(match.groups())
        except ValueError:
            return None

    def _form(self, message: bytes) -> Form | None:
        template = tuple(_TOKEN.split(message)[::2])
        try:
            return self._known[template]
        except KeyError:
            form = _form(template)
            if len(self._known) < _MAX_TEMPLATES:
                self._known[template] = form
            return form


def _form(template: Template) -> Form | None:
    fixed = b"".join(template)
    if not fixed.isascii() or len(fixed) > _MAX_BYTES or b"[;" in fixed:
        return None
    if any(byte in fixed for byte in (b"\x1b", b"\r", b"\n", b'"', b"|")):
        return None  # A colour, a bar, or something that nobody prints in a sample.
    if b"." in template[1:-1]:
        return None  # It could be cut in two ways.
    names = _names(template)
    if names is None:
        return None
    pattern = re.escape(template[0])
    for name, piece in zip(names, template[1:], strict=True):
        group = _COUNT if name == "engine" else _NUMBER
        pattern += group if name else group.replace(b"(", b"(?:", 1)
        pattern += re.escape(piece)
    return re.compile(pattern), Named(*filter(None, names))


def _names(template: Template) -> list[str] | None:
    """Return what each number of a template is called, "" where it is not wanted."""
    names = [""] * (len(template) - 1)
    if template[0] == b"Engine " and template[1].startswith(b": "):
        names[0] = "engine"
        if not any(_RATES in piece for piece in template):
            return None
    elif not template[0].startswith(_SAMPLES):
        return None
    text = template[0].decode()
    for n, piece in enumerate(template[1:]):
        text += str(_FIRST_TOKEN + n) + piece.decode()
    for name, found in figures(text).items():
        n = int(found) - _FIRST_TOKEN if found == found // 1 else -1
        if not 0 <= n < len(names) or names[n]:
            return None  # More than the number alone was read, a sign for one.
        names[n] = name
    return names
