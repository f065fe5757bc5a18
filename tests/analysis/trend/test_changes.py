"""Detection and false alarms of change points, on series whose truth is planted."""

import numpy as np
import pytest

from stepscope.analysis.trend.changes import LEAST_RUNS, drift, levels, shifts

CV = 0.01
N_DRAWS = 60


def series(seed: int, n: int, at: int | None = None, delta: float = 0.0) -> list[float]:
    rng = np.random.default_rng(seed)
    values = 100 * np.exp(rng.normal(0, CV, n))
    if at is not None:
        values[at:] *= 1 + delta
    return [float(v) for v in values]


def test_series_without_a_change_rarely_have_one() -> None:
    wrong = sum(bool(shifts(series(i, 20), 0.05)) for i in range(N_DRAWS))
    assert wrong / N_DRAWS <= 0.10


@pytest.mark.parametrize(("delta", "least"), [(0.03, 0.9), (-0.05, 0.98)])
def test_three_times_the_spread_is_found_where_it_lies(
    delta: float, least: float
) -> None:
    found = 0
    for seed in range(N_DRAWS):
        here = shifts(series(seed, 24, 12, delta), 0.01)
        found += any(abs(s.at - 12) <= 1 for s in here)
    assert found / N_DRAWS >= least


def test_the_size_of_a_change_is_inside_its_interval() -> None:
    held = 0
    for seed in range(N_DRAWS):
        (shift, *_) = shifts(series(seed, 30, 15, 0.05), 0.01)
        held += abs(shift.delta - np.log(1.05)) <= shift.half
    assert held / N_DRAWS >= 0.88


def test_two_changes_are_two() -> None:
    values = series(4, 40, 15, 0.06)
    values[28:] = [v * 0.93 for v in values[28:]]
    found = shifts(values, 0.01)
    assert [s.at for s in found] == pytest.approx([15, 28], abs=1)
    assert found[0].delta > 0 > found[1].delta


def test_a_few_runs_at_the_end_are_enough_of_a_level() -> None:
    (found,) = shifts(series(2, 24, 20, 0.08), 0.01)
    assert found.at == 20


def test_below_twenty_runs_nothing_is_said() -> None:
    assert LEAST_RUNS == 20
    assert shifts(series(1, 19, 10, 0.5), 0.05) == ()
    assert shifts(series(1, 20, 10, 0.5), 0.05)


def test_a_shift_below_a_percent_has_no_name() -> None:
    quiet = [100.0 + 0.001 * (i % 3) + (0.5 if i >= 12 else 0.0) for i in range(24)]
    assert shifts(quiet, 0.05) == ()
    louder = [100.0 + 0.001 * (i % 3) + (1.5 if i >= 12 else 0.0) for i in range(24)]
    assert [s.at for s in shifts(louder, 0.05)] == [12]


def test_equal_values_are_one_level() -> None:
    assert shifts([5.0] * 30, 0.05) == ()
    assert drift(levels([5.0] * 30, [])) is None


def test_the_same_series_gives_the_same_answer() -> None:
    values = series(9, 30, 10, 0.02)
    assert shifts(values, 0.05) == shifts(values, 0.05)


def test_drift_is_seen_and_levels_are_not_mistaken_for_it() -> None:
    rng = np.random.default_rng(5)
    walk = np.exp(np.cumsum(rng.normal(0, CV, 40)))
    wandering = drift(levels([float(v) for v in walk], []))
    assert wandering is not None
    assert wandering > 0.5
    stepped = drift(levels(series(6, 40, 20, 0.2), [20]))
    assert stepped is not None
    assert abs(stepped) < 0.4
