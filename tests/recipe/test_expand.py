"""Order, names and seeds of a plan; selecting; the estimate."""

import pytest

from stepscope.errors import RecipeError
from stepscope.recipe.estimate import estimate
from stepscope.recipe.expand import Order, expand, select
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Plan

RECIPE = """
name = "x"
engine = "vllm"
model = "m"
[[patch]]
name = "eager"
flags = { enforce-eager = true }
[workload]
input_tokens = 100
output_tokens = 50
concurrency = [1, "4x3", "8x2"]
[warm_up]
blocks = 2
[cost]
usd_per_gpu_hour = 4
n_gpus = 2
"""


def plan(text: str = RECIPE) -> Plan:
    return expand(load_recipe(text, "r.toml"))


def names(of: Plan) -> list[str]:
    return [cell.name for launch in of.launches for cell in launch.cells]


def test_warm_ups_come_first_and_rounds_go_there_and_back() -> None:
    assert names(plan()) == [
        "baseline-warm0", "baseline-warm1",
        "baseline-c1-r0", "baseline-c4-r0", "baseline-c8-r0",
        "baseline-c8-r1", "baseline-c4-r1",
        "baseline-c4-r2",
        "eager-warm0", "eager-warm1",
        "eager-c1-r0", "eager-c4-r0", "eager-c8-r0",
        "eager-c8-r1", "eager-c4-r1",
        "eager-c4-r2",
    ]  # fmt: skip
    assert [x.name for x in plan().launches] == ["baseline-l0", "eager-l0"]


def test_cells_are_whole_waves_and_warm_ups_one_wave_of_the_largest() -> None:
    cells = {c.name: c for c in plan().launches[0].cells}
    assert cells["baseline-c4-r1"].workload.n_prompts == 8
    warm = cells["baseline-warm0"]
    assert warm.warm_up
    assert (warm.workload.concurrency, warm.workload.n_prompts) == (8, 8)


def test_a_literal_number_of_prompts_replaces_waves() -> None:
    cells = plan(RECIPE.replace("[warm_up]", "n_prompts = 100\n[warm_up]"))
    assert {c.workload.n_prompts for c in cells.launches[0].cells if not c.warm_up} == {
        100
    }


def test_launches_take_turns_and_repeats_count_on() -> None:
    twice = plan(RECIPE.replace('model = "m"', 'model = "m"\nn_launches = 2'))
    assert [x.name for x in twice.launches] == [
        "baseline-l0", "eager-l0", "eager-l1", "baseline-l1",
    ]  # fmt: skip
    last = [c.name for c in twice.launches[3].cells]
    assert last[:5] == [
        "baseline-warm2", "baseline-warm3",
        "baseline-c1-r1", "baseline-c4-r3", "baseline-c8-r2",
    ]  # fmt: skip
    assert len(set(names(twice))) == len(names(twice))


def test_no_two_cells_of_a_configuration_share_prompts_and_pairs_do() -> None:
    twice = plan(RECIPE.replace('model = "m"', 'model = "m"\nn_launches = 2'))
    seeds: dict[str, list[int | None]] = {"baseline": [], "eager": []}
    by_name: dict[str, int | None] = {}
    for launch in twice.launches:
        for cell in launch.cells:
            seeds[cell.configuration].append(cell.workload.seed)
            by_name[cell.name] = cell.workload.seed
    assert len(set(seeds["baseline"])) == len(seeds["baseline"])
    assert by_name["baseline-c4-r3"] == by_name["eager-c4-r3"]


def test_what_the_sweep_says_reaches_every_cell() -> None:
    said = 'ignore_eos = false\ntemperature = 0\nendpoint = "/v1/chat/completions"'
    text = RECIPE.replace("[warm_up]", f"{said}\n[warm_up]")
    for cell in plan(text).launches[0].cells:
        assert not cell.workload.ignore_eos
        assert cell.workload.temperature == 0.0
        assert cell.workload.endpoint == "/v1/chat/completions"
        assert (cell.workload.input_tokens, cell.workload.output_tokens) == (100, 50)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("eager", ["eager"]),
        ("eager-l0", ["eager"]),
        ("*-l0", ["baseline", "eager"]),
    ],
)
def test_a_configuration_or_launch_is_kept_whole(
    only: str, expected: list[str]
) -> None:
    kept = select(plan(), only)
    assert [x.configuration.name for x in kept.launches] == expected
    assert all(len(x.cells) == 8 for x in kept.launches)


def test_a_cell_is_kept_with_the_warm_ups_before_it() -> None:
    assert names(select(plan(), "eager-c8-*")) == [
        "eager-warm0", "eager-warm1", "eager-c8-r0", "eager-c8-r1",
    ]  # fmt: skip
    assert names(select(plan(), "eager-warm1")) == ["eager-warm1"]


def test_a_selected_cell_keeps_its_prompts() -> None:
    (launch,) = select(plan(), "baseline-c8-r1").launches
    whole = {c.name: c for c in plan().launches[0].cells}
    assert launch.cells[-1] == whole["baseline-c8-r1"]


def test_selecting_nothing_lists_what_there_is() -> None:
    with pytest.raises(RecipeError) as caught:
        select(plan(), "egaer")
    text = str(caught.value)
    assert '"egaer"' in text
    for name in ("baseline", "eager", "eager-l0", "baseline-c4-r2"):
        assert name in text


def test_an_estimate_is_the_sum_of_its_stated_parts() -> None:
    guess = estimate(plan(), boot_s=60, step_ms=10)
    launch = guess.launches[0]
    # A wave of C: C x 100 tokens at 10,000 a second, then 50 steps of 10 ms.
    wave_s = {c: c * 100 / 10_000 + 0.5 for c in (1, 4, 8)}
    expected = 2 * wave_s[8] + 2 * (wave_s[1] + 3 * wave_s[4] + 2 * wave_s[8]) + 8
    assert launch.load_s == pytest.approx(expected)
    assert launch.boot_s == 60
    assert launch.n_requests == 2 * 8 + 2 * (1 + 3 * 4 + 2 * 8)
    assert launch.output_tokens == 50 * launch.n_requests
    assert guess.minutes == pytest.approx(2 * (60 + expected) / 60)
    assert guess.usd == pytest.approx(8 * guess.minutes / 60)
    assert "a boot takes 60 s (given)" in guess.assumptions


def test_an_estimate_says_what_was_guessed_and_knows_no_price() -> None:
    free = estimate(plan(RECIPE.split("[cost]", maxsplit=1)[0]))
    assert free.usd is None
    assert free.launches[0].usd is None
    assert any("(guessed)" in line for line in free.assumptions)
    assert not any("(given)" in line for line in free.assumptions)


@pytest.mark.parametrize(
    ("order", "n", "turns"),
    [
        ("abba", 1, "A B"),
        ("abba", 2, "A B B A"),
        ("abba", 3, "A B B A B A"),
        ("abba", 4, "A B B A A B B A"),
        ("interleaved", 2, "A B A B"),
        ("sequential", 2, "A A B B"),
    ],
)
def test_launches_of_configurations_take_turns(
    order: Order, n: int, turns: str
) -> None:
    text = RECIPE.replace('model = "m"', f'model = "m"\nn_launches = {n}')
    launches = expand(load_recipe(text, "r.toml"), order).launches
    words = ["A" if x.configuration.name == "baseline" else "B" for x in launches]
    assert " ".join(words) == turns
    assert len({x.name for x in launches}) == 2 * n
