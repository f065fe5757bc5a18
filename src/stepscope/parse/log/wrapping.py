"""What a container, a supervisor or a launcher put before every line, and colours.

Both are taken off before a line is looked at: the readers that turn lines away know
lines by how they begin.
"""

import re

ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\[(?:1|0);(?:3\d|0)m")

#: How an engine frames its lines: vLLM, SGLang, llama-server.
_FRAME = re.compile(
    rb"(?:\([A-Za-z][^()\n]{0,60}?pid=\d+[^()\n]{0,60}\) ?)*"
    rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    rb" \[[^\]\n:]{1,120}:\d+\] |"
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:[A-Z]{2,4}\d+|[a-z_]+))*\] |"
    rb"\b\d+\.\d\d\.\d{3}\.\d{3} [DIWE] "
)
#: Prefixes that differ from line to line in more than their digits.
CONTAINER = (
    rb"(?:"
    rb"[\w.-]+\s+\| "  # docker compose
    rb"|\[?pod/[\w./-]+\]? "  # kubectl logs --prefix
    rb"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+(?:Z|[+-]\d\d:?\d\d)?\]? "
    rb"(?:std(?:out|err) [FP] )?"  # docker -t, CRI files
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@/-]+(?:\[\d+\])?: "  # journal
    rb")"
)
_CONTAINERS = tuple(re.compile(CONTAINER + b"{%d}" % n) for n in (1, 2, 3))
#: A prefix is shorter, and one that was not seen by then never comes.
_MAX_PREFIX = 200
_MAX_LINES = 2_000
_VARIES = re.compile(rb"\d+| {2,}(?=.)")


class Wrapping:
    """Takes colours off, and the prefix that the first framed line shows."""

    def __init__(self) -> None:
        self._coloured = False
        self._prefix: re.Pattern[bytes] | None = None
        self._n_left = _MAX_LINES

    def see(self, data: bytes) -> None:
        """Look at bytes before they are cut into lines: it is cheaper."""
        self._coloured = self._coloured or b"\x1b" in data

    def bare(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines as the engine wrote them."""
        if self._coloured:
            lines = [ANSI.sub(b"", x) if b"\x1b" in x else x for x in lines]
        if self._prefix is not None:
            return self._cut(lines, self._prefix)
        for n, line in enumerate(lines):
            if self._n_left <= 0:
                return lines
            self._n_left -= 1
            if line[:1] == b"{" and b"] " not in line:
                continue  # JSON, and no engine's line inside
            found = _FRAME.search(line, 0, 4 * _MAX_PREFIX)
            if found is None:
                continue
            self._n_left = 0
            if found.start() == 0 or found.start() > _MAX_PREFIX or line[:1] == b"{":
                return lines
            self._prefix = _pattern(line[: found.start()])
            return lines[:n] + self._cut(lines[n:], self._prefix)
        return lines

    @staticmethod
    def _cut(lines: list[bytes], prefix: re.Pattern[bytes]) -> list[bytes]:
        found = (prefix.match(line) for line in lines)
        return [
            line if hit is None else line[hit.end() :]
            for line, hit in zip(lines, found, strict=True)
        ]


def _pattern(prefix: bytes) -> re.Pattern[bytes]:
    """Return what matches the prefixes of other lines; digits and padding may vary.

    A colour code that lost its escape byte belongs to the process, not to the prefix.
    """
    prefix = ANSI.sub(b"", prefix)
    for known in _CONTAINERS:
        if known.fullmatch(prefix) is not None:
            return known
    parts, at = [], 0
    for hit in _VARIES.finditer(prefix):
        parts.append(re.escape(prefix[at : hit.start()]))
        parts.append(rb"\d+" if hit[0].isdigit() else b" +")
        at = hit.end()
    return re.compile(b"".join(parts) + re.escape(prefix[at:]))
