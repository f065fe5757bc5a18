"""The workers of one cell as their parent sees them: what they say, their last words.

Where they run is not known here: a worker is a ``Hand``, a process of this machine or
of another one.
"""

import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Protocol, Self

import msgspec

from stepscope.load.messages import (
    FrameReader,
    Job,
    Progress,
    Ready,
    Tally,
    ToParent,
    ToWorker,
)
from stepscope.load.spec import LoadProgress

_READ_BYTES = 1 << 16


class Hand(Protocol):
    """One worker, which has been given its job.

    Attributes:
        words: The reading end of a pipe, unbuffered: what the worker says.
    """

    words: IO[bytes]

    def tell(self, order: ToWorker) -> None:
        """Say something to it; a dead worker is noticed by its silence."""

    def ending(self) -> str | None:
        """Return how it ended, once its words have; None: as it should."""

    def let_go(self) -> None:
        """Tell it to end, without waiting."""

    def end(self) -> None:
        """Wait until it has ended, and end it when it does not."""


@dataclass(slots=True)
class _Member:
    """One worker. ``closed``: its pipe has ended."""

    number: int
    hand: Hand
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
        hire: Starts a worker with its job.
    """

    def __init__(self, jobs: Sequence[Job], hire: Callable[[Job], Hand]) -> None:
        self._jobs, self._hire = jobs, hire
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
        hand = self._hire(job)
        member = _Member(job.worker, hand, FrameReader(ToParent))
        self._members.append(member)
        self._selector.register(hand.words, selectors.EVENT_READ, member)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all workers: their end of the pipe tells them to."""
        for member in self._members:
            member.hand.let_go()
        for member in self._members:
            # Nobody reads any more; a worker in its last words must not wait for us.
            member.hand.words.close()
            member.hand.end()
        self._selector.close()

    def tell(self, order: ToWorker) -> None:
        """Say something to all workers."""
        for member in self._members:
            member.hand.tell(order)

    def listen(self, seconds: float) -> None:
        """Take in what workers say, waiting at most so long for the first word."""
        for key, _ in self._selector.select(seconds):
            member: _Member = key.data
            data = member.hand.words.read(_READ_BYTES)
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
        how = member.hand.ending()
        if member.tally is None and member.loss is None:
            how = how or "ended early: it said nothing"
            member.loss = f"client worker {member.number} {how}"

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
    def tally_by_worker(self) -> dict[int, Tally | None]:
        """What each worker counted; None: it did not live to say so."""
        return {m.number: m.tally for m in self._members}

    @property
    def losses(self) -> list[str]:
        """One line for each worker that did not."""
        return [m.loss for m in self._members if m.loss is not None]
