"""The same worker on the nodes of a Ray cluster; needs Ray (the extra ``ray``)."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.load.scripted import HEAD, Exchange, ScriptedServer, answer, chunk, text

from stepscope.load.journal import read_requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stepscope[ray]'",
    ),
]

_CHECK = (
    "from stepscope.load.spec import check_workers;"
    "check_workers('ray', ('http://192.0.2.9:9',))"
)
PROGRAM = Path(__file__).parent / "ray_cell.py"


def cell(
    url: str, folder: Path, *words: str, beside: Callable[[], None] | None = None
) -> dict[str, Any]:
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), url, str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
    )
    if beside is not None:
        threading.Thread(target=beside, daemon=True).start()
    said, errors = program.communicate(timeout=240)
    assert program.returncode == 0, errors.decode()[-2000:]
    assert len(said.splitlines()) == 1, said.decode()[-2000:]
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def test_two_nodes_make_one_cell(tmp_path: Path) -> None:
    with ScriptedServer(lambda e: e.write(answer())) as server:
        found = cell(server.url, tmp_path, "60", "4")
    result = found["result"]
    assert found["ok"] == list(range(60))
    assert found["by_worker"] == {"0": 30, "1": 30}
    assert (result["n_ok"], result["n_failed"], result["lost_workers"]) == (60, 0, 0)
    nodes = result["health"]["nodes"]
    # A loop's timers may ring some milliseconds before their time.
    slack_ns = 5e6 + 1e6 * max(n["clock_error_ms"] for n in nodes)
    assert max(found["early_ns"], found["late_ns"]) < slack_ns
    assert [n["workers"] for n in nodes] == [[0], [1]]
    for node in nodes:  # one machine: its clock is our clock, and the bound must know
        assert abs(node["clock_offset_ms"]) <= node["clock_error_ms"] < 1_000
        assert node["verdict"] in {"ok", "limited"}
    assert [f["code"] for f in result["findings"]] == ["clocks-aligned"]


def test_a_lost_node_loses_only_what_it_had_not_finished(tmp_path: Path) -> None:
    n_answered = 10

    def script(exchange: Exchange) -> None:
        if exchange.number < n_answered:
            exchange.write(answer())
        else:
            exchange.write(HEAD + chunk(text("a")))
            exchange.hold()

    def lose_it_when_all_came_back() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if sum(r.ok for r in read_requests(tmp_path / "cell")) == n_answered:
                (tmp_path / "lose-now").touch()
                time.sleep(5)
                server.stop()
                return
            time.sleep(0.1)

    with ScriptedServer(script) as server:
        found = cell(
            *(server.url, tmp_path, "40", "4", "lose"),
            beside=lose_it_when_all_came_back,
        )
    result = found["result"]
    assert len(found["ok"]) == n_answered
    assert result["n_ok"] == n_answered
    assert result["lost_workers"] == 1
    codes = [f["code"] for f in result["findings"]]
    assert codes == ["clocks-aligned", "client-worker-lost"]
    verdicts = [n["verdict"] for n in result["health"]["nodes"]]
    assert verdicts.count("lost") == 1
    lost = next(n for n in result["health"]["nodes"] if n["verdict"] == "lost")
    assert lost["clock_error_ms"] is None


def test_a_loopback_address_is_refused_where_nodes_are_elsewhere(
    tmp_path: Path,
) -> None:
    found = cell("http://127.0.0.1:9", tmp_path, "1", "1", "elsewhere")
    assert "each node's own, and Ray has nodes at 127.0.0.2" in found["error"]
    assert "host in a recipe" in found["error"]
    (other := tmp_path / "other").mkdir()
    assert cell("http://192.0.2.9:9", other, "1", "1", "elsewhere") == {"error": ""}


def test_an_address_where_no_cluster_is_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", _CHECK],
            env=os.environ | {"RAY_ADDRESS": address},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.stderr.splitlines()[-1].startswith("stepscope.errors.SessionError: Ray")
    assert f"RAY_ADDRESS {address}" in done.stderr
