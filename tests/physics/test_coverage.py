"""How many experts a step reads."""

import pytest
from hypothesis import given, strategies as st

from stepscope.errors import RecipeError
from stepscope.physics.coverage import coverage

experts = st.integers(2, 512)


@given(b=st.floats(0, 1e7), n=experts, k=st.integers(1, 512))
def test_coverage_lies_between_none_and_all(b: float, n: int, k: int) -> None:
    assert 0 <= coverage(b, n, min(k, n)) <= 1


@given(b=st.floats(0, 1e5), more=st.floats(0, 1e5), n=experts)
def test_coverage_never_falls_with_tokens(b: float, more: float, n: int) -> None:
    assert coverage(b + more, n, 1) >= coverage(b, n, 1)


@given(n=experts, k=st.integers(1, 512))
def test_one_token_covers_its_own_experts(n: int, k: int) -> None:
    assert coverage(1, n, min(k, n)) == pytest.approx(min(k, n) / n)


@given(
    shares=st.lists(st.floats(0.01, 100), min_size=4, max_size=64),
    b=st.floats(0, 1e4),
)
def test_skew_never_covers_more_than_uniform_routing(
    shares: list[float], b: float
) -> None:
    n = len(shares)
    if max(shares) * 2 > sum(shares):
        return  # an expert that every token picks: the cap at one is not a share
    assert coverage(b, n, 2, shares) <= coverage(b, n, 2) + 1e-9 or b < 1


def test_an_even_histogram_is_uniform_routing() -> None:
    assert coverage(16, 8, 2, [7] * 8) == pytest.approx(coverage(16, 8, 2))


def test_an_expert_that_is_never_picked_is_never_read() -> None:
    assert coverage(1e6, 4, 1, [1, 1, 1, 0]) == pytest.approx(0.75)


@pytest.mark.parametrize("shares", [[1, 2], [0, 0, 0, 0], [1, 1, 1, -1]])
def test_a_histogram_that_fits_no_model_is_refused(shares: list[float]) -> None:
    with pytest.raises(RecipeError, match="routing histogram"):
        coverage(1, 4, 1, shares)
