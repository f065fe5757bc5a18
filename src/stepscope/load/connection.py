"""One slot's connection: opening, TLS, sending and reading; not a word of HTTP."""

import errno
import os
import socket
from enum import Enum
from typing import TYPE_CHECKING

from stepscope.load.stamps import ANCILLARY_BYTES, stamp_socket
from stepscope.load.wire import Peer

if TYPE_CHECKING:
    from stepscope.load.lane import Lane
    from stepscope.load.slot import Slot
    from stepscope.load.wire_tls import Tls

_REFUSED = frozenset({errno.ECONNREFUSED, errno.ENOENT})
#: Room for one read, which gives back what it does not fill. Eight times as much leaves
#: holes among what waits to be decoded: 4 MiB of them at 256 streams.
_READ_BYTES = 8 << 10
#: A Unix socket whose backlog is full takes nobody for a moment.
_FULL_S = 0.005


class Stage(Enum):
    """How far a connection is."""

    CLOSED = "closed"
    CONNECTING = "connecting"
    SHAKING = "shaking"
    OPEN = "open"


class Connection:
    """A connection that can be opened again.

    Args:
        lane: Its event loop.
        slot: Hears ``opened``, ``not_opened``, ``received``, ``input_ended`` and
            ``broke``.
        peer: The server.
    """

    __slots__ = (
        "_by_ns",
        "_lane",
        "_peer",
        "_slot",
        "_sock",
        "_stage",
        "_tls",
        "_to_send",
        "_waits_to_send",
    )

    def __init__(self, lane: "Lane", slot: "Slot", peer: Peer) -> None:
        self._lane, self._slot, self._peer = lane, slot, peer
        self._sock: socket.socket | None = None
        self._tls: Tls | None = None
        self._stage = Stage.CLOSED
        self._to_send: memoryview | None = None
        self._waits_to_send = False
        self._by_ns = 0

    @property
    def sending(self) -> bool:
        """True while bytes of a request wait for the socket."""
        return self._to_send is not None

    # Opening and closing.

    def open(self) -> None:
        """Start to open it; the slot hears how it went."""
        lane = self._lane
        try:
            self._sock = sock = socket.socket(self._peer.family, socket.SOCK_STREAM)
        except OSError as error:
            self._slot.not_opened("connect", str(error))
            return
        sock.setblocking(False)  # the standard library's own signature
        if self._peer.family is not socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamp_socket(sock)
        self._stage = Stage.CONNECTING
        self._by_ns = lane.now() + lane.connect_timeout_ns
        self._connect()

    def _connect(self) -> None:
        sock, loop = self._sock, self._lane.loop
        if sock is None or self._stage is not Stage.CONNECTING:
            return
        code = sock.connect_ex(self._peer.address)
        if code == errno.EAGAIN:
            loop.call_later(_FULL_S, self._connect)
        elif code not in (0, errno.EINPROGRESS):
            self._connected(code)
        else:
            loop.add_writer(sock.fileno(), self._on_connect)

    def _on_connect(self) -> None:
        assert self._sock is not None
        self._lane.loop.remove_writer(self._sock.fileno())
        self._connected(self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _connected(self, code: int) -> None:
        if code:
            kind = "refused" if code in _REFUSED else "connect"
            self._slot.not_opened(kind, os.strerror(code))
            return
        assert self._sock is not None
        self._lane.loop.add_reader(self._sock.fileno(), self._on_readable)
        if self._peer.tls is None:
            self._open_at_last()
            return
        from stepscope.load.wire_tls import Tls

        self._tls = Tls(self._peer.tls, self._peer.host)
        self._stage = Stage.SHAKING
        self._shake(b"")

    def _shake(self, data: bytes) -> None:
        assert self._tls is not None
        try:
            self._queue(self._tls.shake(data))
        except OSError as error:
            self._slot.not_opened("connect", f"TLS: {error}")
            return
        if self._tls.ready and self._stage is Stage.SHAKING:
            self._open_at_last()

    def _open_at_last(self) -> None:
        self._stage = Stage.OPEN
        self._slot.opened()

    def check(self, now_ns: int) -> None:
        """Give up opening when it has taken too long."""
        opening = self._stage in (Stage.CONNECTING, Stage.SHAKING)
        if opening and now_ns > self._by_ns:
            silent = "no answer to the connection request"
            if self._stage is Stage.SHAKING:
                silent = "no end of the TLS handshake"
            self._slot.not_opened("connect", silent)

    def close(self) -> None:
        """Close it and forget what was to be sent."""
        if self._sock is not None:
            descriptor = self._sock.fileno()
            self._lane.loop.remove_reader(descriptor)
            self._lane.loop.remove_writer(descriptor)
            self._sock.close()
            self._sock = None
        self._tls = None
        self._to_send = None
        self._waits_to_send = False
        self._stage = Stage.CLOSED

    # Sending.

    def send(self, rest: bytes) -> None:
        """Send a request: its server's head and the rest."""
        request = self._peer.head + rest
        self._queue(request if self._tls is None else self._tls.seal(request))

    def _queue(self, data: bytes) -> None:
        if self._to_send:
            data = bytes(self._to_send) + data
        if data:
            self._to_send = memoryview(data)
            self._push()

    def _push(self) -> None:
        """Hand bytes to the socket until it takes no more."""
        sock, loop = self._sock, self._lane.loop
        assert sock is not None
        try:
            while self._to_send:
                n = sock.send(self._to_send)
                self._to_send = self._to_send[n:]
        except (BlockingIOError, InterruptedError):
            if not self._waits_to_send:
                self._waits_to_send = True
                loop.add_writer(sock.fileno(), self._push)
            return
        except OSError as error:
            # What the server said before it hung up is still to be read.
            self._on_readable()
            if self._sock is sock:
                self._broken("reset", error.strerror or str(error))
            return
        self._to_send = None
        if self._waits_to_send:
            self._waits_to_send = False
            loop.remove_writer(sock.fileno())

    # Receiving.

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            data, ancillary, _, _ = sock.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._input_ended("reset", error.strerror or str(error))
            return
        if not data:
            self._input_ended("closed", "the server closed the connection")
            return
        if self._tls is None:
            self._slot.received(data, ancillary)
        elif self._stage is Stage.SHAKING:
            self._shake(data)
        else:
            self._decrypt(data, ancillary)

    def _decrypt(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        assert self._tls is not None
        try:
            plain = self._tls.open(data)
        except OSError as error:
            self._input_ended("reset", f"TLS: {error}")
            return
        if plain:  # a session ticket holds nothing for us
            self._slot.received(plain, ancillary)

    def _input_ended(self, kind: str, detail: str) -> None:
        if self._stage is Stage.SHAKING:
            self._slot.not_opened("connect", f"TLS handshake: {detail}")
        else:
            self._slot.input_ended(kind, detail)

    def _broken(self, kind: str, detail: str) -> None:
        if self._stage is Stage.SHAKING:
            self._slot.not_opened("connect", f"TLS handshake: {detail}")
        else:
            self._slot.broke(kind, detail)
