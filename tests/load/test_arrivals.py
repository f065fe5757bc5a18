import math

import numpy as np
import pytest

from stepscope.errors import RecipeError
from stepscope.load.arrivals import Arrivals, Pace, pace, schedule
from stepscope.recipe.records import Arrival

S = 1_000_000_000


def gaps_s(arrivals: Arrivals, n: int = 20_000, seed: int = 1) -> np.ndarray:
    due = schedule(arrivals, n, seed)
    return np.diff(due, prepend=0) / S


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert schedule(Arrivals(kind="constant", rate=4.0), 4, 7).tolist() == [
        S // 4, S // 2, 3 * S // 4, S,
    ]  # fmt: skip


def test_a_gamma_of_infinite_shape_is_constant() -> None:
    even = schedule(Arrivals(kind="constant", rate=3.0), 50, 0)
    also = schedule(Arrivals(kind="gamma", rate=3.0, burstiness=math.inf), 50, 0)
    assert even.tolist() == also.tolist()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_the_variation_of_their_shape(burstiness: float) -> None:
    gaps = gaps_s(Arrivals(kind="gamma", rate=20.0, burstiness=burstiness))
    assert gaps.mean() == pytest.approx(1 / 20, rel=1e-6)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1 / burstiness, rel=0.1)
    assert (gaps >= 0).all()


def test_poisson_counts_vary_as_they_should() -> None:
    due = schedule(Arrivals(kind="gamma", rate=100.0), 50_000, 3) / S
    counts = np.bincount(due.astype(int))[:-1]
    assert counts.mean() == pytest.approx(100, rel=0.01)
    assert counts.var() == pytest.approx(100, rel=0.25)


def test_at_a_fixed_rate_the_last_request_is_due_at_n_over_rate() -> None:
    for burstiness in (0.3, 1.0, 10.0):
        due = schedule(Arrivals(kind="gamma", rate=8.0, burstiness=burstiness), 100, 5)
        assert due[-1] == pytest.approx(12.5 * S, abs=2)
        assert (np.diff(due) >= 0).all()


def test_a_schedule_is_its_seeds_and_nothing_elses() -> None:
    arrivals = Arrivals(kind="gamma", rate=5.0)
    assert schedule(arrivals, 30, 1).tolist() == schedule(arrivals, 30, 1).tolist()
    assert schedule(arrivals, 30, 1).tolist() != schedule(arrivals, 30, 2).tolist()


@pytest.mark.parametrize("kind", ["linear", "exponential"])
def test_a_ramp_goes_from_its_first_rate_to_its_last(kind: Arrival) -> None:
    arrivals = Arrivals(
        kind=kind,
        burstiness=math.inf,
        start_rps=2.0,
        end_rps=32.0,
    )
    rates = 1 / gaps_s(arrivals, 1_001)
    assert rates[0] == pytest.approx(2.0, rel=1e-6)
    assert rates[-1] == pytest.approx(32.0, rel=1e-5)
    middle = 17.0 if kind == "linear" else 8.0
    assert rates[500] == pytest.approx(middle, rel=1e-5)


def test_a_linear_ramp_may_begin_at_nothing() -> None:
    due = schedule(Arrivals(kind="linear", start_rps=0.0, end_rps=10.0), 100, 1)
    assert (np.diff(due) >= 0).all()
    assert due[0] < 100 * S


def test_recorded_times_begin_at_nought_and_can_be_stretched() -> None:
    recorded = np.array([5 * S, 6 * S, 9 * S])
    arrivals = Arrivals(kind="recorded", scale=0.5)
    assert schedule(arrivals, 3, 0, recorded.tolist()).tolist() == [0, S // 2, 2 * S]


def test_pace_says_what_is_due_and_how_long_to_wait() -> None:
    due = np.array([10, 20, 20, 50])
    assert pace(due, 0, 0) == Pace(n_due=0, wait_ns=10)
    assert pace(due, 10, 0) == Pace(n_due=1, wait_ns=10)
    assert pace(due, 25, 1) == Pace(n_due=2, wait_ns=25)
    assert pace(due, 60, 3) == Pace(n_due=1, wait_ns=None)
    assert pace(due, 60, 4) == Pace(n_due=0, wait_ns=None)


def test_pace_walks_through_any_schedule_without_losing_a_request() -> None:
    due = schedule(Arrivals(kind="gamma", rate=100.0, burstiness=0.2), 500, 9)
    at, n_sent, steps = 0, 0, 0
    while n_sent < len(due):
        step = pace(due, at, n_sent)
        n_sent += step.n_due
        at += step.wait_ns or 0
        steps += 1
    assert steps <= len(due) + 1
    assert at == due[-1]


@pytest.mark.parametrize(
    "arrivals",
    [
        Arrivals(kind="gamma"),
        Arrivals(kind="gamma", rate=0.0),
        Arrivals(kind="gamma", rate=math.inf),
        Arrivals(kind="gamma", rate=1.0, burstiness=0.0),
        Arrivals(kind="gamma", rate=1.0, burstiness=math.nan),
        Arrivals(kind="linear", start_rps=1.0),
        Arrivals(kind="linear", start_rps=5.0, end_rps=1.0),
        Arrivals(kind="exponential", start_rps=0.0, end_rps=1.0),
        Arrivals(kind="recorded", scale=0.0),
    ],
)
def test_what_can_not_be_scheduled_is_refused(arrivals: Arrivals) -> None:
    with pytest.raises(RecipeError):
        arrivals.check()
