"""A TCP proxy that can cut the network between a client and its server."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards to ``port`` until the network is cut.

    Attributes:
        url: Where it listens.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[socket.socket] = []
        self._silent = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.reset()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._silent.is_set():
                    self._pairs.append(client)  # a host that is gone answers nobody
                    continue
                server = socket.create_connection(("127.0.0.1", self._port))
                with self._lock:
                    self._pairs += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._forward, args=(one, other), daemon=True
                    ).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if self._silent.is_set():
                    return
                other.sendall(data)

    def drop(self) -> None:
        """Let nothing through any more, and say so to nobody."""
        self._silent.set()

    def reset(self) -> None:
        """Break all connections and take no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._pairs:
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    sock.shutdown(socket.SHUT_RD)  # wakes who reads from it
                sock.close()
