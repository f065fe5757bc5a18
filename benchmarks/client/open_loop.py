"""How late are an open loop's sends, and does memory stay flat?

    python open_loop.py late RATE N_PROMPTS [PROCESSES]
    python open_loop.py memory N_PROMPTS OUTPUT_TOKENS [CONCURRENCY] [STEP_MS]

Drives the burst server. ``late`` prints the lateness of sends against their schedule;
``memory`` the resident size of the client while tokens arrive.
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from stepscope.clock import SystemClock
from stepscope.load.arrivals import Arrivals
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadSpec

_PORT = 9_800 + os.getpid() % 1_000
_SERVER = os.environ.get("BURST_SERVER", str(Path(__file__).parent / "burst_server.py"))


def _server(step_ms: float, out: Path) -> subprocess.Popen:
    command = [sys.executable, _SERVER, str(_PORT), str(step_ms), "20", str(out)]
    server = subprocess.Popen(command)
    time.sleep(0.8)
    return server


def _spec(**fields) -> LoadSpec:
    return LoadSpec(
        base_url=f"http://127.0.0.1:{_PORT}", model="tiny", input_tokens=128,
        vocab_size=4096, seed=time.monotonic_ns() % 100_000, **fields,
    )  # fmt: skip


def late(rate: float, n: int, processes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = _server(10, Path(folder) / "truth.npz")
        spec = _spec(
            n_prompts=n, concurrency=None, output_tokens=8, processes=processes,
            arrivals=Arrivals(kind="gamma", rate=rate),
        )  # fmt: skip
        result = drive(spec, Path(folder), clock=SystemClock())
        server.terminate()
        server.wait()
        requests = read_requests(Path(folder))
    lateness = np.array([r.sent_at_ns - r.due_at_ns for r in requests]) / 1e6
    p50, p99, most = np.percentile(lateness, [50, 99, 100])
    print(
        f"{rate:g} req/s, {len(requests)} sent: late p50 {p50:.3f} ms, p99 {p99:.3f},"
        f" max {most:.3f}; {result.health.held_pct:.2f} % of the rate, loop busy"
        f" {result.health.busy_pct:.1f} %, CPU {result.health.cpu_pct_max:.1f} %,"
        f" {result.health.verdict}"
    )


def memory(n: int, tokens: int, concurrency: int, step_ms: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = _server(step_ms, Path(folder) / "truth.npz")
        said = threading.Event()
        seen: list[tuple[int, int]] = []

        def watch(progress) -> None:
            done = progress.n_done * tokens
            if not seen or done - seen[-1][0] >= max(n * tokens // 10, 1):
                workers = [
                    p for p in psutil.Process().children(recursive=True)
                    if "stepscope.load.worker" in p.cmdline()
                ]  # fmt: skip
                seen.append((done, max(p.memory_info().rss for p in workers)))
                said.set()

        spec = _spec(
            n_prompts=n, concurrency=concurrency, output_tokens=tokens, processes=1
        )
        result = drive(spec, Path(folder), clock=SystemClock(), on_progress=watch)
        server.terminate()
        server.wait()
        size = sum(p.stat().st_size for p in Path(folder).glob("requests-*"))
    for done, rss in seen:
        print(f"{done / 1e6:7.2f} M tokens: worker {rss / 2**20:.1f} MiB")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = (result.ended_at_ns - result.started_at_ns) / 1e9
    print(
        f"journal {size / 2**20:.1f} MiB, parent {own:.1f} MiB at most, drawn in"
        f" {result.prepare_ns / 1e9:.1f} s, {n * tokens / took:,.0f} tok/s,"
        f" {result.health.verdict}"
    )


def main() -> None:
    kind, *words = sys.argv[1:]
    if kind == "late":
        late(float(words[0]), int(words[1]), int(words[2]) if len(words) > 2 else 1)
        return
    concurrency = int(words[2]) if len(words) > 2 else 256
    step_ms = float(words[3]) if len(words) > 3 else 8.0
    memory(int(words[0]), int(words[1]), concurrency, step_ms)


if __name__ == "__main__":
    main()
