"""Rates: how often is it wrong, how often does an interval hold, how much is found?

The figures of docs/compare.md come from here: ``pytest -m slow -s`` says them.
"""

import sys
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
from tests.analysis.compare.made import arm, whole

from stepscope.analysis.across.power import power
from stepscope.analysis.compare.compare import Compared
from stepscope.analysis.compare.decide import decide
from stepscope.analysis.records import CellResult

pytestmark = pytest.mark.slow
Make = Callable[..., CellResult]
RATE = "output_tokens_per_s"
N = 2000


def say(text: str) -> None:
    """Write a measured figure for whoever runs with -s."""
    sys.stdout.write(f"{text}\n")


def shown(found: Compared) -> bool:
    """Anything that a reader would take for a difference, rows and mean."""
    rows = {c.verdict for c in found.comparisons}
    means = {p.verdict for p in found.pooled}
    return bool((rows | means) & {"faster", "slower"})


def rates(
    make: Make, seed: int, n: int, effects: Sequence[float], runs: int, **how: float
) -> tuple[float, float, float, float]:
    """Part of families with a shown difference, coverage of rows, of means, exit 1."""
    rng = np.random.default_rng(seed)
    wrong, worse = 0, 0
    rows: list[bool] = []
    means: list[bool] = []
    for _ in range(n):
        cells = []
        for i, effect in enumerate((0.0, *effects)):
            cells += arm(make, "abcdef"[i], effect, runs, rng, **how)  # type: ignore[arg-type]
        found = whole(cells)
        wrong += shown(found)
        worse += decide(found, RATE).exit_code == 1
        for b, effect in zip(found.bs, effects, strict=True):
            truth = 100 * np.expm1(effect)
            rows += [
                c.ci95_pct[0] <= truth <= c.ci95_pct[1]
                for c in found.comparisons
                if c.b == b and c.ci95_pct is not None
            ]
            means += [
                p.ci95_pct[0] <= truth <= p.ci95_pct[1]
                for p in found.pooled
                if p.b == b and p.ci95_pct is not None
            ]
    covered = float(np.mean(means)) if means else 1.0  # one row has no mean
    return wrong / n, float(np.mean(rows)), covered, worse / n


CASES: dict[str, tuple[int, dict[str, float]]] = {
    "3 runs of one launch": (3, {"n_launches": 1}),
    "4 launches of one run": (4, {"n_launches": 4}),
    "4 launches, SD 1 % of launches": (4, {"n_launches": 4, "launch_cv": 0.01}),
    "4 launches, SD 3 % of launches": (4, {"n_launches": 4, "launch_cv": 0.03}),
    "2 launches of two runs": (4, {"n_launches": 2, "launch_cv": 0.01}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_against_a_is_shown_to_differ_in_five_of_a_hundred(
    result_of: Make, case: str
) -> None:
    runs, how = CASES[case]
    wrong, rows, means, worse = rates(result_of, 101, N, (0.0,), runs, **how)
    say(
        f"\n{case}: false {100 * wrong:.1f} %, rows covered {100 * rows:.1f} %,"
        f" means {100 * means:.1f} %, exit 1 {100 * worse:.1f} %"
    )
    assert wrong < 0.06
    assert rows == pytest.approx(0.95, abs=0.02)
    assert means == pytest.approx(0.95, abs=0.02)
    assert worse < 0.04


@pytest.mark.parametrize(
    ("starts", "least", "most"),
    [(0.0, 0.0, 0.02), (0.005, 0.0, 0.08), (0.01, 0.1, 0.3)],
)
def test_one_start_of_each_is_right_where_starts_differ_as_is_assumed(
    result_of: Make, starts: float, least: float, most: float
) -> None:
    """0.5 % is assumed. Where starts differ by more, so it is told more often."""
    how = {"n_launches": 1, "launch_cv": starts}
    wrong, rows, _, worse = rates(result_of, 137, 500, (0.0,), 3, **how)
    say(
        f"\none start, SD {starts:.1%}: false {100 * wrong:.1f} %, exit 1"
        f" {100 * worse:.1f} %, intervals hold {100 * rows:.1f} %"
    )
    assert least <= wrong < most


def test_four_configurations_against_one_keep_five_of_a_hundred(
    result_of: Make,
) -> None:
    wrong, rows, means, worse = rates(result_of, 103, 500, (0.0,) * 4, 3)
    # Holm holds each pair's rows together, Dunnett each row's pairs; both at once
    # nothing holds, so a whole run of 24 rows may show somewhat more.
    say(f"\nfour configurations: false {100 * wrong:.1f} %, exit 1 {100 * worse:.1f} %")
    assert wrong < 0.10
    assert rows > 0.96
    assert means > 0.96


def test_dunnett_keeps_a_single_row_of_four_at_five_of_a_hundred(
    result_of: Make,
) -> None:
    how = {"rows": (64,), "n_launches": 5}
    wrong, *_ = rates(result_of, 107, 1000, (0.0,) * 4, 5, **how)  # type: ignore[arg-type]
    say(f"\nfour configurations, one row: false {100 * wrong:.1f} %")
    assert wrong == pytest.approx(0.05, abs=0.02)


def test_rows_of_unlike_spread_keep_their_coverage(result_of: Make) -> None:
    rng = np.random.default_rng(109)
    rows: list[bool] = []
    wrong = 0
    for _ in range(500):
        cells = []
        for name in "ab":
            cells += arm(
                result_of, name, 0.0, 4, rng, cv=0.003, rows=(8, 16, 32), n_launches=1
            )
            cells += arm(
                result_of, name, 0.0, 4, rng, cv=0.03, rows=(64,), n_launches=1
            )
        found = whole(cells)
        wrong += shown(found)
        rows += [
            c.ci95_pct[0] <= 0 <= c.ci95_pct[1]
            for c in found.comparisons
            if c.ci95_pct is not None
        ]
    say(f"\nunlike spread: false {wrong / 5:.1f} %, rows {100 * np.mean(rows):.1f} %")
    assert wrong / 500 < 0.07
    assert np.mean(rows) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("effect", "runs"), [(0.05, 3), (0.03, 4), (0.02, 6)])
def test_a_planted_effect_is_found_as_often_as_was_said(
    result_of: Make, effect: float, runs: int
) -> None:
    """One row, so that neither Holm nor pooling changes the stated power.

    Each run has a start of its own, so that nothing is assumed of starts.
    """
    how = {"rows": (64,), "n_launches": runs}
    found, rows, _, _ = rates(result_of, 113, 1000, (effect,), runs, **how)  # type: ignore[arg-type]
    said = power(runs, effect, 0.01)
    say(f"\n{effect:.0%} with {runs} runs: found {found:.1%}, said {said:.1%}")
    assert found == pytest.approx(said, abs=0.04)
    assert rows == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("turns", "most", "least"), [("ABBA" * 2, 0.2, 0.0), ("A" * 4 + "B" * 4, 1.2, 0.6)]
)
def test_there_and_back_removes_a_linear_drift(
    result_of: Make, turns: str, most: float, least: float
) -> None:
    """1.5 % from the first launch to the last, in a sequence of eight."""
    rng = np.random.default_rng(127)
    deltas = []
    wrong = 0
    for _ in range(300):
        cells = []
        for at, name in enumerate(turns):
            drift = 0.015 * at / (len(turns) - 1)
            one = arm(result_of, name.lower(), drift, 1, rng, n_launches=1)
            number = turns[:at].count(name)
            cells += [
                msgspec.structs.replace(
                    c, launch=f"{name}-l{number}", name=f"{c.name}-{number}"
                )
                for c in one
            ]
        cells.sort(key=lambda c: c.configuration)
        found = whole(cells)
        wrong += shown(found)
        deltas += [c.delta_pct for c in found.comparisons if c.delta_pct is not None]
    bias = abs(float(np.mean(deltas)))
    say(f"\n{turns}: bias {bias:.2f} %, false {wrong / 3:.1f} %")
    assert least <= bias <= most


def test_an_anchor_removes_what_sessions_differ_by(result_of: Make) -> None:
    """Sessions 3 % apart, the anchor and the patch each in one session beside it."""
    rng = np.random.default_rng(131)
    rows: list[bool] = []
    wrong = 0
    for _ in range(500):
        one, two = rng.normal(0, 0.03, 2)
        cells = arm(result_of, "a", one, 3, rng, session="s0", n_launches=1)
        cells += arm(result_of, "anchor", one, 3, rng, session="s0", n_launches=1)
        cells += arm(result_of, "anchor", two, 3, rng, session="s1", n_launches=1)
        cells += arm(result_of, "b", two, 3, rng, session="s1", n_launches=1)
        found = whole(cells)
        mine = [c for c in found.comparisons if c.b == "b"]
        wrong += any(c.verdict in ("faster", "slower") for c in mine)
        rows += [c.ci95_pct[0] <= 0 <= c.ci95_pct[1] for c in mine if c.ci95_pct]
    say(f"\nanchor: false {wrong / 5:.1f} %, rows covered {100 * np.mean(rows):.1f} %")
    assert wrong / 500 < 0.07
    assert np.mean(rows) == pytest.approx(0.955, abs=0.03)


@pytest.mark.parametrize("launch_cv", [0.0, 0.01, 0.03])
def test_rows_that_are_alike_are_called_so(result_of: Make, launch_cv: float) -> None:
    rng = np.random.default_rng(5)
    apart = 0
    for _ in range(300):
        cells = []
        for name in "ab":
            cells += arm(
                result_of, name, 0.0, 4, rng, n_launches=4, launch_cv=launch_cv
            )
        apart += whole(cells).pooled[0].rows_agree is False
    say(f"\nlaunches {launch_cv:.0%}: rows called unlike {apart / 3:.1f} %")
    assert apart / 300 < 0.09
