"""One writer a run: two would mix their records and move each other's cells."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from stepscope.errors import RecipeError


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other writers out of a run directory while the block runs.

    The lock is the kernel's, on the folder itself: a killed writer leaves none behind,
    and no file is added to the run. Where a file system has no locks nothing is held.

    Raises:
        RecipeError: Another process holds it.
    """
    if not path.is_dir():
        yield
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                raise RecipeError(
                    str(path),
                    "another stepscope is writing this run",
                    "one at a time",
                    "Wait for it to end, or stop it",
                ) from error
        yield
    finally:
        os.close(folder)
