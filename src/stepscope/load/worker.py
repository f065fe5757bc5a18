"""One client process: ``python -m stepscope.load.worker``, driven over its pipes.

It builds its prompts, opens its connections, waits for the common start, and appends
each ended request to its journal in one write, so that a kill loses none.
"""

import asyncio
import contextlib
import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from stepscope.clock import Clock, SystemClock
from stepscope.errors import SessionError, StepscopeError
from stepscope.load.aligned import moved
from stepscope.load.drawing import stock_of
from stepscope.load.lane import Lane
from stepscope.load.messages import (
    FrameReader,
    Go,
    Job,
    Progress,
    Ready,
    Stop,
    ToParent,
    ToWorker,
    message,
)
from stepscope.load.prompts import request_head
from stepscope.load.slot import Slot, State
from stepscope.load.spec import LoadSpec
from stepscope.load.wire import Peer, parse_address, resolve, tls_context
from stepscope.run.frames import frame
from stepscope.run.requests import Request

_PROGRESS_S = 0.1
#: Connections opened at once: below the listen backlog of common servers.
_CONNECTS_AT_ONCE = 64
_SPARE_FILES = 64
#: Connections that an open loop without a cap begins with, in all processes.
_OPEN_AT_START = 64
_COARSE_NS = 2_000_000


class Journal:
    """The journals of one worker; a record is one ``write``."""

    def __init__(self, job: Job) -> None:
        self._ahead_ns = job.ahead_ns
        self._requests = _open(f"{job.journal_dir}/requests-{job.worker}.journal")
        self._texts = -1
        if job.spec.keep_text:
            self._texts = _open(f"{job.journal_dir}/texts-{job.worker}.journal")

    def write(self, request: Request, texts: list[str] | None) -> None:
        """Append an ended request."""
        if texts is not None and self._texts >= 0:
            text = (request.index, "".join(texts))
            _append(self._texts, msgspec.msgpack.encode(text))
        if self._ahead_ns:
            request = moved(request, self._ahead_ns)
        _append(self._requests, msgspec.msgpack.encode(request))


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)


def _append(descriptor: int, payload: bytes) -> None:
    record = frame(payload)
    if os.write(descriptor, record) != len(record):
        raise SessionError("journal", "a record was written in part", do="Free disk")


class Worker:
    """The conversation with the parent and the life of one cell."""

    def __init__(self, job: Job, commands: FrameReader, clock: Clock) -> None:
        self._job = job
        self._commands = commands
        self._clock = clock
        self._go: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._stopped = False
        self._broken: BaseException | None = None
        asyncio.get_running_loop().set_exception_handler(self._on_defect)
        spec = job.spec
        self._stock = stock_of(job)
        write = Journal(job).write
        self._lane = Lane(spec, job.worker, _peers(spec), write, clock, job.ahead_ns)
        self._lane.new_slot = self._new_slot
        for _ in range(_slots_at_start(job)):
            self._lane.grown()

    def _new_slot(self) -> Slot:
        number = self._job.worker + self._job.n_workers * len(self._lane.slots)
        return Slot(number, self._lane)

    async def run(self) -> None:
        """Live through the cell."""
        loop, lane, spec = self._lane.loop, self._lane, self._job.spec
        # What came in one read with the job is in the reader and wakes nobody.
        self._obey(self._commands.feed(b""))
        loop.add_reader(0, self._on_command)
        ticker = loop.create_task(self._tick())
        await self._connect()
        troubles = [s.trouble for s in lane.slots if s.trouble and not s.connected]
        trouble = troubles[0] if troubles else None
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection in a burst costs more than all it could free
        _say(Ready(n_connected=lane.n_connected, trouble=trouble), sure=True)
        start_at_ns = await self._go
        if not self._stopped:
            # A loop's timers are coarse; a schedule's first instant is met by its own.
            early_ns = 0 if spec.arrivals is None else _COARSE_NS
            wait_s = (start_at_ns - early_ns - self._clock.now_ns()) / 1e9
            await asyncio.sleep(max(wait_s, 0))
        if not self._stopped:
            lane.start(self._stock, start_at_ns)
            await lane.over.wait()
        if self._broken is not None:
            raise self._broken
        ticker.cancel()
        loop.remove_reader(0)
        lane.stamper.watch()
        name = "uvloop" if type(loop).__module__.startswith("uvloop") else "asyncio"
        waited_ns = lane.waking.waited_ns
        _say(lane.counts.tally(name, lane.stamper.step_ns, waited_ns), sure=True)
        lane.close()

    async def _connect(self) -> None:
        """Open all connections, some at a time."""
        waiting = list(reversed(self._lane.slots))
        opening: list[Slot] = []
        while (waiting or opening) and not self._stopped:
            opening = [s for s in opening if s.state is State.CONNECTING]
            while waiting and len(opening) < _CONNECTS_AT_ONCE:
                slot = waiting.pop()
                slot.connect()
                opening.append(slot)
            await asyncio.sleep(0.001)

    async def _tick(self) -> None:
        spec = self._job.spec
        limits_s = spec.header_timeout_s, spec.stall_timeout_s, spec.total_timeout_s
        every_s = min(1.0, min(limits_s) / 4)
        since_s = 0.0
        while True:
            await asyncio.sleep(min(_PROGRESS_S, every_s))
            since_s += _PROGRESS_S
            self._lane.counts.fold()  # often, so that it never takes a millisecond
            if since_s >= every_s:
                since_s = 0.0
                self._lane.check()
            _say(Progress(progress=self._lane.counts.progress()), sure=False)

    def _on_command(self) -> None:
        data = os.read(0, 1 << 16)
        self._obey(self._commands.feed(data) if data else [Stop()])
        if not data:  # the parent is gone: nobody would measure the rest
            self._lane.loop.remove_reader(0)

    def _obey(self, orders: Iterable[ToWorker]) -> None:
        for order in orders:
            if isinstance(order, Go) and not self._go.done():
                self._go.set_result(order.at_ns + self._job.ahead_ns)
            elif isinstance(order, Stop):
                self._stop()

    def _on_defect(self, _: object, context: dict[str, Any]) -> None:
        """End the process when a callback fails: a lost record must be noticed."""
        error = context.get("exception") or RuntimeError(context["message"])
        self._broken = self._broken or error
        if not self._go.done():
            self._go.set_result(0)
        self._stopped = True
        self._lane.over.set()

    def _stop(self) -> None:
        self._stopped = True
        if not self._go.done():
            self._go.set_result(0)
        self._lane.stop()


def _peers(spec: LoadSpec) -> list[Peer]:
    """Return the servers with how requests to each of them begin."""
    tls = any(parse_address(url).tls for url in spec.base_urls)
    context = tls_context(insecure=spec.insecure) if tls else None
    return [
        resolve(url, request_head(msgspec.structs.replace(spec, base_url=url)), context)
        for url in spec.base_urls
    ]


def _say(said: ToParent, *, sure: bool) -> None:
    """Write a message to the parent; unless ``sure``, only if it is reading."""
    os.set_blocking(1, sure)
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(1, message(said))


def _slots_at_start(job: Job) -> int:
    spec = job.spec
    n = spec.n_slots
    if spec.arrivals is not None and spec.concurrency is None:
        n = min(n, max(_OPEN_AT_START, job.n_workers))
    return len(range(job.worker, n, job.n_workers))


def _raise_file_limit(job: Job) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_slots = job.spec.n_slots // job.n_workers + 1
    needed = n_slots + _SPARE_FILES
    if job.spec.arrivals is not None and job.spec.concurrency is None:
        # Nobody knows how many an open loop will need: all that may be had.
        needed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SessionError(
            "open files",
            f"the limit is {hard}",
            f"{needed} for {n_slots} connections in one process",
            "Raise it (ulimit -n) or use more processes",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _read_job() -> tuple[Job, FrameReader]:
    """Read the first message; the pipe may hold more."""
    reader = FrameReader(ToWorker)
    while True:
        data = os.read(0, 1 << 16)
        if not data:
            sys.exit(0)
        for order in reader.feed(data):
            assert isinstance(order, Job)
            return order, reader


def _runner() -> Any:
    """Return a loop factory: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> int:
    """Run one worker; errors raised on purpose become one line on stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    job, reader = _read_job()
    fcntl.fcntl(1, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    try:
        if job.cpus:
            os.sched_setaffinity(0, job.cpus)
        _raise_file_limit(job)
        with asyncio.Runner(loop_factory=_runner()) as runner:
            runner.run(_live(job, reader))
    except (StepscopeError, OSError) as error:
        os.write(2, f"{error}\n".encode())
        return error.exit_code if isinstance(error, StepscopeError) else 3
    return 0


async def _live(job: Job, reader: FrameReader) -> None:
    await Worker(job, reader, SystemClock()).run()


if __name__ == "__main__":
    # All is written; taking the interpreter apart would be 10 ms of CPU for nothing.
    os._exit(main())
