"""Server-sent events: bytes in, the data of whole events out.

Law of this file: what comes out does not depend on how the bytes were cut. It follows
the WHATWG event-stream grammar, except that ``finish`` also gives an event whose
closing blank line never came, since servers end streams that way.
"""

import re

#: An event longer than this is no token stream; without a limit a server that never
#: sends a newline would fill the memory.
MAX_EVENT_BYTES = 8 << 20

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"


class EventTooLongError(ValueError):
    """An event exceeded ``MAX_EVENT_BYTES``."""


class SseDecoder:
    """Cuts a byte stream into the data of its events.

    Comments and the fields ``event``, ``id`` and ``retry`` are dropped: no engine
    says anything there that its data does not say.
    """

    __slots__ = ("_begun", "_clean", "_data", "_n_held", "_rest", "_skip_lf")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._n_held = 0
        self._skip_lf = False
        self._begun = False
        self._clean = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes.

        Args:
            chunk: Bytes as they came, cut anywhere.

        Returns:
            The data of each event that they complete, in order; several data lines
            of one event are joined by a newline.

        Raises:
            EventTooLongError: An event exceeds ``MAX_EVENT_BYTES``.
        """
        # One whole event per call is what engines send; nothing else needs speed. A
        # search for a number is several times as fast as one for bytes.
        if self._clean and chunk[:6] == b"data: " and chunk[-2:] == b"\n\n":
            data = chunk[6:-2]
            if _LF not in data and _CR not in data:
                self._begun = True
                return [data] if data else []
        return self._feed_lines(chunk)

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        buffer = self._rest + chunk
        if not self._begun:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._rest = buffer
                return []
            self._begun = True
            buffer = buffer.removeprefix(_BOM)
        # A carriage return at the end of the bytes ends its line now; the line feed
        # that may follow belongs to it.
        self._skip_lf = buffer[-1:] == b"\r"
        lines = _LINE_END.split(buffer)
        self._rest = lines.pop()
        events = [data for line in lines if (data := self._line(line))]
        if len(self._rest) + self._n_held > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        self._clean = not (self._rest or self._data or self._skip_lf)
        return events

    def _line(self, line: bytes) -> bytes | None:
        """Take one line; return an event's data when the line ends one."""
        if not line:
            data = b"\n".join(self._data)
            self._data.clear()
            self._n_held = 0
            return data or None
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._n_held += len(value) + 1
        return None

    def finish(self) -> list[bytes]:
        """Return the data of an event that the end of the stream left open, if any."""
        if self._rest:
            self._line(self._rest.removeprefix(_BOM) if not self._begun else self._rest)
            self._rest = b""
        data = self._line(b"")
        return [data] if data else []
