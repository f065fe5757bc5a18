"""What does it cost to read a chunk at all, kernel stamp included, and do nothing?

    python read_floor.py [STREAMS] [STEPS] [STEP_MS]

A child sends one segment a stream and step, as an engine's burst; this process reads
each with ``recvmsg`` under uvloop, and nothing else. What the client spends beyond
it is its own. As root both run before what else the machine does; each has a core.
"""

import asyncio
import contextlib
import os
import resource
import socket
import sys
import time

import uvloop

_SO_TIMESTAMPNS = 35
_CHUNK = b"x" * 275


def _favour(cpu: int, policy: int, priority: int) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _serve(socks: list[socket.socket], steps: int, step_s: float) -> None:
    _favour(0, os.SCHED_FIFO, 20)
    due = time.monotonic()
    for _ in range(steps):
        for sock in socks:
            sock.send(_CHUNK)
        due += step_s
        time.sleep(max(due - time.monotonic(), 0))


async def _read(socks: list[socket.socket]) -> int:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    n_reads, n_open = 0, len(socks)

    def readable(sock: socket.socket) -> None:
        nonlocal n_reads, n_open
        data, _, _, _ = sock.recvmsg(8 << 10, 64)
        if data:
            n_reads += 1
            return
        loop.remove_reader(sock.fileno())
        n_open -= 1
        if not n_open:
            over.set()

    for sock in socks:
        loop.add_reader(sock.fileno(), readable, sock)
    await over.wait()
    return n_reads


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    words = sys.argv[1:]
    streams = int(words[0]) if words else 64
    steps = int(words[1]) if len(words) > 1 else 1500
    step_ms = float(words[2]) if len(words) > 2 else 2.0
    listener = socket.create_server(("127.0.0.1", 0), backlog=streams)
    ours, theirs = [], []
    for _ in range(streams):
        sock = socket.create_connection(listener.getsockname())
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        ours.append(sock)
        theirs.append(listener.accept()[0])
    child = os.fork()
    if not child:
        for sock in ours:
            sock.close()
        _serve(theirs, steps, step_ms / 1e3)
        os._exit(0)
    for sock in theirs:
        sock.close()
    _favour(1, os.SCHED_RR, 10)
    before = _cpu_s()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        n = runner.run(_read(ours))
    used_us = (_cpu_s() - before) * 1e6
    os.waitpid(child, 0)
    print(f"{n} reads of {streams * steps} chunks, {used_us / n:.2f} us of CPU each")


if __name__ == "__main__":
    main()
