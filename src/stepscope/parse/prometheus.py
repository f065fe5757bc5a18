"""Prometheus text (exposition format 0.0.4, and OpenMetrics) to records.

Law: a line that can not be read is left out and counted, never guessed. Comments,
stamps and exemplars are dropped. A histogram stays its ``_bucket`` lines.
"""

import re
from collections.abc import Iterator

from stepscope.run.samples import MetricValue

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*')
_NUMBER = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?[Ii]nf|[Nn]a[Nn]"
)
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}
_ESCAPED = re.compile(r"\\(.)")


class MetricsReader:
    """Reads many snapshots of one server.

    Names and label sets are kept between snapshots, so that an hour of them does not
    hold the same labels thousands of times; do not change a record's ``labels``.
    """

    def __init__(self) -> None:
        self._series: dict[str, tuple[str, dict[str, str]]] = {}
        self.n_unreadable = 0

    def read(self, text: str) -> tuple[MetricValue, ...]:
        """Return the samples of one snapshot, in the order of its lines.

        Lines that are no sample are left out; ``n_unreadable`` counts those that are
        neither comment nor blank.
        """
        return tuple(self._values(text))

    def _values(self, text: str) -> Iterator[MetricValue]:
        for raw in text.split("\n"):
            line = raw.strip()
            if not line or line[0] == "#":
                continue
            value = self._value(line)
            if value is None:
                self.n_unreadable += 1
            else:
                yield value

    def _value(self, line: str) -> MetricValue | None:
        cut = _series_end(line)
        if cut is None:
            return None
        known = self._series.get(line[:cut])
        if known is None:
            known = _series(line[:cut])
            if known is None:
                return None
            self._series[line[:cut]] = known
        number = line[cut:].split(maxsplit=1)
        if not number or not _NUMBER.fullmatch(number[0]):
            return None
        return MetricValue(name=known[0], labels=known[1], value=float(number[0]))


def _series_end(line: str) -> int | None:
    """Return where the series ends and its value begins; None when neither does."""
    name = _NAME.match(line)
    if name is None:
        return None
    at = name.end()
    while at < len(line) and line[at] in " \t":
        at += 1
    if at == len(line) or line[at] != "{":
        return name.end() if at > name.end() else None
    at += 1
    while True:
        label = _LABEL.match(line, at)
        if label is None:
            break
        at = label.end()
        if at < len(line) and line[at] == ",":
            at += 1
    while at < len(line) and line[at] in " \t":
        at += 1
    return at + 1 if at < len(line) and line[at] == "}" else None


def _series(text: str) -> tuple[str, dict[str, str]] | None:
    name = _NAME.match(text)
    if name is None:
        return None
    labels = {
        label[1]: _ESCAPED.sub(lambda hit: _ESCAPES.get(hit[1], hit[0]), label[2])
        for label in _LABEL.finditer(text, name.end() + 1)
    }
    return name[0], labels


def parse_metrics(text: str) -> tuple[MetricValue, ...]:
    """Return the samples of one /metrics body, in the order of its lines.

    Args:
        text: The body. One cut in mid-number ends with a wrong last value, which no
            reader can tell: keep the body only when the response was whole.

    Returns:
        One record a sample line. Values may be ``inf`` or ``nan``, as the format
        allows; a reader of a gauge must expect them.
    """
    return MetricsReader().read(text)
