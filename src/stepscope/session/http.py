"""Small GETs: readiness and metrics."""

import http.client
from urllib.parse import urlsplit


def get(url: str, *, timeout_s: float = 5.0) -> tuple[int, bytes] | None:
    """Return status and body, or None where no answer came."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=timeout_s
    )
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
