"""Run one client against the burst server: its figures, the truth, what it cost."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from clients import CLIENTS, Figures, Load

_PORT = 9750
_SERVER = Path(__file__).parent / "burst_server.py"
_TIMEOUT_S = 400.0
_EVERY_S, _MEMORY_EVERY = 0.1, 5


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load; ``step_ms`` is the server's step, in which each stream gets a token."""

    name: str
    concurrency: int
    n: int
    output_tokens: int
    step_ms: float
    ttft_ms: float = 130.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where things run.

    ``favoured``: the server runs before what else the machine does, and so does the
    client unless ``client_favoured`` is false.
    """

    server_cpu: int
    client_cpu: int
    favoured: bool
    tokenizer: str
    client_favoured: bool = True


@dataclass(frozen=True, slots=True)
class Truth:
    """The server's own figures over a run, milliseconds and shares."""

    ttft_ms: float
    tpot_ms: float
    p99_itl_ms: float
    tokens_per_s: float
    held_pct: float
    p99_late_ms: float
    worst_late_ms: float
    n_again: int
    first_at_s: float
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds before and from the first request on; peak memory of the tree."""

    cpu_before_s: float
    cpu_s: float
    peak_mb: float
    wall_s: float


def measured(
    name: str,
    program: str,
    scenario: Scenario,
    place: Place,
    folder: Path,
    disturb: Callable[[int], None] | None = None,
) -> tuple[Figures, Truth, Cost]:
    """Run ``name`` once; ``disturb`` is called with its process id as it starts."""
    truth_file = folder / "truth.npz"
    server = [sys.executable, str(_SERVER), str(_PORT), str(scenario.step_ms)]
    server += [str(scenario.ttft_ms), str(truth_file)]
    server += ["realtime"] if place.favoured else []
    load = Load(
        f"http://127.0.0.1:{_PORT}",
        scenario.n,
        scenario.concurrency,
        scenario.output_tokens,
        place.tokenizer,
        folder,
    )
    kernel = _kernel_threads(place) if place.favoured else []
    for pid in kernel:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(30))
    serving = subprocess.Popen(
        server,
        preexec_fn=lambda: os.sched_setaffinity(0, {place.server_cpu}),  # noqa: PLW1509
    )
    try:
        _await(serving)
        samples, cpu_s, wall_s = _watched(name, program, load, place, disturb)
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait()
        for pid in kernel:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    truth = _truth(np.load(truth_file), scenario)
    times, used, memory = map(np.array, zip(*samples, strict=True))
    before = float(np.interp(truth.first_at_s, times, used))
    cost = Cost(before, max(cpu_s - before, 0.0), float(memory.max()), wall_s)
    return CLIENTS[name].figures(folder), truth, cost


def _await(server: subprocess.Popen) -> None:
    """Wait until the server listens, on a busy machine many times its usual 0.3 s."""
    for _ in range(200):
        with socket.socket() as sock:
            if not sock.connect_ex(("127.0.0.1", _PORT)):
                return
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        time.sleep(0.1)
    raise RuntimeError("the server does not listen after 20 s")


def _watched(
    name: str,
    program: str,
    load: Load,
    place: Place,
    disturb: Callable[[int], None] | None,
) -> tuple[list[tuple[float, float, float]], float, float]:
    """Run the client; return samples of time, CPU seconds, MB; CPU and wall in all."""
    environment = dict(os.environ)
    # Whoever installs a client starts it from compiled modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for key, value in CLIENTS[name].environment.items():
        environment.pop(key, None)
        if value is not None:
            environment[key] = value

    def settle() -> None:
        os.sched_setaffinity(0, {place.client_cpu})
        if place.favoured and place.client_favoured:
            # A mere nice value counts within a session only (autogroup).
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))

    before, began = _children_s(), time.monotonic()
    log = (load.folder / "client.log").open("wb")
    process = subprocess.Popen(
        CLIENTS[name].command(program, load),
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=settle,  # noqa: PLW1509
        cwd=load.folder,
    )
    if disturb is not None:
        disturb(process.pid)
    samples: list[tuple[float, float, float]] = [(began, 0.0, 0.0)]
    memory, turn = 0.0, 0
    while process.poll() is None:
        used, now_mb = _tree(process.pid, memory=turn % _MEMORY_EVERY == 0)
        memory = max(memory, now_mb)
        samples.append((time.monotonic(), max(used, samples[-1][1]), memory))
        turn += 1
        if time.monotonic() - began > _TIMEOUT_S:
            process.kill()
            raise RuntimeError(f"{name} did not end in {_TIMEOUT_S:g} s")
        time.sleep(_EVERY_S)
    log.close()
    if process.returncode:
        tail = (load.folder / "client.log").read_text(errors="replace")[-800:]
        raise RuntimeError(f"{name} ended with {process.returncode}: {tail}")
    return samples, _children_s() - before, time.monotonic() - began


def _kernel_threads(place: Place) -> list[int]:
    """Return the threads that deliver loopback packets when a sender does not.

    Left as they are, they wait their turn among everything else on a busy core, and
    what a real-time server has sent lies there for many milliseconds.
    """
    names = {f"ksoftirqd/{cpu}" for cpu in (place.server_cpu, place.client_cpu)}
    return [p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in names]


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree(pid: int, *, memory: bool) -> tuple[float, float]:
    """Return CPU seconds and, if asked, proportional MB of a process and its tree."""
    used = held = 0.0
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0, 0.0
    for process in members:
        try:
            used += sum(process.cpu_times()[:4])
            if memory:
                held += process.memory_full_info().pss / 1e6
        except psutil.Error:
            continue
    return used, held


def _truth(saved: "np.lib.npyio.NpzFile", scenario: Scenario) -> Truth:
    """Return the truth over the load's requests: the last ones that came."""
    ends = np.cumsum(saved["n_tokens"])
    whole = np.flatnonzero(saved["n_tokens"] == scenario.output_tokens)[-scenario.n :]
    split = np.split(saved["writes"], ends[:-1])
    writes = np.array([split[i] for i in whole])
    arrivals = saved["arrivals"][whole]
    first, last = writes[:, 0], writes[:, -1]
    span_ns = last.max() - arrivals.min()
    in_flight_ns = float((last - arrivals).sum())
    return Truth(
        ttft_ms=float((first - arrivals).mean() / 1e6),
        tpot_ms=float(((last - first) / (writes.shape[1] - 1)).mean() / 1e6),
        p99_itl_ms=float(np.percentile(np.diff(writes, axis=1), 99) / 1e6),
        tokens_per_s=writes.size / span_ns * 1e9,
        held_pct=100 * in_flight_ns / span_ns / scenario.concurrency,
        p99_late_ms=float(np.percentile(saved["late_ns"], 99) / 1e6),
        worst_late_ms=float(saved["late_ns"].max() / 1e6),
        n_again=int(saved["n_again"]),
        first_at_s=float(arrivals.min() / 1e9),
        n_tokens=writes.size,
    )
