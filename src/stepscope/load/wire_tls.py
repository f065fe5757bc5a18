"""TLS between bytes and bytes: the socket stays ours, and with it the kernel's stamps.

No I/O: encrypted bytes in, plain bytes out, and the other way round. What a record held
is stamped with the read that completed the record.
"""

import ssl


class Tls:
    """One encrypted connection, from the client's side.

    Args:
        context: Whom to trust.
        host: The name that the certificate must hold.

    Attributes:
        ready: The handshake is done.
    """

    __slots__ = ("_in", "_object", "_out", "ready")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=host)
        self.ready = False

    def shake(self, data: bytes) -> bytes:
        """Go on with the handshake.

        Args:
            data: What the server sent; empty at first.

        Returns:
            What is to be sent to it.

        Raises:
            ssl.SSLError: There is no agreement, or the certificate is not trusted.
        """
        if data:
            self._in.write(data)
        try:
            self._object.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        return self._out.read()

    def seal(self, plain: bytes) -> bytes:
        """Return ``plain`` encrypted."""
        self._object.write(plain)
        return self._out.read()

    def open(self, data: bytes) -> bytes:
        """Take encrypted bytes; return what they complete.

        Raises:
            ssl.SSLError: They are not what the server encrypted.
        """
        self._in.write(data)
        parts = []
        try:
            while piece := self._object.read(1 << 16):
                parts.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(parts)
