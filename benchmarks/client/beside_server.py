"""Our client and ``vllm bench serve`` against one real server, beside its own figure.

    python beside_server.py --base-url URL --model NAME --tokenizer FOLDER
        [--concurrency 512,1024] [--input-tokens 256] [--output-tokens 128]
        [--waves 4] [--rounds 2] [--clients stepscope,vllm] [--vllm PROGRAM]
        [--out results.jsonl]

The server's figure is the mean of ``vllm:request_time_per_output_token_seconds`` over
what it served in that load: the growth of its sum over that of its count. Clients take
turns, and change places from round to round; a load of ours that is not counted comes
first at each concurrency.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from clients import CLIENTS, OURS, PROGRAMS, Load

from stepscope.parse.prometheus import parse_metrics

_TPOT = "vllm:request_time_per_output_token_seconds"
_TIMEOUT_S = 500.0


def main() -> None:
    flags = _flags()
    names = flags.clients.split(",")
    records: list[dict] = []
    for concurrency in map(int, flags.concurrency.split(",")):
        _record(OURS, flags, concurrency)
        for turn in range(flags.rounds):
            for name in names if turn % 2 == 0 else names[::-1]:
                record = _record(name, flags, concurrency) | {"round": turn}
                records.append(record)
                print(json.dumps(record), file=sys.stderr, flush=True)
                if flags.out:
                    with flags.out.open("a") as file:
                        file.write(json.dumps(record) + "\n")
    print("\n".join(_table(records)))


def _record(name: str, flags: argparse.Namespace, concurrency: int) -> dict:
    """Carry one load with ``name``: its figures, the server's, and what it cost."""
    client = CLIENTS[name]
    with tempfile.TemporaryDirectory() as folder:
        load = Load(
            url=flags.base_url,
            n=concurrency * flags.waves,
            concurrency=concurrency,
            output_tokens=flags.output_tokens,
            tokenizer=flags.tokenizer,
            folder=Path(folder),
            input_tokens=flags.input_tokens,
            model=flags.model,
        )
        environment = {
            k: v for k, v in (os.environ | client.environment).items() if v is not None
        }
        before, used = _served(flags.base_url), os.times()
        done = subprocess.run(
            client.command(getattr(flags, name), load),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
        after, spent = _served(flags.base_url), os.times()
        if done.returncode:
            sys.exit(f"{name}: exit {done.returncode}: {done.stderr.decode()[-500:]}")
        figures = client.figures(load.folder)
    n = after[1] - before[1]
    server_ms = 1000 * (after[0] - before[0]) / n
    cpu_s = spent.children_user - used.children_user
    cpu_s += spent.children_system - used.children_system
    return {
        "client": name,
        "concurrency": concurrency,
        "n_ok": figures.n_ok,
        "n_served": n,
        "tpot_ms": figures.tpot_ms,
        "server_tpot_ms": server_ms,
        "error_pct": 100 * (figures.tpot_ms / server_ms - 1),
        "cpu_s": cpu_s,
        "verdict": figures.verdict,
    }


def _served(url: str) -> tuple[float, float]:
    """Return the sum (seconds) and the count of the server's own TPOT."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        values = parse_metrics(answer.read().decode())
    total = sum(v.value for v in values if v.name == f"{_TPOT}_sum")
    count = sum(v.value for v in values if v.name == f"{_TPOT}_count")
    return total, count


def _table(records: list[dict]) -> Iterator[str]:
    yield "| concurrency | client | TPOT ms | server's own | error % | CPU s | says |"
    yield "|---|---|---|---|---|---|---|"
    for key in dict.fromkeys((r["concurrency"], r["client"]) for r in records):
        rows = [r for r in records if (r["concurrency"], r["client"]) == key]
        errors = [r["error_pct"] for r in rows]
        yield (
            f"| {key[0]} | {key[1]} | {median(r['tpot_ms'] for r in rows):.2f} "
            f"| {median(r['server_tpot_ms'] for r in rows):.2f} "
            f"| {median(errors):+.2f} ({min(errors):+.2f} to {max(errors):+.2f}) "
            f"| {median(r['cpu_s'] for r in rows):.1f} "
            f"| {', '.join(sorted({r['verdict'] or 'nothing' for r in rows}))} |"
        )


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--base-url", required=True)
    add("--model", required=True, help="the name under which it is served")
    add("--tokenizer", required=True, help="a folder; vllm bench serve needs it")
    add("--concurrency", default="512,1024")
    add("--input-tokens", type=int, default=256)
    add("--output-tokens", type=int, default=128)
    add("--waves", type=int, default=4)
    add("--rounds", type=int, default=2)
    add("--clients", default=f"{OURS},vllm")
    add("--stepscope", default=PROGRAMS[OURS])
    add("--vllm", default=PROGRAMS["vllm"])
    add("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
