"""The workers of one cell as their parent sees them: processes, pipes, last words."""

import contextlib
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

import msgspec

from stepscope.errors import SessionError
from stepscope.load.messages import (
    FrameReader,
    Job,
    Progress,
    Ready,
    Tally,
    ToParent,
    ToWorker,
    message,
)
from stepscope.load.spec import LoadProgress

_END_TIMEOUT_S = 5.0
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class _Member:
    """One worker. ``closed``: its pipe has ended."""

    number: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    reader: FrameReader
    ready: Ready | None = None
    progress: LoadProgress = field(default_factory=LoadProgress)
    tally: Tally | None = None
    closed: bool = False
    loss: str | None = None


class Crew:
    """The workers of one cell; leaving the context ends them all.

    Args:
        jobs: One for each worker.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        """Start the workers."""
        try:
            for job in self._jobs:
                self._start(job)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, job: Job) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "stepscope.load.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        except OSError as error:
            errors.close()
            raise SessionError("client", f"no worker could be started: {error}") from (
                error
            )
        member = _Member(job.worker, process, errors, FrameReader(ToParent))
        self._members.append(member)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, member)
        self._tell(member, job)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all workers: their end of the pipe tells them to."""
        for member in self._members:
            assert member.process.stdin is not None
            with contextlib.suppress(OSError):
                member.process.stdin.close()
        for member in self._members:
            # Nobody reads any more; a worker in its last words must not wait for us.
            if member.process.stdout is not None:
                member.process.stdout.close()
            try:
                member.process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            member.errors.close()
        self._selector.close()

    def tell(self, order: ToWorker) -> None:
        """Say something to all workers."""
        for member in self._members:
            self._tell(member, order)

    def _tell(self, member: _Member, order: ToWorker) -> None:
        assert member.process.stdin is not None
        with contextlib.suppress(OSError):  # a dead worker is noticed by its silence
            data = memoryview(message(order))
            while data:
                data = data[member.process.stdin.write(data) or 0 :]

    def listen(self, seconds: float) -> None:
        """Take in what workers say, waiting at most so long for the first word."""
        for key, _ in self._selector.select(seconds):
            member: _Member = key.data
            assert member.process.stdout is not None
            data = member.process.stdout.read(_READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
                self._ended(member)
                continue
            try:
                for said in member.reader.feed(data):
                    self._heard(member, said)
            except msgspec.DecodeError as error:
                member.loss = f"worker {member.number} said something else: {error}"

    def _heard(self, member: _Member, said: ToParent) -> None:
        if isinstance(said, Ready):
            member.ready = said
        elif isinstance(said, Progress):
            member.progress = said.progress
        else:
            member.tally = said
            member.progress = LoadProgress(
                n_sent=member.progress.n_sent,
                n_done=said.n_ok,
                n_failed=said.n_failed,
                n_chunks=member.progress.n_chunks,
                output_tokens=said.output_tokens,
            )

    def _ended(self, member: _Member) -> None:
        member.closed = True
        try:
            code = member.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            member.process.kill()
            code = member.process.wait()
        if member.tally is not None or member.loss is not None:
            return
        if code < 0:
            name = signal.Signals(-code).name
            member.loss = f"client worker {member.number} was killed ({name})"
            return
        member.errors.seek(0)
        lines = member.errors.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        member.loss = f"client worker {member.number} ended with {code}: {last}"

    @property
    def n_workers(self) -> int:
        """Workers that were started."""
        return len(self._members)

    @property
    def ready(self) -> bool:
        """True when every worker is ready or gone."""
        return all(m.ready is not None or m.closed for m in self._members)

    @property
    def working(self) -> bool:
        """True while any worker lives."""
        return not all(m.closed for m in self._members)

    @property
    def n_connected(self) -> int:
        """Connections that were open when the workers were ready."""
        return sum(m.ready.n_connected for m in self._members if m.ready is not None)

    @property
    def troubles(self) -> list[tuple[str, str]]:
        """Why connections could not be opened: failure kind and detail."""
        readies = [m.ready for m in self._members if m.ready is not None]
        return [ready.trouble for ready in readies if ready.trouble is not None]

    @property
    def progress(self) -> LoadProgress:
        """How far all workers are together."""
        parts = [m.progress for m in self._members]
        names = LoadProgress.__struct_fields__
        return LoadProgress(**{n: sum(getattr(p, n) for p in parts) for n in names})

    @property
    def tallies(self) -> list[Tally]:
        """What the workers counted that lived to say so."""
        return [m.tally for m in self._members if m.tally is not None]

    @property
    def losses(self) -> list[str]:
        """One line for each worker that did not."""
        return [m.loss for m in self._members if m.loss is not None]
