"""Keeps what Ray prints of a lost node off our stdout.

A driver of Ray starts a thread that prints the cluster's error messages, dozens of
lines of another machine's log, on stdout, whatever it was asked about logging. What was
lost is told by the cell's findings, and stdout may be somebody's JSON.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import IO, Any

#: How Ray names its printing threads.
_PRINTERS = "ray_"


class _WithoutRay:
    """A stream that passes on everything but what Ray's own threads print."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith(_PRINTERS):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def without_ray(stream: IO[str]) -> Iterator[None]:
    """Drop what Ray's threads print to stdout, which is ``stream`` here."""
    quiet: Any = _WithoutRay(stream)
    with contextlib.redirect_stdout(quiet):
        yield
