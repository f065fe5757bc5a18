"""A cell on a Ray cluster of two nodes of this machine; a program of its own.

    python ray_cell.py BASE_URL FOLDER N_PROMPTS CONCURRENCY [lose|elsewhere]

Prints what came back as JSON. ``lose``: once the folder holds ``lose-now``, the second
node is killed. ``elsewhere``: the second node has another address, and what a preflight
says of the base URL is all that is printed.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import msgspec
from ray.cluster_utils import Cluster

from stepscope.clock import SystemClock
from stepscope.errors import RecipeError
from stepscope.load.drive import drive
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadSpec, check_workers


def lose(cluster: Cluster, node: object, folder: Path) -> None:
    while not (folder / "lose-now").exists():
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)


def main() -> None:
    url, where, n_prompts, concurrency, *words = sys.argv[1:]
    folder = Path(where)
    journals = folder / "cell"
    journals.mkdir()
    room: dict[str, object] = {
        "num_cpus": 1,
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args=room)
    room.pop("include_dashboard")
    if words == ["elsewhere"]:
        room["node_ip_address"] = "127.0.0.2"
    second = cluster.add_node(**room)
    os.environ["RAY_ADDRESS"] = cluster.address
    if words == ["elsewhere"]:
        told = {"error": ""}
        try:
            check_workers("ray", (url,))
        except RecipeError as error:
            told["error"] = str(error)
        sys.stdout.write(f"{json.dumps(told)}\n")
        cluster.shutdown()
        return
    if words:
        threading.Thread(
            target=lose, args=(cluster, second, folder), daemon=True
        ).start()
    spec = LoadSpec(
        base_url=url, model="m", n_prompts=int(n_prompts), concurrency=int(concurrency),
        input_tokens=4, output_tokens=4, workers="ray",
    )  # fmt: skip
    result = drive(spec, journals, clock=SystemClock())
    requests = read_requests(journals)
    found = {
        "result": msgspec.to_builtins(result),
        "by_worker": {w: sum(r.worker == w for r in requests) for w in (0, 1)},
        "ok": sorted(r.index for r in requests if r.ok),
        "failures": [r.failure for r in requests if not r.ok],
        "early_ns": result.started_at_ns - min(r.sent_at_ns for r in requests),
        "late_ns": max(r.ended_at_ns for r in requests) - result.ended_at_ns,
    }
    sys.stdout.write(f"{json.dumps(found)}\n")
    cluster.shutdown()


if __name__ == "__main__":
    main()
