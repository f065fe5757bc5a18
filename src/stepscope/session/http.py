"""Small requests: readiness, metrics, and switching a profiler."""

import http.client
from urllib.parse import urlsplit


def get(url: str, *, timeout_s: float = 5.0) -> tuple[int, bytes] | None:
    """Return status and body, or None where no answer came."""
    return _asked("GET", url, None, timeout_s)


def post(url: str, body: bytes, *, timeout_s: float) -> tuple[int, bytes] | None:
    """Post JSON; return status and body, or None where no answer came in time."""
    return _asked("POST", url, body, timeout_s)


def _asked(
    method: str, url: str, body: bytes | None, timeout_s: float
) -> tuple[int, bytes] | None:
    parts = urlsplit(url)
    kinds = {"https": http.client.HTTPSConnection}
    kind = kinds.get(parts.scheme, http.client.HTTPConnection)
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, parts.path or "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
