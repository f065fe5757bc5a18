"""Run one cell's load: start the workers, release them together, merge their counts."""

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

import msgspec

from stepscope.clock import Clock
from stepscope.errors import SessionError
from stepscope.load.health import merged
from stepscope.load.spec import LoadProgress, LoadResult, LoadSpec, address
from stepscope.load.worker import Job, WorkerHealth

#: One process reads about 50,000 tokens/s in bursts; a stream rarely brings 25.
_SLOTS_A_WORKER = 1024
_READY_TIMEOUT_NS = 120_000_000_000
_STOP_TIMEOUT_S = 10.0


class _Line(msgspec.Struct):
    event: str
    content: msgspec.Raw


@dataclass(slots=True)
class _Child:
    process: "subprocess.Popen[bytes]"
    ready: bool = False
    health: WorkerHealth | None = None
    progress: LoadProgress = field(default_factory=LoadProgress)
    error: str | None = None
    ended: bool = False


def drive(
    spec: LoadSpec,
    journal_dir: Path,
    *,
    clock: Clock,
    on_progress: Callable[[LoadProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadResult:
    """Carry the load of one cell.

    Args:
        spec: What to send.
        journal_dir: Each worker appends a frame for each ended request to
            ``requests-<worker>.journal`` there.
        clock: Monotonic time.
        on_progress: Called about five times a second, from this thread.
        stop: When set, what is in flight is cancelled and recorded so.

    Raises:
        RecipeError: The address or the key is wrong.
        SessionError: No worker could start.
    """
    address(spec.base_url)
    lines: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    children = _start(spec, journal_dir, lines)
    try:
        _wait_ready(children, lines, clock, stop)
        started = clock.now_ns()
        for child in children:
            _command(child, "go")
        stopped = _watch(children, lines, on_progress, stop)
    finally:
        for child in children:
            _end(child)
    ended = clock.now_ns()
    healths = [c.health for c in children if c.health is not None]
    lost = sum(c.health is None for c in children)
    total = _sum([c.progress for c in children])
    return LoadResult(
        started_at_ns=started,
        ended_at_ns=ended,
        health=merged(healths, spec, n_workers=len(children), lost=lost),
        n_ok=total.n_done,
        n_failed=total.n_failed,
        lost_workers=lost,
        stopped=stopped,
    )


def n_workers(spec: LoadSpec) -> int:
    """Return how many client processes a cell gets."""
    if spec.processes is not None:
        return max(1, min(spec.processes, spec.concurrency))
    free = max(len(os.sched_getaffinity(0)) - 1, 1)
    needed = -(-spec.concurrency // _SLOTS_A_WORKER)
    return max(1, min(needed, free, spec.n_prompts))


def _start(
    spec: LoadSpec, journal_dir: Path, lines: "SimpleQueue[tuple[int, bytes]]"
) -> list[_Child]:
    count = n_workers(spec)
    children = []
    for worker in range(count):
        job = Job(
            spec=spec,
            worker=worker,
            n_workers=count,
            n_slots=len(range(worker, spec.concurrency, count)),
            journal=str(journal_dir / f"requests-{worker}.journal"),
        )
        process = subprocess.Popen(  # our own module
            [sys.executable, "-m", "stepscope.load.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        payload = msgspec.msgpack.encode(job)
        child = _Child(process)
        _write(child, struct.pack("<I", len(payload)) + payload)
        children.append(child)
        assert process.stdout is not None
        threading.Thread(
            target=_read, args=(worker, process.stdout, lines), daemon=True
        ).start()
    return children


def _read(
    worker: int, stream: IO[bytes], lines: "SimpleQueue[tuple[int, bytes]]"
) -> None:
    for line in stream:
        lines.put((worker, line))
    lines.put((worker, b""))


def _write(child: _Child, data: bytes) -> None:
    assert child.process.stdin is not None
    try:
        child.process.stdin.write(data)
        child.process.stdin.flush()
    except BrokenPipeError:
        child.ended = True


def _command(child: _Child, word: str) -> None:
    if not child.ended:
        _write(child, f"{word}\n".encode())


def _take(children: list[_Child], worker: int, line: bytes) -> None:
    child = children[worker]
    if not line:
        child.ended = True
        return
    said = msgspec.json.decode(line, type=_Line)
    if said.event == "ready":
        child.ready = True
    elif said.event == "progress":
        child.progress = msgspec.json.decode(said.content, type=LoadProgress)
    elif said.event == "done":
        child.health = msgspec.json.decode(said.content, type=WorkerHealth)
    elif said.event == "error":
        child.error = msgspec.json.decode(said.content, type=str)


def _wait_ready(
    children: list[_Child],
    lines: "SimpleQueue[tuple[int, bytes]]",
    clock: Clock,
    stop: threading.Event | None,
) -> None:
    until = clock.now_ns() + _READY_TIMEOUT_NS
    while not all(c.ready for c in children):
        try:
            _take(children, *lines.get(timeout=0.2))
        except Empty:
            if stop is not None and stop.is_set():
                return
        for child in children:
            if child.ended and not child.ready:
                found = child.error or "a client process ended before it was ready"
                raise SessionError("load client", found)
        if clock.now_ns() > until:
            raise SessionError("load client", "a client process did not get ready")


def _watch(
    children: list[_Child],
    lines: "SimpleQueue[tuple[int, bytes]]",
    on_progress: Callable[[LoadProgress], None] | None,
    stop: threading.Event | None,
) -> bool:
    stopped = False
    while not all(c.ended for c in children):
        try:
            _take(children, *lines.get(timeout=0.1))
        except Empty:
            pass
        else:
            if on_progress is not None:
                on_progress(_sum([c.progress for c in children]))
        if stop is not None and stop.is_set() and not stopped:
            stopped = True
            for child in children:
                _command(child, "stop")
    return stopped


def _end(child: _Child) -> None:
    assert child.process.stdin is not None
    try:
        child.process.stdin.close()
    except BrokenPipeError:
        child.ended = True
    try:
        child.process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()
    if child.process.stdout is not None:
        child.process.stdout.close()


def _sum(parts: list[LoadProgress]) -> LoadProgress:
    names = LoadProgress.__struct_fields__
    return LoadProgress(**{n: sum(getattr(p, n) for p in parts) for n in names})
