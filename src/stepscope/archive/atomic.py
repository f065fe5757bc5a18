"""Files that are there whole or not at all: write beside, sync, rename, sync."""

import os
from collections.abc import Callable
from pathlib import Path

from stepscope.archive.journal import at_path
from stepscope.archive.layout import PART


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a neighbour of ``path``, then put it in its place.

    Raises:
        OSError: The disk is full or failed; the error names ``path``, nothing is left
            behind and what was there before is untouched.
    """
    part = path.with_name(path.name + PART)
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
        sync_dir(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise at_path(error, path) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file atomically."""

    def fill(part: Path) -> None:
        part.write_bytes(data)

    write_atomically(path, fill)


def sync_dir(path: Path) -> None:
    """Make renames and removals in a directory last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
