"""Bytes to physical lines, in bounded memory and in any encoding."""

import codecs
from collections.abc import Iterator

#: Longer lines are cut here; what follows, up to the line feed, is dropped.
MAX_LINE_BYTES = 1 << 18

_BOMS = (
    (codecs.BOM_UTF8, None),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class LineSplitter:
    """Cuts a stream of bytes at line feeds.

    A log redirected by PowerShell is UTF-16 with a byte-order mark; it is turned into
    UTF-8 on the way. Everything else is passed on as it is: bytes that are no UTF-8
    are replaced later, one character each.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._dropping = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._started = False
        self.n_cut = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, without their line feeds."""
        if not self._started:
            data = self._tail + data
            self._tail = b""
            if len(data) < 3:
                self._tail = data
                return []
            data = self._sniff(data)
        if self._decoder is not None:
            data = self._decoder.decode(data).encode("utf-8", "replace")
        lines = data.split(b"\n")
        if len(lines) == 1:
            self._keep(lines[0])
            return []
        first = self._tail + lines[0]
        self._tail = b""
        lines[0] = first
        dropped, self._dropping = self._dropping, False
        self._keep(lines.pop())
        if dropped:
            lines[0] = lines[0][:MAX_LINE_BYTES]
        return lines

    def short(self) -> list[bytes]:
        """Return the lines of a stream that ended before it could have a mark."""
        if self._started:
            return []
        data, self._tail = self._tail, b""
        return self.feed(self._sniff(data))

    def close(self) -> Iterator[bytes]:
        """Yield the last line when the stream ended in the middle of one."""
        if self._decoder is not None:
            self._tail += self._decoder.decode(b"", final=True).encode()
        if self._tail:
            yield self._tail
        self._tail = b""

    def _sniff(self, data: bytes) -> bytes:
        self._started = True
        for mark, encoding in _BOMS:
            if data.startswith(mark):
                if encoding is not None:
                    self._decoder = codecs.getincrementaldecoder(encoding)("replace")
                return data[len(mark) :]
        return data

    def _keep(self, piece: bytes) -> None:
        if self._dropping:
            return
        self._tail += piece
        if len(self._tail) > MAX_LINE_BYTES:
            # A progress bar without line feeds: its last state is what counts.
            head, _, last = self._tail.rpartition(b"\r")
            self._tail = last if head and len(last) < MAX_LINE_BYTES else b""
            if not self._tail:
                self._tail = piece[:0] + head[:MAX_LINE_BYTES] or last[:MAX_LINE_BYTES]
                self._dropping = True
            self.n_cut += 1
