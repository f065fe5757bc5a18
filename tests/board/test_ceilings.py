"""What each resource would allow by itself, and what is said of it."""

from functools import cache
from pathlib import Path

import pytest

from stepscope.importers.open import open_any
from stepscope.report.document import AnalyzeDocument, document

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


def test_what_is_not_supported_has_no_next_ceiling() -> None:
    others = [e for e in baseline().board if e.status != "supported"]
    assert others
    assert all(e.next_ceiling is None for e in others)


def test_a_void_cell_gives_no_ceiling() -> None:
    assert not [c for c in baseline().ceilings if c.concurrency == 512]
