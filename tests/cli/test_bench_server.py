"""The server's own TPOT beside the client's, in the table and in the saved result."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_bench import MODELS, quick
from tests.load.scripted import Exchange, Script, ScriptedServer, answer

#: No answer here takes so long a token, so that the gap is near -100 % on any machine.
CLAIMED_MS = 1e6


class Pages(dict[str, bytes]):
    """What the server says beside answers; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(MODELS)
        self.asked: list[str] = []

    def get(self, path: str, *default: Any) -> Any:
        self.asked.append(path)
        return super().get(path, *default)


class Counting:
    """Answers, and counts each request in its metrics as vLLM does."""

    def __init__(self, pages: Pages, *, each: int = 1) -> None:
        self._pages, self._each, self._n = pages, each, 0
        self._lock = threading.Lock()
        self.tell(0)

    def tell(self, n: int) -> None:
        name = "vllm:request_time_per_output_token_seconds"
        half, rest = n // 2, n - n // 2
        self._pages["/metrics"] = (
            f'{name}_count{{engine="0"}} {half}.0\n'
            f'{name}_count{{engine="1"}} {rest}.0\n'
            f'{name}_sum{{engine="0"}} {half * CLAIMED_MS / 1e3}\n'
            f'{name}_sum{{engine="1"}} {rest * CLAIMED_MS / 1e3}\n'
        ).encode()

    def __call__(self, exchange: Exchange) -> None:
        with self._lock:
            self._n += self._each
            self.tell(self._n)
        exchange.write(answer())


def run(
    tmp_path: Path, pages: Pages, script: Script
) -> "tuple[subprocess.CompletedProcess[str], dict[str, Any]]":
    where = ("--result-dir", str(tmp_path), "--result-filename", "r.json")
    with ScriptedServer(script, pages) as server:
        done = quick(server, "--save-result", *where)
    assert done.returncode == 0, done.stderr
    return done, json.loads((tmp_path / "r.json").read_text())


def test_a_gap_is_a_row_of_the_table_a_part_of_the_result_and_a_finding(
    tmp_path: Path,
) -> None:
    pages = Pages()
    done, saved = run(tmp_path, pages, Counting(pages))
    own = saved["server"]
    assert own["n_requests"] == 6  # neither the probe nor the warm-up
    assert own["tpot_ms"] == pytest.approx(CLAIMED_MS)
    assert own["client_tpot_ms"] == saved["mean_tpot_ms"]
    gap = 100 * (saved["mean_tpot_ms"] / CLAIMED_MS - 1)
    assert own["tpot_error_pct"] == pytest.approx(gap)
    assert "Server's own mean TPOT (ms):             1000000.00 (ours -100.0 %)" in (
        done.stdout
    )
    codes = [f["code"] for f in saved["findings"]]
    assert "tpot-below-server" in codes
    assert "tpot-below-server: the client's mean TPOT is 100.0 % below" in done.stderr
    assert "Go by E2EL" in done.stderr
    assert pages.asked.count("/metrics") == 2


def test_a_load_beside_ours_is_told_with_both_counts(tmp_path: Path) -> None:
    pages = Pages()
    done, saved = run(tmp_path, pages, Counting(pages, each=2))
    assert saved["server"]["tpot_error_pct"] is None
    why = "it counted 12 requests meanwhile, and 6 came here"
    assert saved["server"]["not_held"] == why
    assert f"  not held against ours: {why}" in done.stdout
    assert "server-tpot-not-held: the server's own TPOT is not held" in done.stderr


def test_a_server_without_metrics_leaves_it_unknown_and_is_no_finding(
    tmp_path: Path,
) -> None:
    done, saved = run(tmp_path, Pages(), lambda e: e.write(answer()))
    assert "Server's own mean TPOT (ms):             unknown" in done.stdout
    assert "it says nothing at /metrics" in done.stdout
    assert saved["server"]["tpot_ms"] is None
    assert set(saved["server"]) == {
        *("tpot_ms", "tpot_error_pct", "client_tpot_ms", "weighted_by"),
        *("n_requests", "n_tokens", "metric", "not_held"),
    }
    assert not [f for f in saved["findings"] if "server" in f["code"]]
