"""Journals on disk: appended one ``write`` a batch, read up to the first cut.

A journal is never rewritten while it grows. A write that fails half way is taken back,
so that what follows can still be read.
"""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepscope.run.frames import payloads

_HEAD_BYTES = 8  # run/frames.py: length and checksum


class Journal:
    """A journal open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise at_path(error, path) from error

    def append(self, data: bytes) -> None:
        """Append whole frames.

        Raises:
            OSError: The disk is full or failed; the error names the journal, which
                is as it was before.
        """
        left = memoryview(data)
        written = 0
        try:
            while left:
                n = os.write(self._fd, left)
                written += n
                left = left[n:]
        except OSError as error:
            if written:
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise at_path(error, self.path) from error

    def close(self) -> None:
        """Put it safely on disk and close it."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise at_path(error, self.path) from error
        finally:
            os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Tail:
    """What of a journal can not be read: ``n_bytes`` after ``n_frames`` good frames.

    ``damaged`` tells a frame that is whole in length and wrong in content (a fault of
    the disk) from one that a kill cut short.
    """

    n_frames: int
    n_good_bytes: int
    n_bytes: int
    damaged: bool


class JournalFile:
    """A journal open for reading, mapped rather than copied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = path.stat().st_size
        self._map: mmap.mmap | bytes = b""
        if self._size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def payloads(self) -> Iterator[bytes]:
        """Yield the payloads of all good frames.

        An empty one ends them: no record is empty, but a file system that lost power
        may leave zeros, which look like empty frames.
        """
        for body in payloads(memoryview(self._map)):
            if not body:
                return
            yield body

    def payload_at(self, at: int, length: int) -> bytes:
        """Return a payload that ``places`` found."""
        return self._map[at : at + length]

    def places(self) -> Iterator[tuple[int, bytes]]:
        """Yield for each good frame where its payload begins, and the payload."""
        at = 0
        for body in self.payloads():
            yield at + _HEAD_BYTES, body
            at += _HEAD_BYTES + len(body)

    def tail(self) -> Tail:
        """Return what lies behind the last good frame."""
        n_frames = good = 0
        for body in self.payloads():
            n_frames += 1
            good += _HEAD_BYTES + len(body)
        rest = self._size - good
        damaged = False
        if rest >= _HEAD_BYTES:
            length = int.from_bytes(self._map[good : good + 4], "little")
            damaged = rest >= _HEAD_BYTES + length
        return Tail(n_frames, good, rest, damaged)


def cut_torn_tail(path: Path) -> None:
    """Cut what a kill left half written, so that appending can go on."""
    if path.exists():
        tail = JournalFile(path).tail()
        if tail.n_bytes:
            os.truncate(path, tail.n_good_bytes)


def at_path(error: OSError, path: Path) -> OSError:
    """Return the same error with the path in it, which ``os.write`` leaves out."""
    return OSError(error.errno, error.strerror or str(error), str(path))
