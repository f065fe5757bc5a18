"""What each resource would allow by itself, and what is said of it."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stepscope.importers.open import open_any
from stepscope.report.document import AnalyzeDocument, document

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@cache
def baseline() -> AnalyzeDocument:
    return document(open_any(SHARED / "h200x1-qwen3moe-baseline" / "import.toml"))


def test_the_bandwidth_ceiling_is_the_floor_s_own_rate() -> None:
    floors = {p.concurrency: p for p in baseline().floor}
    found = [c for c in baseline().ceilings if c.hypothesis == "bandwidth"]
    assert {c.concurrency for c in found} == {1, 2, 4, 8, 16, 32, 64, 128, 256}
    for ceiling in found:
        if ceiling.concurrency == 32:
            continue  # The floor leaves the cell of broken waves out.
        point = floors[ceiling.concurrency]
        rate = point.seqs_per_rank / point.floor_ms * 1e3
        assert ceiling.output_tokens_per_s == pytest.approx(rate, rel=0.02)
        assert ceiling.times_measured > 1


def test_a_supported_cause_says_what_would_limit_next() -> None:
    (entry,) = [e for e in baseline().board if e.status == "supported"]
    assert entry.hypothesis == "bandwidth"
    assert entry.next_ceiling is not None
    assert "at concurrency 256 is compute" in entry.next_ceiling
    # Bandwidth takes 70 % of the step: that ceiling is out of its reach.
    assert entry.next_ceiling.startswith("However much lifting it gave")


def test_what_is_not_supported_has_no_next_ceiling() -> None:
    others = [e for e in baseline().board if e.status != "supported"]
    assert others
    assert all(e.next_ceiling is None for e in others)


def test_a_void_cell_gives_no_ceiling() -> None:
    assert not [c for c in baseline().ceilings if c.concurrency == 512]


def test_a_step_that_gives_several_tokens_lifts_the_ceiling_of_its_bytes_alone(
    bench: Bench,
) -> None:
    config = (SHARED / "models" / "qwen3moe" / "config.json").read_text()

    def rates(tokens: float) -> dict[str, float]:
        shape = {"asked_input_tokens": 256, "asked_output_tokens": 256}
        result = bench.result(tokens_per_step_and_sequence=tokens, **shape)
        board = bench.board(bench.run(model_config=config), result)
        return {c.hypothesis: c.output_tokens_per_s for c in board.ceilings}

    plain, drafted = rates(1.0), rates(2.5)
    assert drafted["bandwidth"] == pytest.approx(2.5 * plain["bandwidth"])
    assert drafted["compute"] == plain["compute"]


def test_a_cold_first_repeat_does_not_speak_for_its_row() -> None:
    (one,) = [
        c
        for c in baseline().ceilings
        if (c.concurrency, c.hypothesis) == (256, "bandwidth")
    ]
    rates = {c.name: c.output_tokens_per_s for c in baseline().cells}
    assert one.output_tokens_per_s / one.times_measured == pytest.approx(
        rates["c256_1"]
    )


def test_a_clock_limit_has_no_next_ceiling(bench: Bench) -> None:
    config = (SHARED / "models" / "qwen3moe" / "config.json").read_text()
    limited = bench.telemetry(
        throttle_reasons=("sw-power-cap",), sm_clock_mhz=1700.0, sm_clock_max_mhz=1980.0
    )
    cell = bench.result(
        telemetry=limited, asked_input_tokens=256, asked_output_tokens=256
    )
    board = bench.board(bench.run(model_config=config), cell)
    (entry,) = [e for e in board.entries if e.hypothesis == "power"]
    assert any(c.times_measured > 1 for c in board.ceilings)
    assert (entry.status, entry.next_ceiling) == ("supported", None)
