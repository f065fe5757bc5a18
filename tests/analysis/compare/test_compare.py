from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from tests.analysis.compare.made import ROWS, arm, compared

from stepscope.analysis.across.power import power, runs_needed, sd_upper
from stepscope.analysis.records import CellResult

Make = Callable[..., CellResult]


def test_a_planted_difference_is_found_in_the_right_direction(result_of: Make) -> None:
    rng = np.random.default_rng(1)
    base, fast = arm(result_of, "a", 0, 4, rng), arm(result_of, "b", 0.08, 4, rng)
    found, notes = compared(base + fast)
    assert {c.verdict for c in found} == {"faster"}
    intervals = [c.ci95_pct for c in found if c.ci95_pct is not None]
    hits = [low < 100 * np.expm1(0.08) < high for low, high in intervals]
    # Six intervals of 95 %: one may miss.
    assert len(hits) == 6
    assert sum(hits) >= 5
    assert notes == []
    assert {c.verdict for c in compared(fast + base)[0]} == {"slower"}


def test_a_lower_tpot_is_faster(result_of: Make) -> None:
    rng = np.random.default_rng(1)
    cells = [
        result_of(
            name=f"{name}-r{i}",
            configuration=name,
            tpot_ms=ms + float(rng.normal(0, 0.01)),
        )
        for name, ms in (("a", 10.0), ("b", 9.0))
        for i in range(3)
    ]
    (one,) = compared(cells)[0]
    assert (one.metric, one.verdict) == ("tpot_ms", "faster")


def test_one_run_an_arm_is_undetermined_whatever_the_difference(
    result_of: Make,
) -> None:
    rng = np.random.default_rng(1)
    cells = arm(result_of, "a", 0, 1, rng) + arm(result_of, "b", 0.5, 1, rng)
    for one in compared(cells)[0]:
        assert one.verdict == "undetermined"
        assert one.ci95_pct is None
        assert one.runs_needed is None
        assert one.delta_pct == pytest.approx(65, abs=5)


def test_a_against_a_says_no_difference(result_of: Make) -> None:
    rng = np.random.default_rng(17)
    n, wrong, rows = 60, 0, 0
    for _ in range(n):
        cells = arm(result_of, "a", 0, 3, rng) + arm(result_of, "b", 0, 3, rng)
        verdicts = [c.verdict for c in compared(cells)[0]]
        wrong += any(v in ("faster", "slower") for v in verdicts)
        rows += len(verdicts)
    assert rows == n * len(ROWS)
    # Holm keeps a whole sweep at 5 %: 3 of 60 are expected, 9 nearly never.
    assert wrong < 9


@pytest.mark.slow
def test_a_against_a_keeps_five_percent_over_a_thousand_sweeps(result_of: Make) -> None:
    rng = np.random.default_rng(23)
    wrong = 0
    for _ in range(1000):
        cells = arm(result_of, "a", 0, 3, rng) + arm(result_of, "b", 0, 3, rng)
        verdicts = {c.verdict for c in compared(cells)[0]}
        wrong += bool(verdicts & {"faster", "slower"})
    assert 20 <= wrong <= 75


def test_equal_arms_with_little_noise_are_the_same(result_of: Make) -> None:
    rng = np.random.default_rng(2)
    cells = arm(result_of, "a", 0, 5, rng, cv=0.003)
    cells += arm(result_of, "b", 0, 5, rng, cv=0.003)
    assert {c.verdict for c in compared(cells)[0]} == {"same"}


def test_noise_that_hides_the_margin_asks_for_more_runs(result_of: Make) -> None:
    rng = np.random.default_rng(3)
    cells = arm(result_of, "a", 0, 3, rng, cv=0.04)
    cells += arm(result_of, "b", 0.01, 3, rng, cv=0.04)
    found = [c for c in compared(cells)[0] if c.verdict == "undetermined"]
    assert len(found) >= 4
    assert all(c.runs_needed is not None and c.runs_needed > 3 for c in found)


def test_sessions_are_never_compared_raw(result_of: Make) -> None:
    rng = np.random.default_rng(4)
    cells = arm(result_of, "a", 0, 3, rng)
    cells += arm(result_of, "b", 0.2, 3, rng, session="s1")
    found, notes = compared(cells)
    assert found == ()
    assert [f.code for f in notes] == ["cross-session"]


def test_a_single_start_is_said_beside_a_verdict(result_of: Make) -> None:
    rng = np.random.default_rng(5)
    cells = arm(result_of, "a", 0, 3, rng)
    cells += [
        msgspec.structs.replace(c, launch="b-l0")
        for c in arm(result_of, "b", 0.1, 3, rng)
    ]
    (note,) = compared(cells)[1]
    assert note.code == "one-launch"
    assert note.message.startswith("b: measured on a single server start")


def test_configurations_that_move_alike_blame_the_baseline(result_of: Make) -> None:
    rng = np.random.default_rng(6)
    cells = arm(result_of, "a", 0, 1, rng, rows=(1024,), cv=0.001)
    for name, effect in (("b", 0.06), ("c", 0.05)):
        cells += arm(result_of, name, effect, 1, rng, rows=(1024,), cv=0.001)
    codes = [f.code for f in compared(cells)[1]]
    assert codes == ["shared-baseline"]


def test_a_row_of_anomalous_cells_gets_no_verdict(result_of: Make) -> None:
    rng = np.random.default_rng(7)
    base = arm(result_of, "a", 0, 3, rng)
    cells = base + arm(result_of, "b", 0.3, 3, rng)
    flagged = frozenset(c.name for c in base if c.concurrency == 16)
    verdicts = {c.concurrency: c.verdict for c in compared(cells, flagged)[0]}
    assert verdicts.pop(16) == "undetermined"
    assert set(verdicts.values()) == {"faster"}


@pytest.mark.parametrize(
    ("cv", "effect", "runs"),
    [
        (0.01, 0.01, 17), (0.01, 0.02, 6), (0.01, 0.03, 4), (0.01, 0.05, 3),
        (0.005, 0.01, 6), (0.02, 0.01, 64), (0.02, 0.03, 9),
    ],
)  # fmt: skip
def test_runs_needed_match_the_exact_table(cv: float, effect: float, runs: int) -> None:
    assert runs_needed(effect, cv) == runs


def test_power_is_the_chance_that_a_simulation_shows() -> None:
    rng = np.random.default_rng(9)
    n, effect, sd = 4, 0.02, 0.01
    a, b = rng.normal(0, sd, (4000, n)), rng.normal(effect, sd, (4000, n))
    pooled = np.sqrt((a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / n)
    shown = np.abs(b.mean(axis=1) - a.mean(axis=1)) / pooled > 2.4469
    assert power(n, effect, sd) == pytest.approx(float(shown.mean()), abs=0.025)


def test_an_effect_out_of_reach_is_none() -> None:
    assert runs_needed(0.0001, 0.05) is None


def test_plans_reckon_with_the_upper_bound_of_the_sd() -> None:
    # One, two, four and nine degrees of freedom: two, three, five and ten runs.
    for df, factor in ((1, 3.95), (2, 2.12), (4, 1.56), (9, 1.29)):
        assert sd_upper(1.0, df) == pytest.approx(factor, abs=0.02)
