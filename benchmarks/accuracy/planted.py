"""Plant a cause on a server that runs, measure, and hold the verdict against it.

    python planted.py CASE [CASE ...] [--rounds 3] [--out DIR]
    python planted.py CASE [CASE ...] --engine vllm --pids 101,102 --model tiny \
        --base-url http://127.0.0.1:8000 --log-file server.log

Each round runs a clean control and then each case, every one a run of its own of a few
seconds, so that no verdict is joined with another's. The embedded engine is started for
each; a server that runs already should be pinned to ``--server-cpu``. One line of JSON
a run: cause, the verdicts that support or stand, the findings, and whether the planted
cause was named and nothing else was. Needs root. ``client``: eight burners on the
client's core. ``client-stopped``: stop signals for the client, 150 ms in every 300.
``neighbour``: two burners on the server's core. ``stopped``: stop signals for the API
server. ``stopped-late``: the same after a sound cell at concurrency 1.
``frontend-core``: eight burners on a core that only the API server and the
client share. ``cached``: the control's prompts again, on a server that runs already.
``memory``: the whole run, server and client, in a memory cgroup (v1) of
``--memory-mib``, which grows where nothing can go on. ``--again`` judges what was
measured before.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from stepscope.importers.open import open_any

_RECIPE = """
name = "planted"
{server}
[workload]
input_tokens = {input_tokens}
output_tokens = {output_tokens}
concurrency = [{loads}]
waves = {waves}
seed = {seed}

[warm_up]
blocks = {blocks}

[telemetry]
interval_s = 0.1
metrics_interval_s = 0.5
"""
_RUNNING = """engine = "url"
model = "{model}"

[server]
base_url = "{base_url}"
engine = "{engine}"
pids = [{pids}]
"""
_EMBEDDED = """engine = "embedded"

[baseline]
cpus = "{server_cpu}"

[baseline.flags]
slots = 16
slot-context = 512
threads = 1
"""
#: The cell of the highest concurrency, once it has begun.
_LAST = "cells/baseline-c{concurrency}-r0"
_GROUP = Path("/sys/fs/cgroup/memory/planted")
#: What must be named: hypotheses of which one must be supported (or stand), or codes
#: of findings of which one must be told.
_NAMES: dict[str, tuple[set[str], set[str]]] = {
    "control": (set(), set()),
    "client": ({"client"}, {"client-bound"}),
    "client-stopped": ({"client"}, {"client-bound"}),
    "neighbour": (set(), {"cpu-starved"}),
    "stopped": ({"frontend"}, {"frontend-bound"}),
    "stopped-late": ({"frontend"}, set()),
    "frontend-core": ({"frontend"}, {"frontend-bound", "cpu-starved"}),
    "cached": (set(), {"prefix-cache-hits"}),
    "memory": ({"host-memory"}, set()),
}
#: Causes that are true of these engines whatever is planted.
_ALWAYS = {"compute", "prefill"}
#: What else a planted cause does: a client in a full memory cgroup is frozen too.
_ALSO = {"memory": {"client"}}
#: A client that had no core for this share of the cell, by the kernel's scheduler
#: statistics, was starved, whoever did it: the machine may be shared.
_STARVED_PCT = 10.0
#: TPOT within this of the server's and slots in use: the planted cause did no harm to
#: the figures, and an acquittal is right.
_HARMLESS_GAP_PCT, _HARMLESS_HELD_PCT = 3.0, 97.0


def _placed(cpus: set[int], nice: int) -> None:
    """Pin the calling process; give its session a priority of its own.

    Where the kernel groups processes by session, nice counts within a session only.
    """
    os.sched_setaffinity(0, cpus)
    os.setsid()
    grouped = Path("/proc/self/autogroup")
    if grouped.exists():
        grouped.write_text(str(nice))
    os.nice(nice)


def _prioritise(pid: int, nice: int) -> None:
    """Give the sessions of a process's descendants its priority, while it lives."""
    done: set[int] = set()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie":
        for child in psutil.Process(pid).children(recursive=True):
            path = Path(f"/proc/{child.pid}/autogroup")
            if child.pid not in done and path.exists():
                path.write_text(str(nice))
                done.add(child.pid)
        time.sleep(0.1)


@contextmanager
def burners(cpu: int, nice: int, n: int = 2):
    """Keep ``n`` processes busy on one core."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            preexec_fn=lambda: _placed({cpu}, nice),  # noqa: PLW1509
        )
        for _ in range(n)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def stops(victim: Callable[[], int | None]):
    """Stop and continue a process in turn, 150 ms each."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            pid = victim()
            if pid is not None and psutil.pid_exists(pid):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.15)
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.15)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _client() -> int | None:
    """Return the load worker that this program's run has started."""
    for child in psutil.Process().children(recursive=True):
        try:
            if "stepscope.load.worker" in child.cmdline():
                return child.pid
        except psutil.Error:
            continue
    return None


@contextmanager
def moved(pid: int, cpu: int):
    """Pin one process, all its threads, to a core; put them back after."""
    tids = [t.id for t in psutil.Process(pid).threads()]
    before = {tid: os.sched_getaffinity(tid) for tid in tids}
    for tid in tids:
        os.sched_setaffinity(tid, {cpu})
    try:
        yield
    finally:
        for tid, cpus in before.items():
            with suppress(ProcessLookupError):  # a thread that ended meanwhile
                os.sched_setaffinity(tid, cpus)


@contextmanager
def squeezed(mib: int):
    """Have a memory cgroup (v1) that the run enters: too small, and never killing."""
    _GROUP.mkdir(exist_ok=True)
    (_GROUP / "memory.oom_control").write_text("1")
    limit = _GROUP / "memory.limit_in_bytes"
    limit.write_text(str(mib << 20))
    ended = threading.Event()

    def loosen() -> None:
        while not ended.wait(1.0):
            if "under_oom 1" in (_GROUP / "memory.oom_control").read_text():
                limit.write_text(str(int(limit.read_text()) + (1 << 20)))

    thread = threading.Thread(target=loosen)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _GROUP.rmdir()


def _entered(case: str, cpus: set[int], flags: argparse.Namespace) -> None:
    _placed(cpus, flags.nice)
    if case == "memory":
        (_GROUP / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def nothing():
    """Plant nothing."""
    yield


def _plants(flags: argparse.Namespace, out: Path) -> dict[str, Callable[[], object]]:
    pids = [int(pid) for pid in flags.pids.split(",") if pid]

    @contextmanager
    def frontend_core():
        with moved(pids[0], flags.client_cpu), burners(flags.client_cpu, flags.nice, 8):
            yield

    return {
        "control": nothing,
        "client": lambda: burners(flags.client_cpu, flags.nice, 8),
        "neighbour": lambda: burners(flags.server_cpu, flags.nice),
        "client-stopped": lambda: stops(_client),
        "stopped": lambda: stops(lambda: pids[0]),
        "stopped-late": lambda: stops(
            lambda: pids[0] if (out / _LAST.format(**vars(flags))).exists() else None
        ),
        "frontend-core": frontend_core,
        "cached": nothing,
        "memory": lambda: squeezed(flags.memory_mib),
    }


def _measured(flags: argparse.Namespace, case: str, seed: int, out: Path) -> dict:
    if flags.again:
        return {"seconds": None} | _analysis(out)
    recipe = out.with_suffix(".toml")
    server = (_RUNNING if flags.pids else _EMBEDDED).format(**vars(flags))
    if flags.log_file:
        server += f'log_file = "{flags.log_file}"\n'
    loads = f"1, {flags.concurrency}" if case == "stopped-late" else flags.concurrency
    words = {**vars(flags), "server": server, "seed": seed, "loads": loads}
    recipe.write_text(_RECIPE.format(**words))
    shutil.rmtree(out, ignore_errors=True)
    # The client may run beside a server that has a core of its own.
    command = ["stepscope", "run", str(recipe), "--out", str(out)]
    # An embedded server is pinned by its recipe, and the client gets the other cores.
    cpus = {flags.client_cpu} if flags.pids else set(range(os.cpu_count() or 1))
    began = time.monotonic()
    with (
        _plants(flags, out)[case](),
        subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _entered(case, cpus, flags),  # noqa: PLW1509
        ) as ran,
    ):
        keeper = threading.Thread(target=_prioritise, args=(ran.pid, flags.nice))
        keeper.start()
        said = ran.communicate()[1]
        keeper.join()
    took = time.monotonic() - began
    if ran.returncode:
        print(said[-800:], file=sys.stderr)
    return {"seconds": round(took, 1)} | _analysis(out)


def _analysis(out: Path) -> dict:
    told = subprocess.run(
        ["stepscope", "analyze", str(out), "--json"], check=True, capture_output=True
    )
    return json.loads(told.stdout)


def _client_waited_pct(out: Path) -> float:
    health = open_any(out).cells[-1].client
    return (health.waited_pct or 0.0) if health is not None else 0.0


def _holds(entry: dict, cell: dict) -> bool:
    """Whether an entry of the board speaks of the cell in which it was planted."""
    scope, here = entry["scope"], cell.get("concurrency")
    low, high = scope["concurrency_from"], scope["concurrency_to"]
    return here is None or low is None or low <= here <= (high or low)


def _judged(case: str, found: dict, waited_pct: float) -> dict:
    names, codes = _NAMES[case]
    also = _ALSO.get(case, set())
    if waited_pct >= _STARVED_PCT:
        also = also | {"client"}
    cell = next((c for c in reversed(found["cells"]) if not c["warm_up"]), {})
    board = [(e["hypothesis"], e["status"]) for e in found["board"] if _holds(e, cell)]
    supported = {h for h, status in board if status == "supported"}
    standing = {h for h, status in board if status == "standing"}
    ruled_out = {h for h, status in board if status == "ruled-out"}
    told = {
        f["code"]
        for f in found["findings"]
        if f["cell"] is None or "warm" not in f["cell"]
    }
    false = (supported - names - _ALWAYS - also) | (ruled_out & names)
    word = "yes" if supported & names or told & codes else "no"
    if word == "no" and standing & names:
        word = "open"
    gap = cell.get("client_tpot_error_pct")
    held = 100 * (cell.get("occupancy") or 0.0)
    sound = gap is not None and abs(gap) <= _HARMLESS_GAP_PCT
    if case == "client" and "client" in ruled_out and sound:
        false -= {"client"}
        word = "harmless" if held >= _HARMLESS_HELD_PCT else "no"
    return {
        "planted": case,
        "named": word,
        "false": sorted(false),
        "supported": sorted(supported),
        "standing": sorted(standing),
        "findings": sorted(told),
        "client_waited_pct": round(waited_pct, 1),
        "valid": cell.get("valid"),
        "tpot_ms": (cell.get("tpot_ms") or {}).get("mean"),
        "server_tpot_ms": cell.get("server_tpot_ms"),
        "step_ms": cell.get("engine_step_ms"),
        "chunks_per_token": cell.get("chunks_per_token"),
        "gap_pct": cell.get("client_tpot_error_pct"),
        "seconds": found["seconds"],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("cases", nargs="+", choices=sorted(set(_NAMES) - {"control"}))
    add("--engine", default="embedded", help="vllm: one that runs already")
    add("--base-url", default="")
    add("--model", default="")
    add("--pids", default="", help="of that server, the API server's first")
    add("--log-file", default="")
    add("--rounds", type=int, default=3)
    add("--server-cpu", type=int, default=0)
    add("--client-cpu", type=int, default=1)
    add("--nice", type=int, default=0, help="of client and burners")
    add("--input-tokens", type=int, default=32)
    add("--output-tokens", type=int, default=64)
    add("--concurrency", type=int, default=4)
    add("--waves", type=int, default=3)
    add("--blocks", type=int, default=0)
    add("--memory-mib", type=int, default=200, help="of the case memory")
    add("--again", action="store_true", help="judge what was measured before")
    add("--out", type=Path, default=Path("planted"))
    return parser


def main() -> None:
    """Run all rounds and print the counts."""
    flags = _parser().parse_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    counts: dict[str, list[str]] = {}
    for number in range(flags.rounds):
        seed = time.time_ns() % 999_983
        for case in ("control", *flags.cases):
            # Only the planted cache sees the control's prompts again.
            own = seed if case in ("control", "cached") else time.time_ns() % 999_979
            found = _measured(flags, case, own, flags.out / f"{case}-{number}")
            out = flags.out / f"{case}-{number}"
            judged = _judged(case, found, _client_waited_pct(out))
            with (flags.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(judged) + "\n")
            print(json.dumps(judged), flush=True)
            if case == "control" and judged["named"] == "no":
                judged["named"] = "nothing named"
            said = "false" if judged["false"] else judged["named"]
            counts.setdefault(case, []).append(said)
    for case, said in counts.items():
        print(case, {word: said.count(word) for word in sorted(set(said))})


if __name__ == "__main__":
    main()
