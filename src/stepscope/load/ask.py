"""Short questions to the server before the clock starts: one call, one connection."""

import http.client
from typing import Any

import msgspec

from stepscope.load.spec import parse_address

_TIMEOUT_S = 10.0


def ask(base_url: str, path: str, body: object = None) -> Any:
    """Ask the server and decode its JSON answer.

    Args:
        base_url: Where it listens.
        path: Path below the base URL's own.
        body: Sent as JSON with POST; None: GET.

    Returns:
        The decoded answer; None when there was none, none with status 200, or none
        in JSON: what is asked here is optional everywhere.
    """
    address = parse_address(base_url)
    connection = http.client.HTTPConnection(
        address.host, address.port, timeout=_TIMEOUT_S
    )
    try:
        if body is None:
            connection.request("GET", address.prefix + path)
        else:
            connection.request(
                "POST",
                address.prefix + path,
                msgspec.json.encode(body),
                {"Content-Type": "application/json"},
            )
        response = connection.getresponse()
        data = response.read()
        return msgspec.json.decode(data) if response.status == 200 else None
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()


def served_models(base_url: str) -> list[dict[str, Any]]:
    """Return what ``/v1/models`` lists; empty when it lists nothing."""
    answer = ask(base_url, "/v1/models")
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list):
        return []
    return [model for model in models if isinstance(model, dict)]


def vocabulary_size(base_url: str) -> int | None:
    """Return the number of tokens that the server's model has, if it says so."""
    for model in served_models(base_url):
        meta = model.get("meta")
        size = meta.get("n_vocab") if isinstance(meta, dict) else None
        if isinstance(size, int) and size > 0:
            return size
    return None
