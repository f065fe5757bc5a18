"""Turning away lines that look like one that meant nothing, before decoding them.

A line's shape is the line with every digit written 0. What a line means depends on its
shape alone, unless a rule that may match it names digits. So a shape that meant nothing
once means nothing until the reader knows more (another engine, a server that is ready,
another start); only its time and its process's sign of life are still wanted, and those
of the last such line are enough.
"""

from dataclasses import dataclass

_ZEROS = bytes(48 if 48 <= b <= 57 else b for b in range(256))
#: Beyond so many shapes the log is no talk of a program; they are learnt anew.
_MAX_SHAPES = 8192
_MAX_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Dull:
    """A shape that means nothing.

    Attributes:
        stamped: Its lines carry a time.
        worker: Name of the process that it shows at work.
        works: Its lines show that somebody works.
    """

    stamped: bool
    worker: str | None = None
    works: bool = False


class Shapes:
    """The shapes that mean nothing, and the last line of each that counts for more."""

    def __init__(self) -> None:
        self._known: dict[bytes, Dull] = {}
        self._last: dict[bytes, int] = {}
        self.stamp_of: bytes | None = None

    def skips(self, line: int, raw: bytes) -> bool:
        """Say whether a line means nothing, and remember that it was there."""
        # As ``shape_of``: a call for every line would cost as much as the rest.
        shape, at = raw.translate(_ZEROS), raw.find(b"pid=")
        if at >= 0:
            begin = 0 if raw.startswith(b"(") else raw.rfind(b"(", 0, at)
            shape = raw[begin:at] + shape
        found = self._known.get(shape)
        if found is None:
            return False
        if found.stamped:
            self.stamp_of = raw
        if found.works:
            self._last[shape] = line
        return True

    def learn(self, raw: bytes, dull: Dull) -> None:
        """Remember that lines of this shape mean nothing."""
        if len(raw) > _MAX_BYTES:
            return
        if len(self._known) >= _MAX_SHAPES:
            # What has been seen at work stays known until it is asked for.
            self._known = {s: d for s, d in self._known.items() if s in self._last}
            if len(self._known) >= _MAX_SHAPES // 2:
                return
        self._known[shape_of(raw)] = dull

    def worked(self) -> dict[str | None, int]:
        """Return the last line of each process that was turned away."""
        found: dict[str | None, int] = {}
        for shape, line in self._last.items():
            worker = self._known[shape].worker
            found[worker] = max(line, found.get(worker, 0))
        return found

    def forget(self) -> None:
        """Know nothing any more; call ``worked`` before, where it is wanted."""
        self._known.clear()
        self._last.clear()


def shape_of(raw: bytes) -> bytes:
    """Return a line with every digit 0, its process excepted."""
    shape = raw.translate(_ZEROS)
    at = raw.find(b"pid=")
    if at < 0:
        return shape
    begin = 0 if raw.startswith(b"(") else raw.rfind(b"(", 0, at)
    return raw[begin:at] + shape
