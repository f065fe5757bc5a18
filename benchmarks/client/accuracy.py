"""Compare the client's figures with the burst server's own.

python accuracy.py CONCURRENCY N_PROMPTS OUTPUT_TOKENS STEP_MS [TTFT_MS] [CPUS]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stepscope.clock import SystemClock
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadSpec

_PORT = 9750


def main() -> None:
    concurrency, n, tokens = map(int, sys.argv[1:4])
    step_ms = float(sys.argv[4])
    ttft_ms = float(sys.argv[5]) if len(sys.argv) > 5 else 100.0
    cpus = sys.argv[6] if len(sys.argv) > 6 else None
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "truth.npz"
        here = Path(__file__).parent / "burst_server.py"
        command = [sys.executable, str(here), str(_PORT), str(step_ms), str(ttft_ms)]
        server = subprocess.Popen([*command, str(out)])
        time.sleep(0.7)
        spec = LoadSpec(
            base_url=f"http://127.0.0.1:{_PORT}", model="tiny", n_prompts=n,
            concurrency=concurrency, input_tokens=128, output_tokens=tokens,
            seed=time.monotonic_ns() % 100_000, processes=1, cpus=cpus,
        )  # fmt: skip
        result = drive(spec, Path(folder), clock=SystemClock())
        server.terminate()
        server.wait()
        _report(result, read_requests(Path(folder)), np.load(out))


def _report(result, requests, truth) -> None:
    ok = [r for r in requests if r.ok]
    ends = np.cumsum(truth["n_tokens"])
    writes = np.split(truth["writes"], ends[:-1])
    pairs = zip(truth["arrivals"], writes, strict=True)
    whole = [(a, w) for a, w in pairs if len(w) > 1]
    true_ttft = np.mean([w[0] - a for a, w in whole]) / 1e6
    true_tpot = np.mean([(w[-1] - w[0]) / (len(w) - 1) for _, w in whole]) / 1e6
    true_itl = np.concatenate([np.diff(w) for _, w in whole]) / 1e6
    ttft = np.mean([r.ttft_ns for r in ok]) / 1e6
    tpot = np.mean([r.tpot_ns for r in ok]) / 1e6
    itl = np.concatenate([np.diff(r.chunks_ns) for r in ok]) / 1e6
    p99, true_p99 = np.percentile(itl, 99), np.percentile(true_itl, 99)
    span_s = (max(r.ended_at_ns for r in ok) - min(r.sent_at_ns for r in ok)) / 1e9
    n_tokens = sum(r.output_tokens for r in ok)
    health = result.health
    cpu_s = health.cpu_pct_max / 100 * (result.ended_at_ns - result.started_at_ns) / 1e9
    print(f"ok {len(ok)} failed {result.n_failed}; {n_tokens / span_s:,.0f} tok/s")
    print(f"TTFT {ttft:.3f} ms, true {true_ttft:.3f}, error {ttft - true_ttft:+.3f}")
    error_pct = 100 * (tpot / true_tpot - 1)
    print(f"TPOT {tpot:.4f} ms, true {true_tpot:.4f}, error {error_pct:+.3f} %")
    print(f"p99 ITL {p99:.3f} ms, true {true_p99:.3f}, error {p99 - true_p99:+.3f}")
    print(f"CPU {cpu_s / n_tokens * 1e6:.1f} s/Mtok (in the cell)")
    print(health)


if __name__ == "__main__":
    main()
