"""Percentiles of gaps that are walked and not held."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.run.gaps import GapStatistics, gaps_of, walked

PERCENTILES = (0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0)
Gaps = npt.NDArray[np.int64]


def statistics(parts: Sequence[Gaps]) -> GapStatistics:
    found = GapStatistics()
    for part in parts:
        found.count(part)
    found.want(PERCENTILES)
    for part in reversed(parts):
        found.pick(part)
    found.finish()
    return found


def test_many_gaps_are_walked_twice_and_few_once() -> None:
    walks = []

    def walk_of(n: int) -> list[Gaps]:
        walks.append(n)
        return np.array_split(np.arange(n), 5)

    assert walked(lambda: walk_of(1_000), (50.0,)).percentile_ns(50.0) == 499.5
    assert walked(lambda: walk_of(10**6), (50.0,)).percentile_ns(50.0) == 499_999.5
    assert walks == [1_000, 10**6, 10**6]


def kinds() -> Iterator[tuple[str, Gaps]]:
    rng = np.random.default_rng(1)
    yield "one step's", rng.normal(8e6, 3e3, 600_000).astype(np.int64)
    yield "a burst's, most are nothing", rng.integers(0, 3, 5_000)
    yield "far apart", (10 ** rng.uniform(0, 12, 50_000)).astype(np.int64)
    yield "many, far apart", (10 ** rng.uniform(0, 12, 400_000)).astype(np.int64)
    yield "some run backwards", rng.integers(-9_000, 8_000_000, 700_000)
    yield "all the same", np.full(4_097, 41_000_000)
    yield "very many of the same", np.full(300_000, 41_000_000)
    yield "two", np.array([1, 2**52])
    yield "one", np.array([7])


@pytest.mark.parametrize(("kind", "gaps"), [pytest.param(*k, id=k[0]) for k in kinds()])
def test_they_are_those_of_all_gaps_at_once(kind: str, gaps: Gaps) -> None:
    found = statistics(np.array_split(gaps, 3))
    values = gaps / 1e6
    assert found.n == len(gaps)
    assert (found.least, found.longest) == (gaps.min(), gaps.max())
    assert found.total_ns == gaps.sum()
    assert found.mean_ms == pytest.approx(values.mean(), rel=1e-12)
    assert found.std_ms == pytest.approx(values.std(), rel=1e-9, abs=1e-9)
    for p in PERCENTILES:
        exact = float(np.percentile(values, p))
        assert found.percentile_ms(p) == pytest.approx(exact, rel=1e-12, abs=1e-15)


@given(st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=60))
@settings(max_examples=60)
def test_every_order_statistic_is_one_of_the_gaps(gaps: list[int]) -> None:
    found = statistics([np.array(gaps, np.int64)])
    ordered = sorted(gaps)
    assert found.percentile_ms(0.0) == pytest.approx(ordered[0] / 1e6, rel=1e-15)
    assert found.percentile_ms(100.0) == pytest.approx(ordered[-1] / 1e6, rel=1e-15)
    middle = found.percentile_ms(50.0)
    assert middle is not None
    assert math.isclose(middle, float(np.median(np.array(gaps) / 1e6)), rel_tol=1e-12)


def test_without_gaps_all_of_it_is_unknown() -> None:
    found = statistics(list(gaps_of([b"", np.array([5], "<i8").tobytes()])))
    assert found.n == 0
    assert found.mean_ms is found.std_ms is found.percentile_ms(99.0) is None
