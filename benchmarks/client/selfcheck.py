"""Does the client convict itself when it was slowed, and only then?

    python selfcheck.py [--runs 10] [--out results.jsonl] [--server-cpu 0]

Clean runs have their core to themselves as far as a real-time priority can give it.
Slowed ones in turn: a busy neighbour on the client's core; stop signals, 60 ms in every
200; a thread inside the client that keeps the interpreter. Prints each run's verdict
beside its errors against the server's own times. Needs root.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from clients import OURS, PROGRAMS
from measure import Place, Scenario, measured

_SCENARIOS = (
    Scenario("64", 64, 256, 512, 2.0),
    Scenario("2048-50k", 2048, 4096, 64, 41.0),
)
_HERE = Path(__file__).parent


def _worker(pid: int) -> int | None:
    for _ in range(600):
        try:
            for child in psutil.Process(pid).children():
                if "stepscope.load.worker" in child.cmdline():
                    return child.pid
        except psutil.Error:
            return None
        time.sleep(0.05)
    return None


def _stops(pid: int) -> None:
    worker = _worker(pid)
    try:
        while worker is not None and psutil.pid_exists(pid):
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0.06)
            os.kill(worker, signal.SIGCONT)
            time.sleep(0.14)
    except ProcessLookupError:
        return


def _neighbour(pid: int, cpu: int) -> None:
    """Burn the client's core, from the worker's start to the client's end."""
    if _worker(pid) is None:
        return
    burner = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"],
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),  # noqa: PLW1509
    )
    try:
        while psutil.pid_exists(pid):
            time.sleep(0.1)
    finally:
        burner.kill()
        burner.wait()


def _run(kind: str, scenario: Scenario, flags: argparse.Namespace) -> dict:
    clean = kind == "clean"
    place = Place(flags.server_cpu, flags.client_cpu, True, "", clean)
    path = str(_HERE / "slow")
    os.environ.pop("BURN", None)
    os.environ.pop("PYTHONPATH", None)
    if kind == "thread":
        os.environ |= {"BURN": "1", "PYTHONPATH": path}

    def disturb(pid: int) -> None:
        acts = {"stops": _stops, "neighbour": lambda p: _neighbour(p, place.client_cpu)}
        if kind in acts:
            threading.Thread(target=acts[kind], args=(pid,), daemon=True).start()

    with tempfile.TemporaryDirectory() as folder:
        found, truth, _ = measured(
            OURS, PROGRAMS[OURS], scenario, place, Path(folder), disturb
        )
        client = json.loads((Path(folder) / "result.json").read_text())["client"]
    return {
        "kind": kind,
        "scenario": scenario.name,
        "verdict": found.verdict,
        "ttft_error_ms": found.ttft_ms - truth.ttft_ms,
        "itl_error_ms": (found.p99_itl_ms or 0.0) - truth.p99_itl_ms,
        "tpot_error_pct": 100 * (found.tpot_ms / truth.tpot_ms - 1),
        "reasons": client["reasons"],
        "waited_pct": client["waited_pct"],
    }


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--runs", type=int, default=10)
    flags.add_argument("--out", type=Path)
    flags.add_argument("--server-cpu", type=int, default=0)
    flags.add_argument("--client-cpu", type=int, default=1)
    asked = flags.parse_args()
    os.sched_setaffinity(0, {asked.server_cpu})
    slow = ("neighbour", "stops", "thread")
    records = []
    for run in range(asked.runs):
        scenario = _SCENARIOS[run % len(_SCENARIOS)]
        for kind in ("clean", slow[run % len(slow)]):
            record = _run(kind, scenario, asked)
            records.append(record)
            print(json.dumps(record), file=sys.stderr, flush=True)
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    print("| runs | convicted | worst TTFT error ms | worst p99 ITL error ms |")
    print("|---|---|---|---|")
    for kind in ("clean", *slow):
        mine = [r for r in records if r["kind"] == kind]
        if mine:
            convicted = sum(r["verdict"] == "limited" for r in mine)
            ttft = max(abs(r["ttft_error_ms"]) for r in mine)
            itl = max(abs(r["itl_error_ms"]) for r in mine)
            print(f"| {kind} | {convicted} of {len(mine)} | {ttft:.3f} | {itl:.3f} |")


if __name__ == "__main__":
    main()
