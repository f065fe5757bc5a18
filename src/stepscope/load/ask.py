"""Short questions to the server before the clock starts: one call, one connection."""

import http.client
from typing import Any

import msgspec

from stepscope.errors import SessionError
from stepscope.load.wire import Server, connected, parse_address

_TIMEOUT_S = 10.0


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


def _asked(server: Server, path: str, body: object) -> bytes | None:
    address = parse_address(server.base_url)
    connection = http.client.HTTPConnection(address.authority)
    headers = dict(server.headers)
    try:
        connection.sock = connected(
            server.base_url, _TIMEOUT_S, insecure=server.insecure
        )
        if body is None:
            connection.request("GET", address.prefix + path, headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            sent = msgspec.json.encode(body)
            connection.request("POST", address.prefix + path, sent, headers)
        response = connection.getresponse()
        data = response.read()
    except (OSError, SessionError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return data if response.status == 200 else None


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
