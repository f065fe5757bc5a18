"""A published effect or cause holds only where the evidence says the same."""

from typing import Any, Literal

import pytest

from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis
from stepscope.board.published.check import check_claims
from stepscope.board.records import BoardEntry, Evidence, Scope
from stepscope.run.published import Claim

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
Verdict = Literal["faster", "slower", "same", "undetermined"]


def effect(
    bench: Bench,
    claimed: float,
    verdict: Verdict,
    interval: tuple[float, float] | None,
    metric: str | None = None,
) -> str:
    one = Claim(
        id="c", text="t", configuration="b", against="a", concurrency=16,
        effect_pct=claimed, metric=metric,
    )  # fmt: skip
    found = Comparison(
        a="a", b="b", concurrency=16, metric="output_tokens_per_s", delta_pct=10.0,
        ci95_pct=interval, verdict=verdict, runs_needed=None,
    )  # fmt: skip
    run = bench.run(claims=(one,))
    (told,) = check_claims(run, Analysis(cells=(), comparisons=(found,)), ())
    return told.code


@pytest.mark.parametrize(
    ("claimed", "verdict", "interval", "code"),
    [
        (10.0, "faster", (8.0, 12.0), "claim-holds"),
        (-10.0, "faster", (8.0, 12.0), "claim-differs"),
        (30.0, "faster", (8.0, 12.0), "claim-differs"),
        (5.0, "same", (-1.0, 1.0), "claim-differs"),
        (0.8, "same", (-1.0, 1.0), "claim-not-shown"),
        (5.0, "undetermined", (-9.0, 12.0), "claim-not-shown"),
        (5.0, "undetermined", None, "claim-not-shown"),
    ],
)
def test_an_effect_holds_only_inside_its_interval(
    bench: Bench,
    claimed: float,
    verdict: Verdict,
    interval: tuple[float, float] | None,
    code: str,
) -> None:
    assert effect(bench, claimed, verdict, interval) == code


def test_an_effect_on_another_figure_is_not_read(bench: Bench) -> None:
    interval = (8.0, 12.0)
    assert effect(bench, 10.0, "faster", interval, "tpot_ms") == "claim-not-shown"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("ruled-out", "claim-differs"),
        ("supported", "claim-holds"),
        ("standing", "claim-not-shown"),
    ],
)
def test_a_cause_that_the_board_excludes_differs(
    bench: Bench, status: Literal["ruled-out", "supported", "standing"], code: str
) -> None:
    claim = Claim(id="c", text="t", hypothesis="compute", status="supported")
    scope = Scope(configuration="base", concurrency_from=16, concurrency_to=16)
    item = Evidence(
        source="base-c16-r0", quantity="q", value=1.0, unit="", reasoning="r"
    )
    entry = BoardEntry(
        hypothesis="compute", scope=scope, status=status, share_of_step_pct=None,
        evidence=(item,), would_decide=None,
    )  # fmt: skip
    run = bench.run(claims=(claim,))
    (told,) = check_claims(run, Analysis(cells=()), (entry,))
    assert told.code == code
