"""Processor lists."""

import pytest
from hypothesis import given, strategies as st

from stepscope.recipe.schema import cpu_set


def test_ranges_and_single_processors_are_joined() -> None:
    assert cpu_set("0-3,8, 10-11") == frozenset({0, 1, 2, 3, 8, 10, 11})


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1-", "-1", "1,,2", "1-2-3", "²", "99999"]
)
def test_what_is_no_list_is_none(text: str) -> None:
    assert cpu_set(text) is None


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=20))
def test_a_written_set_is_read_back(cpus: set[int]) -> None:
    assert cpu_set(",".join(map(str, cpus))) == frozenset(cpus)
