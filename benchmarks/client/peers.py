"""Our client and its peers against one server of known times, as a table.

    python peers.py --tokenizer FOLDER [--runs 3] [--clients stepscope,vllm,...]
        [--scenarios 64,2048-50k,2048-5k] [--favour] [--out results.jsonl]
        [--vllm PROGRAM] [--sglang-rust PYTHON] [--aiperf PROGRAM] [--guidellm PROGRAM]

The server is pinned to one core and each client to another. Errors are the client's
figure minus the server's own. ``--favour`` (root) lets the server (SCHED_FIFO) and each
client (SCHED_RR, from its start) run before what else the machine does. A client that
can not be started is said and left out. ``--out`` is appended to, and the table is over
all that it holds; ``--runs 0`` prints the table alone.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from clients import CLIENTS, OURS, PROGRAMS
from measure import Place, Scenario, measured

SCENARIOS = {
    s.name: s
    for s in (
        Scenario("64", 64, 256, 512, 2.0),
        Scenario("2048-50k", 2048, 4096, 64, 41.0),
        Scenario("2048-5k", 2048, 4096, 16, 410.0),
    )
}
#: Row of the table: title, key of a record, digits.
_COLUMNS = (
    ("TTFT error ms", "ttft_error_ms", 3),
    ("p99 ITL error ms", "itl_error_ms", 3),
    ("TPOT error %", "tpot_error_pct", 3),
    ("CPU s/Mtok", "cpu_s_per_mtok", 1),
    ("CPU s before", "cpu_before_s", 1),
    ("peak MB", "peak_mb", 0),
    ("held %", "held_pct", 1),
)
#: Our largest share of a peer's figure.
_GOALS = {
    "ttft_error_ms": {"vllm": 1 / 500, "sglang-rust": 1 / 20},
    "itl_error_ms": {"vllm": 1 / 1000, "sglang-rust": 1 / 50},
    "cpu_s_per_mtok": {
        "vllm": 0.55,
        "sglang-rust": 1.1,
        "aiperf": 1 / 7,
        "guidellm": 1 / 14,
    },
    "peak_mb": {"vllm": 1 / 10, "sglang-rust": 1 / 3},
}


def main() -> None:
    flags = _flags()
    place = Place(
        flags.server_cpu, flags.client_cpu, flags.favour, str(flags.tokenizer)
    )
    os.sched_setaffinity(0, {place.server_cpu})
    programs = {n: getattr(flags, n.replace("-", "_")) for n in CLIENTS}
    names = flags.clients.split(",")
    for name in list(names):
        if shutil.which(programs[name]) is None:
            print(f"{name}: no {programs[name]}; left out", file=sys.stderr)
            names.remove(name)
    records = _saved(flags.out)
    for scenario in (SCENARIOS[s] for s in flags.scenarios.split(",")):
        for run in range(flags.runs):
            for name in names[run % len(names) :] + names[: run % len(names)]:
                record = _record(name, programs[name], scenario, place)
                record["run"] = run
                records.append(record)
                print(json.dumps(record), file=sys.stderr, flush=True)
                if flags.out:
                    with flags.out.open("a") as file:
                        file.write(json.dumps(record) + "\n")
    print(table(records))


def _saved(path: Path | None) -> list[dict]:
    """Return the records of earlier calls: clients may be run in several."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _flags() -> argparse.Namespace:
    flags = argparse.ArgumentParser()
    flags.add_argument("--tokenizer", required=True, type=Path)
    flags.add_argument("--runs", type=int, default=3)
    flags.add_argument("--clients", default=",".join(CLIENTS))
    flags.add_argument("--scenarios", default=",".join(SCENARIOS))
    flags.add_argument("--server-cpu", type=int, default=0)
    flags.add_argument("--client-cpu", type=int, default=1)
    flags.add_argument("--favour", action="store_true")
    flags.add_argument("--out", type=Path)
    for name, program in PROGRAMS.items():
        flags.add_argument(f"--{name}", default=program)
    return flags.parse_args()


def _record(name: str, program: str, scenario: Scenario, place: Place) -> dict:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        try:
            found, truth, cost = measured(name, program, scenario, place, Path(folder))
        except (RuntimeError, OSError, KeyError, ValueError) as error:
            return {"client": name, "scenario": scenario.name, "failed": str(error)}
    p99 = found.p99_itl_ms
    return {
        "client": name,
        "scenario": scenario.name,
        "ttft_error_ms": found.ttft_ms - truth.ttft_ms,
        "itl_error_ms": None if p99 is None else p99 - truth.p99_itl_ms,
        "tpot_error_pct": 100 * (found.tpot_ms / truth.tpot_ms - 1),
        "cpu_s_per_mtok": cost.cpu_s / truth.n_tokens * 1e6,
        "cpu_before_s": cost.cpu_before_s,
        "peak_mb": cost.peak_mb,
        "held_pct": truth.held_pct,
        "verdict": found.verdict,
        "n_ok": found.n_ok,
        "load_average": load,
        "wall_s": cost.wall_s,
        "truth": asdict(truth),
    }


def table(records: list[dict]) -> str:
    """Return Markdown: medians with their range, then our share of each peer."""
    lines = []
    for scenario in dict.fromkeys(r["scenario"] for r in records):
        rows = [r for r in records if r["scenario"] == scenario and "failed" not in r]
        lines += [f"\n### {scenario}\n", "| client | runs |", "|---|---|"]
        lines[-2] += (
            "".join(f" {title} |" for title, _, _ in _COLUMNS) + " self-check |"
        )
        lines[-1] += "---|" * (len(_COLUMNS) + 1)
        names = dict.fromkeys(r["client"] for r in rows)
        middle: dict[str, dict[str, float]] = {}
        for name in names:
            mine = [r for r in rows if r["client"] == name]
            cells, middle[name] = [], {}
            for _, key, digits in _COLUMNS:
                values = [r[key] for r in mine if r[key] is not None]
                if not values:
                    cells.append("none")
                    continue
                middle[name][key] = median(abs(v) for v in values)
                cells.append(_spread(values, digits))
            said = [r["verdict"] for r in mine if r["verdict"]]
            cells.append(", ".join(said) if said else "none")
            lines.append(f"| {name} | {len(mine)} | " + " | ".join(cells) + " |")
        lines += _shares(middle)
        truth = [r["truth"] for r in rows]
        late = max(t["p99_late_ms"] for t in truth)
        lines.append(
            f"\nServer: p99 lateness of a step at most {late:.2f} ms, worst"
            f" {max(t['worst_late_ms'] for t in truth):.1f} ms, refused sends"
            f" {sum(t['n_again'] for t in truth)}; load average"
            f" {min(r['load_average'] for r in rows):.1f}"
            f" to {max(r['load_average'] for r in rows):.1f}."
        )
        lines += [
            f"\n{r['client']} failed: {r['failed'][:300]}"
            for r in records
            if r["scenario"] == scenario and "failed" in r
        ]
    return "\n".join(lines)


def _spread(values: list[float], digits: int) -> str:
    low, high = min(values), max(values)
    shown = f"{median(values):,.{digits}f}"
    if len(values) > 1:
        shown += f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return shown


def _shares(middle: dict[str, dict[str, float]]) -> list[str]:
    ours = middle.get(OURS)
    if ours is None:
        return []
    lines = [""]
    for key, goals in _GOALS.items():
        for name, goal in goals.items():
            theirs = middle.get(name, {}).get(key)
            if not theirs or key not in ours:
                continue
            share = ours[key] / theirs
            met = "met" if share <= goal else "missed"
            lines.append(f"- {key}: {share:.4g} of {name}'s; goal {goal:.4g}: {met}")
    return lines


if __name__ == "__main__":
    main()
