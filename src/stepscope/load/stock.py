"""Requests that were built before the clock starts: in memory, or in a file.

A hundred million tokens of prompts do not fit into memory and are not needed at once.
Beyond a limit their bytes lie in a file without a name, in the page cache as long as
the machine has room, and are read when their turn comes.
"""

import os
from array import array
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.load.conversation import Talk

_MEMORY_BYTES = 64 << 20


@dataclass(slots=True)
class Prompt:
    """A request to send: its place in the cell's order and its bytes on the wire.

    The head is the server's and is not repeated in each of them.

    Attributes:
        index: Position in the cell's prompt order.
        rest: What follows the head; empty once nobody can ask for it again.
        output_tokens: What it asks for.
        due_ns: When it is due after the start; None in a closed loop.
        talk: The conversation that it opens or goes on with; None: of none.
        turn: Its turn in that.
    """

    index: int
    rest: bytes
    output_tokens: int | None = None
    due_ns: int | None = None
    talk: "Talk | None" = None
    turn: int | None = None


class Stock:
    """The prompts of one worker, taken in the order in which they were added.

    Args:
        folder: Where the file would lie.
        memory_bytes: Requests up to this size in all are kept in memory.
    """

    def __init__(
        self, folder: str | None = None, memory_bytes: int = _MEMORY_BYTES
    ) -> None:
        self._folder, self._room = folder, memory_bytes
        self._kept: dict[int, bytes] = {}
        self._file: IO[bytes] | None = None
        self._written = self._next = 0
        self._indices: array[int] = array("q")
        self._tokens: array[int] = array("q")
        self._dues: array[int] = array("q")
        self._places: array[int] = array("q")
        self._sizes: array[int] = array("q")
        self._talks: dict[int, Talk] = {}
        #: Turns that follow first ones and are not counted as prompts.
        self.n_later = 0

    def __len__(self) -> int:
        """Return how many prompts are left."""
        return len(self._indices) - self._next

    @property
    def n_requests(self) -> int:
        """Requests that are left, later turns of conversations not begun included."""
        return len(self) + self.n_later

    def add(self, prompt: Prompt) -> None:
        """Put a prompt behind those that are there."""
        at, size = len(self._indices), len(prompt.rest)
        self._indices.append(prompt.index)
        self._tokens.append(
            -1 if prompt.output_tokens is None else prompt.output_tokens
        )
        self._dues.append(-1 if prompt.due_ns is None else prompt.due_ns)
        self._sizes.append(size)
        if prompt.talk is not None:
            self._talks[at] = prompt.talk
            self.n_later += prompt.talk.n_left
        if self._room >= size:
            self._room -= size
            self._kept[at] = prompt.rest
            self._places.append(-1)
            return
        if self._file is None:
            self._file = _nameless(self._folder)
        self._places.append(self._written)
        self._file.write(prompt.rest)
        self._written += size

    def due_ns(self) -> "array[int]":
        """Return when each is due after the start, in the order of taking."""
        return self._dues

    def take(self) -> Prompt:
        """Remove and return the first.

        Raises:
            IndexError: None is left.
        """
        at = self._next
        index = self._indices[at]
        self._next += 1
        tokens, due = self._tokens[at], self._dues[at]
        talk = self._talks.pop(at, None)
        if talk is not None:
            self.n_later -= talk.n_left
        return Prompt(
            index=index,
            rest=self._bytes(at),
            output_tokens=None if tokens < 0 else tokens,
            due_ns=None if due < 0 else due,
            talk=talk,
            turn=None if talk is None else 0,
        )

    def _bytes(self, at: int) -> bytes:
        kept = self._kept.pop(at, None)
        if kept is not None:
            return kept
        assert self._file is not None
        return os.pread(self._file.fileno(), self._sizes[at], self._places[at])

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Drop what is left."""
        self._next = len(self._indices)
        self._kept.clear()
        self._talks.clear()
        self.n_later = 0


def _nameless(folder: str | None) -> IO[bytes]:
    """Return a file that ends with its process. Unbuffered: it is read by place."""
    import tempfile  # 0.4 MB, and most stocks fit into memory

    return tempfile.TemporaryFile(dir=folder, buffering=0)
