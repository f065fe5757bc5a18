"""A comparison is settled by starts: they are asked for, counted and paid."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.board.planning.test_plan import (
    FREE,
    Judged,
    by_id,
    judged,
    own,
    planned,
)

from stepscope.analysis.analyze import analyze
from stepscope.analysis.compare.records import Comparison
from stepscope.board.judge import judge
from stepscope.board.planning.choose import Budget
from stepscope.board.planning.records import PlanDocument
from stepscope.errors import RefusedError
from stepscope.importers.open import open_any
from stepscope.recipe.loader import load_recipe


@pytest.fixture(scope="module")
def sweep() -> Judged:
    return judged("h200x1-qwen3moe-baseline")


def compared(of: Judged, **over: Any) -> PlanDocument:
    """A patch beside the baseline at 64, with one row that is undetermined."""
    fields: dict[str, Any] = {
        "a": "baseline", "b": "eager", "concurrency": 64,
        "metric": "output_tokens_per_s", "delta_pct": -3.0, "ci95_pct": (-7.0, 1.0),
        "verdict": "undetermined", "runs_needed": 7,
    }  # fmt: skip
    twin = [
        msgspec.structs.replace(c, name=f"eager-{c.name}", configuration="eager")
        for c in of.analysis.cells
        if c.name.startswith("c64")
    ]
    analysis = msgspec.structs.replace(
        of.analysis,
        comparisons=(Comparison(**{**fields, **over}),),
        cells=(*of.analysis.cells, *twin),
    )
    return planned(own(Judged(of.run, analysis, judge(of.run, analysis))), FREE)


def test_launches_that_are_needed_are_launches(sweep: Judged) -> None:
    document = compared(sweep, unit="launch", runs_needed=5, n_a=2, n_b=2)
    (starts,) = by_id(document, "launches")
    assert starts.title.startswith("5 starts of each")
    assert [(s.how, s.kind) for s in starts.settles] == [("decides", "claim")]
    assert document.recipe is not None
    assert load_recipe(document.recipe, "next").n_launches == 5


def test_further_runs_are_each_on_a_start_of_its_own(sweep: Judged) -> None:
    """Three runs on one start; four more take four more starts."""
    document = compared(sweep, runs_needed=7, n_a=3, n_b=3)
    (starts,) = by_id(document, "launches")
    assert "5 starts of each, A B B A, 2 repeats in each" in starts.title


def test_each_start_is_paid_for(sweep: Judged) -> None:
    few, many = (
        by_id(compared(sweep, unit="launch", runs_needed=n), "launches")[0]
        for n in (3, 9)
    )
    assert few.minutes is not None
    assert many.minutes is not None
    assert few.usd is not None
    assert many.usd is not None
    assert many.minutes == pytest.approx(3 * few.minutes, rel=0.01)
    assert many.usd == pytest.approx(3 * few.usd, rel=0.01)


def test_more_starts_than_anybody_takes_are_not_promised(sweep: Judged) -> None:
    document = compared(sweep, unit="launch", runs_needed=23)
    (starts,) = by_id(document, "launches")
    assert [s.how for s in starts.settles] == ["bears-on"]


def test_what_no_number_of_repeats_settles_is_not_repeated(sweep: Judged) -> None:
    document = compared(sweep, runs_needed=None)
    assert not by_id(document, "launches")
    assert any("eager against baseline" in s.what for s in document.left_open)


def test_a_row_without_an_interval_gets_three_starts(sweep: Judged) -> None:
    document = compared(sweep, runs_needed=None, ci95_pct=None)
    (starts,) = by_id(document, "launches")
    assert starts.title.startswith("3 starts of each")


def test_an_import_without_prices_is_not_asked_for_a_table_it_can_not_have(
    sweep: Judged,
) -> None:
    with pytest.raises(RefusedError, match=r"run\.usd_per_gpu_hour in import\.toml"):
        planned(sweep, Budget(None, 5.0))
    said = " ".join(planned(sweep).fill_in)
    assert "run.usd_per_gpu_hour in import.toml" in said
    assert "[cost]" not in said


def test_a_run_of_ours_without_prices_is_asked_for_cost(sweep: Judged) -> None:
    free = own(sweep, own(sweep).run.recipe_text.partition("[cost]")[0])  # type: ignore[union-attr]
    with pytest.raises(RefusedError, match=r"\[cost\]"):
        planned(free, Budget(None, 5.0))


def test_repeats_at_fewer_of_the_same_sizes_are_one_offer() -> None:
    """A ratio needs repeats at both its ends, and a number at one of these."""
    run = open_any(Path(__file__).parents[3] / "examples" / "post")
    analysis = analyze(run)
    document = planned(Judged(run, analysis, judge(run, analysis)))
    sizes = [
        frozenset(c.title.partition("concurrency ")[2].split(", "))
        for c in by_id(document, "repeats")
    ]
    assert frozenset({"512", "1024"}) in sizes
    for one in sizes:
        assert not any(one < other for other in sizes)


def test_runs_are_spread_over_the_starts_of_the_neediest_row(sweep: Judged) -> None:
    document = compared(sweep, unit="launch", runs_needed=9)
    (starts,) = by_id(document, "launches")
    assert "9 starts of each, A B B A, 1 run in each" in starts.title
