import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from stepscope.cli.analyze import analyze
from stepscope.errors import RefusedError
from stepscope.importers.load import load_foreign
from stepscope.report.document import document
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Run

SHARED = Path(__file__).parents[2].parent / "shared"
BASELINE = SHARED / "data/h200x1-qwen3moe-baseline/import.toml"

TOP = {
    "schema", "run", "cells", "step_model", "floor", "boot", "board", "comparisons",
    "solid", "not_solid", "findings",
}  # fmt: skip
CELL = {
    "name", "configuration", "launch", "session", "concurrency", "repeat", "warm_up",
    "valid", "void_reasons", "n_requests", "n_failed", "output_tokens", "duration_s",
    "waves", "occupancy", "little_residual", "output_tokens_per_s", "requests_per_s",
    "steady_output_tokens_per_s", "ttft_ms", "tpot_ms", "itl_ms", "e2el_ms",
    "decode_efficiency", "chunks_per_token", "server_tpot_ms",
    "client_tpot_error_pct", "engine_step_ms", "tokens_per_step_and_sequence",
    "prefill_share_of_steps", "telemetry", "usd_per_million_output_tokens",
}  # fmt: skip
TELEMETRY = {
    "n_samples_total", "n_samples_in_window", "util_pct", "util_spread_points",
    "power_w", "sm_clock_mhz", "sm_active_pct", "dram_bw_pct", "tensor_pct",
    "memory_used_gib", "host_memory_peak_gib", "process_cpu_pct",
}  # fmt: skip
MODEL = {
    "configuration", "kind", "level_ms", "level_ci95_ms", "slope_ms_per_seq",
    "slope_ci95", "knee_seqs_per_rank", "knee_ci95", "asymptote_ms", "toll_share",
    "residual_pct",
}  # fmt: skip
FLOOR = {
    "concurrency", "seqs_per_rank", "coverage", "bytes_per_rank", "floor_ms",
    "step_ms", "times_floor",
}  # fmt: skip


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    encoded = msgspec.json.encode(document(load_foreign(BASELINE)))
    found: dict[str, Any] = json.loads(encoded, parse_constant=_no_nan)
    return found


def _no_nan(word: str) -> float:
    raise AssertionError(f"{word} in the document")


def test_every_key_of_the_contract_is_there(printed: dict[str, Any]) -> None:
    assert set(printed) >= TOP
    assert printed["schema"] == 1
    assert printed["run"]["layout"] | {"dcp": 1} == {
        "tp": 1, "dp": 1, "pp": 1, "ep": 1, "dcp": 1,
    }  # fmt: skip
    for cell in printed["cells"]:
        assert set(cell) >= CELL
        assert set(cell["telemetry"]) >= TELEMETRY
        assert set(cell["ttft_ms"]) >= {"mean", "median", "p90", "p99", "max"}
    assert set(printed["step_model"][0]) >= MODEL
    assert set(printed["floor"][0]) >= FLOOR
    assert set(printed["findings"][0]) >= {
        "code", "severity", "cell", "message", "hint",
    }  # fmt: skip
    assert set(printed["boot"][0]) >= {"launch", "ready", "phases", "ledger", "verdict"}


def test_unknown_is_null(printed: dict[str, Any]) -> None:
    first = next(c for c in printed["cells"] if c["name"] == "c1_0")
    assert first["engine_step_ms"] is None
    assert first["usd_per_million_output_tokens"] is None
    assert first["telemetry"]["dram_bw_pct"] is None


def test_a_document_can_be_made_of_a_run_with_one_broken_cell(
    cell_of: Callable[..., Cell],
    run_of: Callable[..., Run],
    served: Callable[..., tuple[Request, ...]],
) -> None:
    run = run_of(
        cell_of(served(64, 8)),
        cell_of(name="base-c16-r0", status="failed", failure="died", n_prompts=64),
    )
    found = document(run)
    assert [c.status for c in found.cells] == ["done", "failed"]
    assert found.cells[1].output_tokens is None


def test_the_command_prints_one_document_and_nothing_else() -> None:
    result = CliRunner().invoke(analyze, [str(BASELINE), "--json"])
    assert result.exit_code == 0
    assert result.stderr == ""
    assert json.loads(result.stdout)["schema"] == 1


def test_a_run_with_nothing_in_it_is_refused(
    tmp_path: Path, run_of: Callable[..., Run]
) -> None:
    from stepscope.archive.writer import RunWriter

    RunWriter.create(tmp_path / "empty", run_of()).close(complete=True)
    result = CliRunner().invoke(analyze, [str(tmp_path / "empty")])
    assert isinstance(result.exception, RefusedError)
    assert result.exception.exit_code == 5
