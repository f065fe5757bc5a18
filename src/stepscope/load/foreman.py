"""What stands for the parent on another machine: starts a worker, passes words on.

It runs there as a Ray actor, but knows nothing of Ray: bytes in, bytes out. The
worker's journal grows in a folder of its own on that machine, and each answer carries
what it has grown by, so that little is lost with the machine.
"""

import contextlib
import os
import select
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import msgspec

from stepscope import __version__
from stepscope.clock import SystemClock
from stepscope.load.journal import journals
from stepscope.load.local import Process
from stepscope.load.messages import Job, ToWorker

#: Least time between two answers: what ended within it may be lost with the machine.
PERIOD_NS = 50_000_000
_LONGEST_NS = 500_000_000
_READ_BYTES = 1 << 16
#: Most of a journal in one answer.
_PART_BYTES = 8 << 20


class Heard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker said and wrote since the last answer.

    Attributes:
        said: Bytes of its pipe.
        written: By name of a journal, the bytes that it has grown by.
        over: Nothing more will come.
        ending: When it is over: how the worker ended; None: as it should.
    """

    said: bytes
    written: dict[str, bytes]
    over: bool
    ending: str | None = None


class Foreman:
    """One worker's parent on its machine."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._folder = Path(tempfile.mkdtemp(prefix="stepscope-"))
        self._worker: Process | None = None
        self._read: dict[str, int] = {}
        self._answered_at_ns = 0
        self._silent = False
        self._told = threading.Lock()

    def now_ns(self) -> int:
        """Return this machine's monotonic clock."""
        return self._clock.now_ns()

    def about(self) -> tuple[str, str]:
        """Return this machine's name, and our version on it."""
        return socket.gethostname(), __version__

    def start(self, job: bytes, items: bytes | None) -> None:
        """Start the worker.

        Args:
            job: A ``Job`` whose paths are another machine's.
            items: The file of entries that ``items_path`` names there.
        """
        told = msgspec.msgpack.decode(job, type=Job)
        path: str | None = None
        if items is not None:
            path = str(self._folder / "prompts.items")
            Path(path).write_bytes(items)
        job_here = msgspec.structs.replace(
            told, journal_dir=str(self._folder), items_path=path
        )
        self._worker = Process(job_here)

    def tell(self, order: bytes) -> None:
        """Say something to the worker."""
        assert self._worker is not None
        with self._told:
            self._worker.tell(msgspec.msgpack.decode(order, type=ToWorker))

    def hear(self) -> bytes:
        """Wait for something to tell, and return it as a ``Heard``."""
        assert self._worker is not None
        since_ns = self._clock.now_ns()
        self._clock.sleep_until(self._answered_at_ns + PERIOD_NS)
        said = b""
        written: dict[str, bytes] = {}
        while not (said or written or self._silent):
            said = self._said()
            written = self._written()
            if self._clock.now_ns() - since_ns > _LONGEST_NS:
                break
        over, ending = False, None
        if self._silent and not said:
            # It has ended: its journal grows no more once this was read.
            ending = self._worker.ending()
            grown = self._written()
            written = {
                name: written.get(name, b"") + grown.get(name, b"")
                for name in written.keys() | grown.keys()
            }
            over = not any(len(part) >= _PART_BYTES for part in grown.values())
        self._answered_at_ns = self._clock.now_ns()
        heard = Heard(said=said, written=written, over=over, ending=ending)
        return msgspec.msgpack.encode(heard)

    def _said(self) -> bytes:
        assert self._worker is not None
        words = self._worker.words
        ready, _, _ = select.select([words], [], [], PERIOD_NS / 1e9)
        if not ready:
            return b""
        said = os.read(words.fileno(), _READ_BYTES)
        self._silent = not said
        return said

    def _written(self) -> dict[str, bytes]:
        found = {}
        for path in (*journals(self._folder), *journals(self._folder, "texts")):
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                data = file.read(_PART_BYTES)
                self._read[path.name] = file.tell()
            if data:
                found[path.name] = data
        return found

    def end(self) -> None:
        """Tell the worker to end; what it then says can still be heard."""
        if self._worker is not None:
            self._worker.let_go()

    def clear(self) -> None:
        """Forget the worker and remove its folder."""
        if self._worker is not None:
            self._worker.let_go()
            with contextlib.suppress(OSError):
                self._worker.words.close()
            self._worker.end()
        shutil.rmtree(self._folder, ignore_errors=True)
