"""A reader that hangs up, as ``head`` does: no failure of the command.

click and rich leave with 1 then, which means "worse" here. That standard output is
/dev/null says nothing: who wants the exit code alone sends it there.
"""

import contextlib
import os
import sys
from collections.abc import Iterator


class ReaderLeftError(Exception):
    """Nobody reads standard output any more."""


@contextlib.contextmanager
def noticing_readers() -> Iterator[None]:
    """Print what there is to print.

    Raises:
        ReaderLeftError: The reader has hung up; whatever a library makes of it.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderLeftError from error
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            raise ReaderLeftError from leaving
        raise


def forget_stdout() -> None:
    """Keep the interpreter from failing once more on what it could not write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextlib.contextmanager
def read_or_not() -> Iterator[None]:
    """Print something whose exit code counts whether or not anybody reads it."""
    try:
        with noticing_readers():
            yield
    except ReaderLeftError:
        forget_stdout()
