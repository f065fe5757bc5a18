"""A server that writes exactly the bytes of its script: threads, real sockets."""

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

CERTIFICATE = Path(__file__).parents[1] / "data" / "tls" / "cert.pem"


class HungUpError(Exception):
    """The client has hung up."""


class Exchange:
    """One request on one connection, and what the script may do with it."""

    def __init__(self, sock: socket.socket, request: bytes, number: int) -> None:
        self.sock = sock
        self.request = request
        self.number = number
        self.keep = True
        self.released = threading.Event()

    def write(self, data: bytes, *, split: int | None = None) -> None:
        """Write all of it, in pieces of ``split`` bytes where that is given."""
        step = split or max(len(data), 1)
        try:
            for at in range(0, len(data), step):
                self.sock.sendall(data[at : at + step])
        except OSError as error:
            raise HungUpError from error

    def hang_up(self) -> None:
        """Close the connection in good order after this exchange."""
        self.keep = False

    def reset(self) -> None:
        """Close it with a reset."""
        linger = struct.pack("ii", 1, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.keep = False

    def hold(self) -> None:
        """Say nothing until the client hangs up."""
        with contextlib.suppress(OSError):
            while self.sock.recv(1 << 16):
                pass
        self.keep = False


Script = Callable[[Exchange], None]


class ScriptedServer:
    """Serves ``script`` once for each request; counts what it saw."""

    def __init__(
        self,
        script: Script,
        others: dict[str, bytes] | None = None,
        *,
        tls: bool = False,
        path: Path | None = None,
    ) -> None:
        self._script = script
        self._context = _server_tls() if tls else None
        self._path = path
        self._others = others or {}
        self._lock = threading.Lock()
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.n_connections = 0
        self.requests: list[bytes] = []
        if path is None:
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            self.listener.listen(16)

    @property
    def url(self) -> str:
        if self._path is not None:
            return f"unix://{self._path}"
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening and drop every connection."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self._lock:
            socks, self._socks = self._socks, []
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            if self._path is None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.n_connections += 1
                self._socks.append(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        keep = True
        try:
            if self._context is not None:
                plain, sock = sock, self._context.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._socks[self._socks.index(plain)] = sock
            while keep and (request := _read_request(sock)):
                target = request.split(b" ", 2)[1].decode()
                if not target.startswith(("/v1/c", "/completion", "/generate")):
                    sock.sendall(self._other(target, request))
                    continue
                with self._lock:
                    self.requests.append(request)
                    number = len(self.requests) - 1
                exchange = Exchange(sock, request, number)
                self._script(exchange)
                keep = exchange.keep
        except (OSError, HungUpError):
            pass
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._socks.remove(sock)
            sock.close()

    def _reply(self, request: bytes) -> bytes | None:
        """Answer ``/tokenize``; None: there is no such thing."""
        return None

    def _other(self, target: str, request: bytes) -> bytes:
        body = self._others.get(target)
        if target == "/tokenize":
            body = self._reply(request)
        status = "404 Not Found" if body is None else "200 OK"
        body = body or b"{}"
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body


def _server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
    return context


def _read_request(sock: socket.socket) -> bytes:
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if len(body) >= (int(length.group(1)) if length else 0):
                return data
        more = sock.recv(1 << 16)
        if not more:
            return b""
        data += more


HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def text(piece: str) -> bytes:
    """Return one completions event."""
    return b'data: {"choices":[{"index":0,"text":"%s"}]}\n\n' % piece.encode()


def usage(output: int, prompt: int = 8) -> bytes:
    """Return the usage event."""
    return (
        b'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}\n\n'
        % (prompt, output)
    )


def stream(*events: bytes) -> bytes:
    """Return a whole response with one HTTP chunk an event."""
    return HEAD + b"".join(chunk(event) for event in events) + END


def answer(n: int = 4) -> bytes:
    """Return a whole good answer of ``n`` tokens."""
    return stream(*(text(f" t{i}") for i in range(n)), usage(n), DONE)
