"""``capture`` of a recipe: a list of words, or a table."""

import pytest

from stepscope.errors import RecipeError
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Recipe, Tracing

RECIPE = """
name = "r"
engine = "{engine}"
model = "m"
{words}
[[patch]]
name = "eager"
flags = {{ enforce-eager = true }}
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [8, 1, 64]
{table}
"""


def recipe(*, words: str = "", table: str = "", engine: str = "vllm") -> Recipe:
    text = RECIPE.format(words=words, table=table, engine=engine)
    return load_recipe(text, "r.toml")


def test_the_word_trace_takes_one_at_each_end_of_the_sweep() -> None:
    found = recipe(words='capture = ["trace"]')
    assert found.capture == ("trace",)
    assert found.tracing == Tracing(concurrency=(1, 64))


def test_iteration_details_alone_take_no_timeline() -> None:
    assert recipe(words='capture = ["iteration-details"]').tracing is None
    table = recipe(table="[capture]\niteration_details = true")
    assert (table.capture, table.tracing) == (("iteration-details",), None)


def test_a_table_says_where_and_how_long() -> None:
    table = "[capture]\niteration_details = true\nconcurrency = [8]\nseconds = 2"
    found = recipe(table=table)
    assert found.capture == ("iteration-details", "trace")
    assert found.tracing == Tracing(concurrency=(8,), seconds=2.0)


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("[capture]\nconcurrency = [9]", "capture.concurrency"),
        ('[capture]\nconfigurations = ["lazy"]', "capture.configurations"),
        ("[capture]\nsteps = 9\nseconds = 2", "capture.seconds"),
        ("[capture]\nstep = 9", "capture.step"),
    ],
)
def test_what_the_rest_of_the_recipe_can_not_give_is_refused(
    table: str, path: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(table=table)
    assert path in caught.value.where


def test_an_engine_without_a_profiler_is_refused() -> None:
    with pytest.raises(RecipeError, match="vllm and sglang"):
        recipe(words='capture = ["trace"]', engine="llamacpp")


def test_a_timeline_needs_a_number_in_flight() -> None:
    text = RECIPE.format(words='capture = ["trace"]', table="", engine="vllm")
    with pytest.raises(RecipeError, match="closed loop"):
        load_recipe(
            text.replace(
                "concurrency = [8, 1, 64]", "request_rate = [2.0]\nn_prompts = 9"
            ),
            "r.toml",
        )


def test_launches_for_timelines_come_last_and_untraced_loads_first() -> None:
    table = '[capture]\nconcurrency = [1, 8]\nconfigurations = ["eager"]'
    plan = expand(recipe(table=table))
    assert [x.name for x in plan.launches] == [
        "baseline-l0", "eager-l0", "eager-trace-l0",
    ]  # fmt: skip
    assert [x.traced for x in plan.launches] == [False, False, True]
    cells = [c for c in plan.launches[-1].cells if c.capture is not None]
    assert [c.name for c in cells] == [
        "eager-c1-untraced", "eager-c8-untraced", "eager-c1-trace", "eager-c8-trace",
    ]  # fmt: skip
    seeds = [c.workload.seed for x in plan.launches[1:] for c in x.cells]
    assert len(set(seeds)) == len(seeds), "a prefix cache would know a prompt"


def test_nsys_takes_timelines_of_any_engine_that_is_booted() -> None:
    for engine in ("vllm", "sglang", "llamacpp"):
        found = recipe(table='[capture]\ntool = "nsys"', engine=engine)
        assert found.tracing == Tracing(concurrency=(1, 64), tool="nsys")


def test_an_unknown_tool_for_timelines_is_refused() -> None:
    with pytest.raises(RecipeError, match="one of torch, nsys") as caught:
        recipe(table='[capture]\ntool = "ncu"')
    assert caught.value.where.endswith("capture.tool")


def test_an_engine_without_a_profiler_is_shown_the_way_to_nsys() -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(words='capture = ["trace"]', engine="llamacpp")
    assert 'tool = "nsys"' in caught.value.do
