"""Addresses of servers: what a base URL means, and connections for short questions."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from stepscope.errors import RecipeError, SessionError

if TYPE_CHECKING:
    import ssl

_FORM = "http://host:port, https://host:port or unix:///path/of/socket"


class Address(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a server listens.

    Attributes:
        host: Name or number; ``localhost`` for a Unix socket.
        port: Its port; 0 for a Unix socket.
        prefix: The path before the endpoint.
        tls: HTTPS.
        socket_path: The Unix socket; None: TCP.
    """

    host: str
    port: int
    prefix: str
    tls: bool = False
    socket_path: str | None = None

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.socket_path is not None else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server to ask something.

    Attributes:
        base_url: Where it listens.
        headers: Sent with each question.
        insecure: Take any certificate.
    """

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to connect to.

    Attributes:
        family: Of its socket address.
        address: Its socket address.
        head: How requests to it begin, up to the value of Content-Length.
        tls: With what to encrypt; None: not at all.
        host: The name that its certificate must hold.
    """

    family: socket.AddressFamily
    address: Any
    head: bytes = b""
    tls: "ssl.SSLContext | None" = None
    host: str = ""


def parse_address(base_url: str) -> Address:
    """Split a base URL.

    Raises:
        RecipeError: It is none that can be connected to.
    """
    where = f"base URL {base_url!r}"
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise RecipeError(where, str(error), _FORM) from error
    if parts.scheme == "unix":
        if parts.netloc or not parts.path.strip("/"):
            raise RecipeError(where, "no absolute path", _FORM)
        return Address(host="localhost", port=0, prefix="", socket_path=parts.path)
    if parts.scheme not in ("http", "https"):
        raise RecipeError(where, f"scheme {parts.scheme!r}", _FORM)
    if not parts.hostname:
        raise RecipeError(where, "no host", _FORM)
    tls = parts.scheme == "https"
    usual = 443 if tls else 80
    return Address(
        host=parts.hostname,
        port=usual if port is None else port,
        prefix=parts.path.rstrip("/"),
        tls=tls,
    )


def tls_context(*, insecure: bool) -> "ssl.SSLContext":
    """Return what a client encrypts with; ``insecure``: any certificate will do."""
    import ssl  # 2 MB of every process, and most servers are not encrypted

    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def resolve(
    base_url: str, head: bytes = b"", context: "ssl.SSLContext | None" = None
) -> Peer:
    """Return the server behind a base URL.

    Args:
        base_url: As ``parse_address`` takes it.
        head: How requests to it begin.
        context: For ``https``; None: certificates are checked.

    Raises:
        RecipeError: It is no such URL.
        SessionError: The host is unknown.
    """
    address = parse_address(base_url)
    if address.socket_path is not None:
        return Peer(socket.AF_UNIX, address.socket_path, head)
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SessionError(base_url, f"the host is unknown ({error.strerror})") from (
            error
        )
    # A name that means both protocols is most often served on IPv4.
    found.sort(key=lambda entry: entry[0] is not socket.AF_INET)
    tls = (context or tls_context(insecure=False)) if address.tls else None
    return Peer(found[0][0], found[0][4], head, tls, address.host)


def connected(
    base_url: str, timeout_s: float, *, insecure: bool = False
) -> socket.socket:
    """Open a blocking connection, encrypted where the URL says so.

    Raises:
        OSError: It could not be opened; ``ssl.SSLError`` is one.
        SessionError: The host is unknown.
    """
    tls = parse_address(base_url).tls
    peer = resolve(base_url, b"", tls_context(insecure=insecure) if tls else None)
    sock = socket.socket(peer.family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(peer.address)
        if peer.tls is not None:
            return peer.tls.wrap_socket(sock, server_hostname=peer.host)
    except BaseException:
        sock.close()
        raise
    return sock
