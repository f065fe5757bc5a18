"""Short questions to the server before the clock starts: one call, one connection."""

import socket
from typing import Any

import httptools
import msgspec

from stepscope.errors import SessionError
from stepscope.load.wire import Server, connected, parse_address

_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 16
#: Interim responses (1xx) come before the one that was asked for.
_FIRST_FINAL = 200


def ask(server: Server, path: str, body: object = None) -> Any:
    """Ask the server and decode its JSON answer.

    Args:
        server: Whom to ask.
        path: Path below the base URL's own.
        body: Sent as JSON with POST; None: GET.

    Returns:
        The decoded answer; None when there was none, none with status 200, or none
        in JSON: what is asked here is optional everywhere.
    """
    data = _asked(server, path, body)
    try:
        return None if data is None else msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None


def ask_text(server: Server, path: str) -> str | None:
    """Return what the server says at ``path``; None when it says nothing there."""
    data = _asked(server, path, None)
    return None if data is None else data.decode("utf-8", "replace")


class _Answer:
    """A response as its parser hands it over.

    The standard library's client would do, but brings mail and TLS with it: 2 MB of a
    process that waits beside the one that measures.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._framed = self._complete = False
        self._status: int | None = None
        self._body = bytearray()

    def read_from(self, sock: socket.socket) -> bytes | None:
        """Read to its end; None: it was cut, or its status is not 200."""
        while not self._complete:
            data = sock.recv(_READ_BYTES)
            if not data:
                break
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                if not self._complete:  # else it was what follows the answer
                    raise
        # Without a length and chunks it ends with its connection.
        whole = self._complete or not self._framed
        return bytes(self._body) if whole and self._status == 200 else None

    def on_header(self, name: bytes, _: bytes) -> None:
        if name.lower() in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if not self._complete and status >= _FIRST_FINAL:
            self._status = status

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body += body

    def on_message_complete(self) -> None:
        self._complete = self._complete or self._status is not None


def _asked(server: Server, path: str, body: object) -> bytes | None:
    address = parse_address(server.base_url)
    sent = b"" if body is None else msgspec.json.encode(body)
    fields = {"Host": address.authority, "Accept-Encoding": "identity"}
    fields |= server.headers
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(sent))}
    method = "GET" if body is None else "POST"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    head = f"{method} {address.prefix}{path} HTTP/1.1\r\n{lines}\r\n".encode()
    try:
        with connected(server.base_url, _TIMEOUT_S, insecure=server.insecure) as sock:
            sock.sendall(head + sent)
            return _Answer().read_from(sock)
    except (OSError, SessionError):
        return None
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None


def served_models(server: Server) -> list[dict[str, Any]]:
    """Return what ``/v1/models`` lists; empty when it lists nothing."""
    answer = ask(server, "/v1/models")
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list):
        return []
    return [model for model in models if isinstance(model, dict)]


def vocabulary_size(server: Server) -> int | None:
    """Return the number of tokens that the server's model has, if it says so."""
    for model in served_models(server):
        meta = model.get("meta")
        size = meta.get("n_vocab") if isinstance(meta, dict) else None
        if isinstance(size, int) and size > 0:
            return size
    return None
