import pytest

from stepscope.errors import RecipeError
from stepscope.recipe.estimate import estimate
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.rates import load_words, ramp_rate, work_words
from stepscope.recipe.records import Sweep, Workload

HEAD = 'name = "r"\nengine = "embedded"\n[warm_up]\nblocks = 1\n[workload]\n'
RANDOM = "input_tokens = 32\noutput_tokens = 16\n"


def loaded(workload: str) -> list[tuple[str, Workload]]:
    plan = expand(load_recipe(HEAD + workload, "r.toml"))
    return [
        (c.name, c.workload)
        for launch in plan.launches
        for c in launch.cells
        if not c.warm_up
    ]


def problems(workload: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(HEAD + workload, "r.toml")
    return "\n".join(str(e) for e in (caught.value, *caught.value.also))


def test_each_rate_is_a_point_of_its_own() -> None:
    cells = dict(loaded(RANDOM + 'request_rate = [2, "0.5x2"]\nduration_s = 30\n'))
    assert list(cells) == ["baseline-q2-r0", "baseline-q0.5-r0", "baseline-q0.5-r1"]
    two = cells["baseline-q2-r0"]
    assert (two.request_rate, two.concurrency, two.n_prompts) == (2.0, None, 60)
    assert (two.arrival, two.burstiness) == ("gamma", 1.0)
    assert len({work.seed for work in cells.values()}) == 3


def test_closed_and_open_loops_may_stand_in_one_recipe() -> None:
    cells = dict(
        loaded(
            RANDOM + 'concurrency = [4, "2x2"]\nrequest_rate = [3]\nburstiness = 0.5\n'
        )
    )
    assert list(cells) == [
        "baseline-c4-r0", "baseline-c2-r0", "baseline-q3-r0", "baseline-c2-r1",
    ]  # fmt: skip
    assert cells["baseline-q3-r0"].burstiness == 0.5
    assert cells["baseline-c4-r0"].arrival is None


def test_a_cap_and_even_arrivals_reach_the_cell() -> None:
    ((_, work),) = loaded(
        RANDOM + 'request_rate = [4]\narrivals = "constant"\nmax_concurrency = 7\n'
    )
    assert (work.arrival, work.burstiness, work.max_concurrency) == (
        "constant",
        None,
        7,
    )
    assert load_words(work) == "4 requests/s, evenly, at most 7 in flight"


def test_a_ramp_and_a_replay_are_one_point() -> None:
    ((name, ramp),) = loaded(
        RANDOM + 'arrivals = "linear"\nramp_start_rps = 1\nramp_end_rps = 9\n'
    )
    assert (name, ramp.ramp_rps, ramp.request_rate) == (
        "baseline-ramp-r0",
        (1, 9),
        None,
    )
    ((name, replay),) = loaded(
        'dataset = "mooncake"\ndataset_path = "t.jsonl"\narrivals = "recorded"\n'
        "n_prompts = 50\n"
    )
    assert (name, replay.n_prompts) == ("baseline-replay-r0", 50)
    assert load_words(replay) == "recorded arrivals"
    assert work_words(replay) == "mooncake from t.jsonl"


def test_the_mean_rate_of_a_ramp_is_that_of_its_gaps() -> None:
    n = 100_000
    for kind in ("linear", "exponential"):
        sweep = Sweep(
            concurrency=(), input_tokens=1, output_tokens=1, arrivals=kind,
            ramp_start_rps=2.0, ramp_end_rps=18.0,
        )  # fmt: skip
        rates = [
            2 + 16 * i / n if kind == "linear" else 2 * 9 ** (i / n) for i in range(n)
        ]
        assert ramp_rate(sweep) == pytest.approx(
            n / sum(1 / r for r in rates), rel=1e-3
        )


def test_a_dataset_is_not_in_the_cache_when_it_is_measured() -> None:
    recipe = (
        HEAD + 'dataset = "sharegpt"\ndataset_path = "s.json"\nrequest_rate = [1]\n'
    )
    launch = expand(load_recipe(recipe, "r.toml")).launches[0]
    warm, cell = (c.workload for c in launch.cells)
    assert (warm.dataset, warm.dataset_path) == ("random", None)
    assert (cell.dataset, cell.input_tokens) == ("sharegpt", None)


def test_an_open_loop_takes_as_long_as_its_arrivals() -> None:
    recipe = HEAD + RANDOM + "request_rate = [2]\nduration_s = 600\n"
    guess = estimate(expand(load_recipe(recipe, "r.toml")))
    assert 10 < guess.minutes < 10.5


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (RANDOM, "workload.concurrency: missing"),
        (RANDOM + "request_rate = [0]\n", "request_rate[0]"),
        (RANDOM + 'request_rate = ["2y3"]\n', 'expected R or "RxN"'),
        (RANDOM + 'request_rate = [2, "2x3"]\n', "2 again"),
        (
            RANDOM + "request_rate = [2]\nn_prompts = 5\nduration_s = 3\n",
            "one of the two",
        ),
        (RANDOM + "request_rate = [1000000]\n", "at most 1000000"),
        (RANDOM + 'arrivals = "linear"\n', "ramp_start_rps and ramp_end_rps"),
        (
            RANDOM + 'arrivals = "linear"\nramp_start_rps = 5\nramp_end_rps = 1\n',
            "a rate that rises",
        ),
        (RANDOM + 'arrivals = "recorded"\nn_prompts = 5\n', "a dataset that has times"),
        ('dataset = "custom"\nconcurrency = [1]\n', "workload.dataset_path: missing"),
        (
            RANDOM + 'dataset = "custom"\ndataset_path = "x"\nconcurrency = [1]\n',
            "brings its own prompts",
        ),
        ("concurrency = [1]\n", "workload.input_tokens: missing"),
        (RANDOM + "request_rate = [1]\ninput_range = 1.0\n", "input_range"),
        (RANDOM + "request_rate = [1]\nburstiness = 0\n", "burstiness"),
        (RANDOM + "request_rate = [0.01]\n", "no request comes in 60 s"),
    ],
)
def test_an_impossible_load_is_told_at_its_key(workload: str, told: str) -> None:
    assert told in problems(workload)


@pytest.mark.parametrize(
    "key",
    [
        'arrivals = "constant"',
        "burstiness = 0.5",
        "duration_s = 5",
        "max_concurrency = 5",
        "ramp_start_rps = 1",
    ],
)
def test_a_closed_loop_has_no_keys_of_an_open_one(key: str) -> None:
    told = problems(RANDOM + f"concurrency = [1]\n{key}\n")
    assert f"workload.{key.split(maxsplit=1)[0]}: only an open loop has it" in told
    assert "\n" not in told.strip()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('arrivals = "constant"\nburstiness = 0.5\n', "workload.burstiness"),
        ("ramp_end_rps = 5\n", "workload.ramp_end_rps: no rate rises"),
    ],
)
def test_keys_of_other_arrivals_are_no_silent_wish(keys: str, told: str) -> None:
    assert told in problems(RANDOM + "request_rate = [1]\n" + keys)


def test_a_slip_in_the_name_of_a_dataset_is_one_problem() -> None:
    said = problems(RANDOM + 'concurrency = [1]\ndataset = "randm"\n')
    assert said.count("\n") == 0
    assert said.startswith('r.toml: workload.dataset: "randm"; expected one of')
