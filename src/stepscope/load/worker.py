"""One client process: ``python -m stepscope.load.worker``, driven over its pipes.

In: a length, a msgpack ``Job``, then lines: ``go``, ``stop``. Out: one JSON line an
event: ``ready``, ``progress`` while it runs, ``done`` with its health at the end.
"""

import asyncio
import gc
import os
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope.clock import Clock, SystemClock
from stepscope.errors import StepscopeError
from stepscope.load.histogram import DelayHistogram
from stepscope.load.prompts import requests
from stepscope.load.slot import Slot
from stepscope.load.spec import LoadSpec, address
from stepscope.load.stamps import RealtimeOffset, ask_for_stamps
from stepscope.recipe.schema import cpu_set
from stepscope.run.frames import frame
from stepscope.run.requests import Request

_SLICE_NS = 50_000
_TICK_S = 0.2
_MOST_CONNECT_FAILURES = 3
_CONNECT_TIMEOUT_S = 10.0


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one worker does: every ``n_workers``-th prompt, its share of the slots."""

    spec: LoadSpec
    worker: int
    n_workers: int
    n_slots: int
    journal: str


class WorkerHealth(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What one worker counted; the parent merges them."""

    loop: str
    kernel_stamps: bool
    n_reads: int
    n_unstamped: int
    n_merged: int
    delay_counts: list[int]
    delay_total_ns: int
    delay_max_ns: int
    latest_ns: list[int]
    n_late: int
    held_area: int
    held_ns: int
    cpu_ns: int
    wall_ns: int
    per_second: dict[int, int]
    n_chunks: int
    output_tokens: int
    clock_drift_ns: int


class Worker:
    """The slots of one process."""

    def __init__(self, job: Job, clock: Clock) -> None:
        self._job, self._spec, self._clock = job, job.spec, clock
        self.now_ns = clock.now_ns
        self._loop = asyncio.get_running_loop()
        mine = range(job.worker, job.spec.n_prompts, job.n_workers)
        self._left = deque(zip(mine, requests(job.spec, mine), strict=True))
        self._slots = [Slot(i, self) for i in range(job.n_slots)]
        self._offset = RealtimeOffset(clock)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._journal = os.open(job.journal, flags, 0o644)
        self._to_decode: deque[Slot] = deque()
        self._sliced = False
        self._over = self._loop.create_future()
        self._delays = DelayHistogram()
        self._stamps = True
        self._n_reads = self._n_unstamped = self._n_merged = self._n_chunks = 0
        self._per_second: Counter[int] = Counter()
        self._late: list[int] = []
        self._n_sent = self._n_ok = self._n_failed = self._n_tokens = 0
        self._in_flight = 0
        self._area = self._area_at = self._held_from = self._held_to = 0
        self._stopping = False

    # -- what a slot asks -------------------------------------------------------
    def monotonic(self, realtime: int | None, read_at_ns: int) -> int:
        """Place a kernel stamp on the monotonic clock; count the delay."""
        self._n_reads += 1
        if realtime is None:
            self._n_unstamped += 1
            return read_at_ns
        stamp = realtime - self._offset.at_start_ns
        delay = read_at_ns - stamp
        if delay < 0:
            return read_at_ns
        self._delays.add(delay)
        return stamp

    def queued(self, slot: Slot, *, at_once: bool) -> None:
        """Decode now, or in the next slice."""
        if at_once:
            slot.decode(self._count)
            return
        self._to_decode.append(slot)
        if not self._sliced:
            self._sliced = True
            self._loop.call_soon(self._slice)

    def finished(
        self, slot: Slot, *, at_ns: int, failure: str | None, detail: str | None
    ) -> None:
        """Write the request down, then give the slot its next."""
        answer = slot.answer
        assert answer is not None
        if failure in ("closed", "reset") and not answer.n_bytes and not slot.retried:
            # A kept connection that the server had closed: the request never ran.
            slot.retried = True
            self._loop.create_task(self._again(slot))
            return
        record = answer.request(
            at_ns, slot=slot.index, worker=self._job.worker, failure=failure,
            detail=detail,
        )  # fmt: skip
        self._write(record)
        slot.answer = None
        self._flying(-1)
        if answer.keep_alive and slot.sock is not None and failure is None:
            self._next(slot, free_at_ns=at_ns)
        else:
            self._close(slot)
            self._loop.create_task(self._reopen(slot))

    # -- the run ----------------------------------------------------------------
    async def connect(self) -> None:
        """Open every connection; a slot that can not is left closed."""
        await asyncio.gather(*(self._open(slot) for slot in self._slots))

    async def run(self) -> None:
        """Carry every prompt; return when the last has ended."""
        self._area_at = self._held_from = self.now_ns()
        ticker = self._loop.create_task(self._tick())
        for slot in self._slots:
            if slot.sock is None:
                self._loop.create_task(self._reopen(slot))
            else:
                self._next(slot, free_at_ns=None)
        self._finish_if_done()
        await self._over
        ticker.cancel()
        for slot in self._slots:
            self._close(slot)
        os.close(self._journal)

    def stop(self) -> None:
        """Cancel what is in flight and send nothing more."""
        self._stopping = True
        self._left.clear()
        now = self.now_ns()
        for slot in self._slots:
            if slot.answer is not None:
                detail = "stopped while in flight"
                slot.retried = True
                self.finished(slot, at_ns=now, failure="cancelled", detail=detail)
        self._finish_if_done()

    def _next(self, slot: Slot, *, free_at_ns: int | None) -> None:
        if not self._left:
            if not self._held_to:
                self._flying(0)
                self._held_to = self.now_ns()
            self._finish_if_done()
            return
        index, request = self._left.popleft()
        slot.retried = False
        self._flying(1)
        self._n_sent += 1
        slot.start(index, request, self._spec.output_tokens)
        if free_at_ns is not None and slot.answer is not None:
            self._late.append(slot.answer.sent_at_ns - free_at_ns)

    def _flying(self, change: int) -> None:
        now = self.now_ns()
        if not self._held_to:
            self._area += self._in_flight * (now - self._area_at)
            self._area_at = now
        self._in_flight += change

    def _finish_if_done(self) -> None:
        if not self._left and not self._in_flight and not self._over.done():
            self._over.set_result(None)

    def _slice(self) -> None:
        until = self.now_ns() + _SLICE_NS
        while self._to_decode and self.now_ns() < until:
            self._to_decode.popleft().decode(self._count)
        self._sliced = bool(self._to_decode)
        if self._sliced:
            self._loop.call_soon(self._slice)

    def _count(self, stamp_ns: int, n_events: int) -> None:
        if n_events:
            self._n_chunks += n_events
            self._per_second[stamp_ns // 1_000_000_000] += n_events
            if n_events > 1:
                self._n_merged += 1

    def _write(self, record: Request) -> None:
        os.write(self._journal, frame(msgspec.msgpack.encode(record)))
        if record.ok:
            self._n_ok += 1
            self._n_tokens += record.output_tokens or 0
        else:
            self._n_failed += 1

    # -- connections ------------------------------------------------------------
    async def _open(self, slot: Slot) -> str | None:
        """Connect; return None, or the reason why not."""
        where = address(self._spec.base_url)
        try:
            found = await self._loop.getaddrinfo(
                where.host, where.port, type=socket.SOCK_STREAM
            )
            family, kind, proto, _, peer = found[0]
            sock = socket.socket(family, kind, proto)
        except OSError as error:
            return f"connect: {error}"
        sock.setblocking(False)  # the standard library's own spelling
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stamps &= ask_for_stamps(sock)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._loop.sock_connect(sock, peer)
        except ConnectionRefusedError as error:
            sock.close()
            return f"refused: {error}"
        except (OSError, TimeoutError) as error:
            sock.close()
            return f"connect: {str(error) or 'timed out'}"
        slot.sock = sock
        slot.n_connect_failures = 0
        self._loop.add_reader(sock.fileno(), slot.readable)
        return None

    def _close(self, slot: Slot) -> None:
        if slot.sock is not None:
            self._loop.remove_reader(slot.sock.fileno())
            slot.sock.close()
            slot.sock = None

    async def _reopen(self, slot: Slot) -> None:
        """Open again and go on; a server that is gone fails what is left."""
        while self._left and not self._stopping:
            why = await self._open(slot)
            if why is None:
                self._next(slot, free_at_ns=None)
                return
            slot.n_connect_failures += 1
            if slot.n_connect_failures >= _MOST_CONNECT_FAILURES:
                self._give_up(why)
                return
            await asyncio.sleep(0.2 * slot.n_connect_failures)
        self._finish_if_done()

    async def _again(self, slot: Slot) -> None:
        """Send the same request once more on a fresh connection."""
        self._close(slot)
        answer = slot.answer
        why = await self._open(slot)
        if answer is None or self._stopping:
            return
        if why is not None:
            kind, _, detail = why.partition(": ")
            self.finished(slot, at_ns=self.now_ns(), failure=kind, detail=detail)
            return
        slot.start(answer.index, slot.request, self._spec.output_tokens)

    def _give_up(self, why: str) -> None:
        """One slot can not connect: if no slot has one, nothing more can be sent."""
        if any(s.sock is not None for s in self._slots):
            return
        kind, _, detail = why.partition(": ")
        now = self.now_ns()
        while self._left:
            index, _ = self._left.popleft()
            record = Request(
                index=index, sent_at_ns=now, ended_at_ns=now, worker=self._job.worker,
                requested_output_tokens=self._spec.output_tokens, failure=kind,
                failure_detail=f"never sent: {detail}",
            )  # fmt: skip
            self._write(record)
        self._finish_if_done()

    # -- time -------------------------------------------------------------------
    async def _tick(self) -> None:
        spec = self._spec
        while True:
            await asyncio.sleep(_TICK_S)
            now = self.now_ns()
            for slot in self._slots:
                answer = slot.answer
                if answer is None:
                    continue
                if slot.unsent:
                    slot.writable()
                quiet_s = (now - slot.last_byte_at_ns) / 1e9
                if answer.n_bytes and quiet_s > spec.stall_timeout_s:
                    self._timed_out(slot, now, "stall", f"no byte for {quiet_s:.1f} s")
                elif not answer.n_bytes and quiet_s > spec.header_timeout_s:
                    detail = f"no answer within {quiet_s:.1f} s"
                    self._timed_out(slot, now, "header-timeout", detail)
            say("progress", self.progress())

    def _timed_out(self, slot: Slot, now: int, kind: str, detail: str) -> None:
        slot.retried = True
        self.finished(slot, at_ns=now, failure=kind, detail=detail)

    def progress(self) -> dict[str, int]:
        """Return the counts so far, as ``LoadProgress`` names them."""
        return {
            "n_sent": self._n_sent,
            "n_done": self._n_ok,
            "n_failed": self._n_failed,
            "n_chunks": self._n_chunks,
            "in_flight": self._in_flight,
        }

    def health(self, *, loop: str, cpu_ns: int, wall_ns: int) -> WorkerHealth:
        """Return what was counted."""
        return WorkerHealth(
            loop=loop,
            kernel_stamps=self._stamps and self._n_unstamped < max(self._n_reads, 1),
            n_reads=self._n_reads,
            n_unstamped=self._n_unstamped,
            n_merged=self._n_merged,
            delay_counts=self._delays.counts(),
            delay_total_ns=self._delays.total_ns,
            delay_max_ns=self._delays.max_ns,
            latest_ns=sorted(self._late)[-max(len(self._late) // 50, 1) :],
            n_late=len(self._late),
            held_area=self._area,
            held_ns=max((self._held_to or self.now_ns()) - self._held_from, 1),
            cpu_ns=cpu_ns,
            wall_ns=wall_ns,
            per_second=dict(self._per_second),
            n_chunks=self._n_chunks,
            output_tokens=self._n_tokens,
            clock_drift_ns=self._offset.drift_ns(),
        )


def say(event: str, content: object) -> None:
    """Write one line to the parent."""
    os.write(1, msgspec.json.encode({"event": event, "content": content}) + b"\n")


def _cpu_ns() -> int:
    return time.process_time_ns()


async def _serve(job: Job, loop_name: str) -> None:
    clock = SystemClock()
    worker = Worker(job, clock)
    await worker.connect()
    loop = asyncio.get_running_loop()
    commands: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(0, _read_commands, commands)
    say("ready", worker.progress())
    if await commands.get() != "go":
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    started, cpu = clock.now_ns(), _cpu_ns()
    running = loop.create_task(worker.run())
    stopping = loop.create_task(commands.get())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        worker.stop()
    await running
    loop.remove_reader(0)
    stopping.cancel()
    wall_ns = clock.now_ns() - started
    health = worker.health(loop=loop_name, cpu_ns=_cpu_ns() - cpu, wall_ns=wall_ns)
    say("progress", worker.progress())
    say("done", health)


def _read_commands(commands: "asyncio.Queue[str]") -> None:
    text = os.read(0, 4096)
    # The parent is gone: what is in flight is cancelled and written down.
    for line in text.decode().split() or ["stop"]:
        commands.put_nowait(line)
    if not text:
        asyncio.get_running_loop().remove_reader(0)


def _loop_factory() -> tuple[str, Callable[[], asyncio.AbstractEventLoop] | None]:
    try:
        import uvloop
    except ImportError:
        return "asyncio", None
    return "uvloop", uvloop.new_event_loop


def main() -> int:
    """Read the job from standard input and do it."""
    size = struct.unpack("<I", _exactly(4))[0]
    job = msgspec.msgpack.decode(_exactly(size), type=Job)
    allowed = cpu_set(job.spec.cpus) if job.spec.cpus else None
    if allowed:
        os.sched_setaffinity(0, allowed & os.sched_getaffinity(0) or allowed)
    name, factory = _loop_factory()
    try:
        Path(job.journal).parent.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_serve(job, name))
    except (StepscopeError, OSError) as error:
        say("error", str(error))
        return 3
    return 0


def _exactly(n: int) -> bytes:
    data = b""
    while len(data) < n:
        piece = os.read(0, n - len(data))
        if not piece:
            raise SystemExit(3)
        data += piece
    return data


if __name__ == "__main__":
    sys.exit(main())
