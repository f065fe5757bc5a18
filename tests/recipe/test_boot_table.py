"""The recipe's word on boots that fail."""

import pytest

from stepscope.errors import RecipeError
from stepscope.recipe.loader import load_recipe

RECIPE = """
name = "r"
engine = "embedded"
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [1]
"""


def test_nothing_is_retried_unless_the_recipe_says_so() -> None:
    assert load_recipe(RECIPE, "r.toml").boot.retry == 0
    assert load_recipe(RECIPE + "[boot]\nretry = 3\n", "r.toml").boot.retry == 3


@pytest.mark.parametrize("value", ["6", "-1", "true", '"1"', "1.0"])
def test_a_number_of_retries_is_small_and_whole(value: str) -> None:
    with pytest.raises(RecipeError, match="a whole number from 0 to 5"):
        load_recipe(f"{RECIPE}[boot]\nretry = {value}\n", "r.toml")


def test_where_nothing_boots_nothing_is_retried() -> None:
    text = RECIPE.replace('"embedded"', '"url"\nmodel = "m"')
    text += '[server]\nbase_url = "http://127.0.0.1:1"\n[boot]\nretry = 1\n'
    with pytest.raises(RecipeError, match="engine url boots nothing"):
        load_recipe(text, "r.toml")
