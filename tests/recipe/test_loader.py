"""What a recipe may say, and how a wrong one is answered."""

import re
from pathlib import Path

import pytest

from stepscope.errors import RecipeError
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Configuration

EXAMPLES = Path(__file__).parents[2] / "examples"

SMALL = """
name = "small"
engine = "vllm"
model = "m"
[workload]
input_tokens = 32
output_tokens = 64
concurrency = [1, 2, "512x3"]
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(RecipeError) as caught:
        load_recipe(text, "r.toml")
    assert caught.value.exit_code == 2
    return caught.value.lines()


def only_problem(text: str) -> str:
    lines = problems(text)
    assert len(lines) == 1, lines
    return lines[0]


def with_flags(flags: str, engine: str = "vllm") -> str:
    small = SMALL.replace('"vllm"', f'"{engine}"')
    return f"{small}\n[baseline.flags]\n{flags}\n"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_example_loads(path: Path) -> None:
    recipe = load_recipe(path.read_text(), str(path))
    assert recipe.configurations[0].name == "baseline"


def test_there_are_five_examples() -> None:
    names = {p.stem for p in EXAMPLES.glob("*.toml")}
    assert names >= {"demo", "vllm-h200", "vllm-cpu", "url", "sglang"}


def test_a_small_recipe_takes_every_default() -> None:
    recipe = load_recipe(SMALL, "r.toml")
    assert recipe.sweep.concurrency == ((1, 1), (2, 1), (512, 3))
    assert (recipe.sweep.waves, recipe.sweep.n_prompts) == (2, None)
    assert recipe.sweep.endpoint == "/v1/completions"
    assert recipe.readiness_timeout_s == 3600.0
    assert (recipe.warm_up.concurrency, recipe.warm_up.blocks) == (None, 6)
    assert (recipe.telemetry.interval_s, recipe.telemetry.metrics_interval_s) == (
        0.1,
        1.0,
    )
    assert recipe.cost is None
    assert recipe.configurations == (Configuration(name="baseline"),)


def test_the_documented_recipe_is_read_whole() -> None:
    text = (EXAMPLES.parent / "docs" / "recipe.md").read_text()
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    recipe = load_recipe(block[1], "docs/recipe.md")
    assert [c.name for c in recipe.configurations] == ["baseline", "eager", "pinned"]
    eager = recipe.configurations[1]
    assert eager.flags["enforce-eager"] is True
    assert eager.flags["compilation-config"] is False
    assert eager.flags["max-model-len"] == 4096
    assert eager.environment == {"HF_HUB_OFFLINE": "1"}
    assert recipe.configurations[2].cpus == "0-7"
    assert recipe.cost is not None
    assert recipe.cost.usd_per_hour == pytest.approx(3.8 + 16 * 0.02 + 128 * 0.003)


def test_every_key_of_the_schema_is_documented() -> None:
    from stepscope.recipe.schema import TABLES, TOP

    text = (EXAMPLES.parent / "docs" / "recipe.md").read_text()
    names = {*TOP, *(key for table in TABLES.values() for key in table)}
    assert sorted(n for n in names if f"`{n}`" not in text) == []


def test_every_problem_is_told_at_once_with_its_key_path() -> None:
    text = """
    name = "x"
    engine = "vllm"
    model = "m"
    port = 65536
    [baseline]
    cpus = "3-1"
    [[patch]]
    name = "a"
    flags = { x-y = 1 }
    [[patch]]
    name = "a"
    flags = { x-y = 2 }
    [workload]
    input_tokens = 0
    output_tokens = "64"
    concurrency = [1, "512x3", "512y3", true]
    wave = 3
    [cost]
    usd_per_gpu_hour = -0.5
    [telemetry]
    interval_s = nan
    """
    lines = problems(text)
    paths = [re.sub(r"^r\.toml: ([^:]+):.*", r"\1", line) for line in lines]
    assert set(paths) == {
        "port",
        "baseline.cpus",
        "patch[1].name",
        "workload.input_tokens",
        "workload.output_tokens",
        "workload.concurrency[2]",
        "workload.concurrency[3]",
        "workload.wave",
        "cost.usd_per_gpu_hour",
        "telemetry.interval_s",
    }
    assert len(paths) == 10
    assert all("\n" not in line for line in lines)


def test_a_wrong_repeat_says_what_to_write() -> None:
    line = only_problem(SMALL.replace("512x3", "512y3"))
    assert line == (
        'r.toml: workload.concurrency[2]: "512y3"; expected N or "NxR".'
        ' Write 64 for once, "64x3" for three repeats.'
    )


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    line = only_problem(
        SMALL.replace("output_tokens", "output_token =1\noutput_tokens")
    )
    assert line.startswith(
        "r.toml: workload.output_token: unknown key; expected one of"
    )
    assert line.endswith('Perhaps you meant "output_tokens".')


def test_a_missing_table_is_one_problem() -> None:
    line = only_problem('name = "x"\nengine = "embedded"\n')
    assert line == "r.toml: workload: missing; expected a table."


def test_broken_toml_is_answered_with_its_line() -> None:
    assert "line 3" in only_problem("name = 'x'\nengine = 'vllm'\nmodel = = 1\n")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_toml_that_no_reader_can_take_is_one_problem(text: str) -> None:
    assert only_problem(text).startswith("r.toml: numbers too long or brackets")


@pytest.mark.parametrize(
    ("find", "replace", "path"),
    [
        ('"vllm"', '"vlm"', "engine"),
        ('"small"', '"a/b"', "name"),
        ('"small"', '""', "name"),
        ('model = "m"', 'model = "m"\nport = "8000"', "port"),
        ('model = "m"', 'model = "m"\nport = 8000.0', "port"),
        ('model = "m"', 'model = "m"\nn_launches = 0', "n_launches"),
        ('model = "m"', 'model = "m"\nexecutable = "python3 -m vllm"', "executable"),
        ('model = "m"', 'model = "m"\nexecutable = []', "executable"),
        ('model = "m"', 'model = "m"\napi_key_env = "my-key"', "api_key_env"),
        ('model = "m"', 'model = "m"\ncapture = ["video"]', "capture"),
        ('model = "m"', 'model = "m"\nreadiness_timeout_s = 0', "readiness_timeout_s"),
        ('model = "m"', "", "model"),
        ("32", "true", "workload.input_tokens"),
        ("32", "0x" + "f" * 5000, "workload.input_tokens"),
        ("[workload]", "[workload]\nwaves = 2\nn_prompts = 600", "workload.n_prompts"),
        ("[workload]", "[workload]\nn_prompts = 100", "workload.n_prompts"),
        ("[workload]", "[workload]\nwaves = 900000", "workload.waves"),
        ("[workload]", "[workload]\nseed = -1", "workload.seed"),
        ("[1, 2,", "[1, 1,", "workload.concurrency[1]"),
        ("[1, 2,", "[1, 0,", "workload.concurrency[1]"),
        ("[1, 2,", '[1, "2x0",', "workload.concurrency[1]"),
        ('[1, 2, "512x3"]', "[]", "workload.concurrency"),
        ("[workload]", '[server]\nbase_url="http://a"\n[workload]', "server"),
        ("[workload]", "[warm_up]\nblocks = -1\n[workload]", "warm_up.blocks"),
        ("[workload]", "[cost]\nn_gpus = 1.5\n[workload]", "cost.n_gpus"),
        ("[workload]", "[baseline]\ncpus = '0-3,'\n[workload]", "baseline.cpus"),
        ("[workload]", "[[patch]]\nname = 'p'\n[workload]", "patch[0]"),
        ("[workload]", "[[patch]]\nname = 'baseline'\nflags = {a-b=1}\n[workload]",
         "patch[0].name"),
        ("[workload]", "[[patch]]\nname = 'p-l0'\nflags = {a-b=1}\n[workload]",
         "patch[0].name"),
        ("[workload]", "[[patch]]\nname = 'p-c1-r0'\ncpus = '1'\n[workload]",
         "patch[0].name"),
    ],
)  # fmt: skip
def test_an_impossible_value_is_one_problem_at_its_path(
    find: str, replace: str, path: str
) -> None:
    assert only_problem(SMALL.replace(find, replace, 1)).startswith(f"r.toml: {path}: ")


def test_flags_come_in_one_spelling_and_tables_become_json() -> None:
    text = with_flags(
        "max_model_len = 4096\n"
        'speculative-config = { method = "ngram", num_speculative_tokens = 3 }\n'
        "cuda-graph-sizes = [1, 2]\n"
        '"compilation-config.cudagraph_mode" = "NONE"\n'
        "enforce-eager = true"
    )
    assert load_recipe(text, "r").configurations[0].flags == {
        "max-model-len": 4096,
        "speculative-config": '{"method":"ngram","num_speculative_tokens":3}',
        "cuda-graph-sizes": "[1,2]",
        "compilation-config.cudagraph_mode": "NONE",
        "enforce-eager": True,
    }


@pytest.mark.parametrize(
    "flag",
    [
        '"--max-model-len" = 1',
        "x = 1",
        "when = 2026-01-01",
        "ratio = inf",
        "served-model-name = 'x'",
        "port = 1",
        "many = [nan]",
        "a-b = 1\na_b = 2",
    ],
)
def test_a_flag_that_no_command_could_carry_is_refused(flag: str) -> None:
    assert ": baseline.flags." in only_problem(with_flags(flag))


@pytest.mark.parametrize(
    "line",
    [
        "[baseline.flags]\napi-key = 'abc'",
        "[baseline.flags]\nhf_token = 'abc'",
        "[baseline.flags]\nheader = 'Bearer sk-abcdefghijklmnop1234'",
        "[baseline.flags]\nmany-keys = ['hf_abcdefghijklmnop1234']",
        "[baseline.environment]\nHF_TOKEN = 'hf_abcdefghijklmnop1234'",
        "[baseline.environment]\nAWS_SECRET_ACCESS_KEY = 'abc'",
        "[baseline.environment]\nDB_PASSWORD = 'abc'",
        "[baseline.environment]\nOTHER = 'hf_abcdefghijklmnop1234'",
    ],
)
def test_a_secret_is_refused_and_never_repeated(line: str) -> None:
    text = only_problem(f"{SMALL}\n{line}\n")
    assert "abc" not in text


def test_a_key_in_place_of_its_variable_is_not_repeated() -> None:
    line = only_problem(f'api_key_env = "sk-abcdefghijklmnop1234"\n{SMALL}')
    assert "abcdef" not in line


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    text = SMALL.replace('"vllm"', '"url"')
    text += '[server]\nbase_url = "http://me:hunter2@host:1"\n'
    line = only_problem(text)
    assert line.startswith("r.toml: server.base_url: ")
    assert "hunter2" not in line


def test_names_that_only_resemble_secrets_are_fine() -> None:
    environment = 'TOKENIZERS_PARALLELISM = "0"\nMAX_TOKENS = 3\n'
    text = with_flags("max-num-batched-tokens = 8192\nkeyword-x = 1")
    recipe = load_recipe(f"{text}[baseline.environment]\n{environment}", "r")
    assert recipe.configurations[0].environment["MAX_TOKENS"] == "3"


def test_a_patch_keeps_what_it_does_not_change() -> None:
    text = with_flags("a-b = 1\nc-d = true")
    text += "[baseline.environment]\nV = '1'\n"
    text += "[[patch]]\nname = 'p'\nflags = { c_d = false }\nenvironment = { W = 2 }\n"
    patch = load_recipe(text, "r").configurations[1]
    assert patch.flags == {"a-b": 1, "c-d": False}
    assert patch.environment == {"V": "1", "W": "2"}


def test_a_patch_that_comes_to_the_same_command_is_refused() -> None:
    text = with_flags("a-b = 1")
    text += "[[patch]]\nname = 'p'\nflags = { a-b = 1, c-d = false }\n"
    assert "it changes nothing" in only_problem(text)


@pytest.mark.parametrize("value", ["true", "0", "false"])
def test_a_patch_to_another_value_is_a_change(value: str) -> None:
    text = with_flags("a-b = 1")
    text += f"[[patch]]\nname = 'p'\nflags = {{ a-b = {value} }}\n"
    changed = load_recipe(text, "r").configurations[1].flags["a-b"]
    assert str(changed).lower() == value


@pytest.mark.parametrize("flag", ["x-y = 0", "metrics = false"])
def test_zero_and_taking_away_what_stepscope_adds_are_changes(flag: str) -> None:
    text = SMALL.replace('"vllm"', '"llamacpp"')
    text += f"[[patch]]\nname = 'p'\nflags = {{ {flag} }}\n"
    assert len(load_recipe(text, "r").configurations) == 2


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", "max-model-len = 95"),
        ("sglang", "context-length = 95"),
        ("llamacpp", "ctx-size = 1520\nparallel = 16"),
        ("embedded", "slot-context = 95"),
    ],
)
def test_a_request_that_can_not_fit_the_context_is_told(
    engine: str, flags: str
) -> None:
    text = with_flags(flags, engine)
    assert "96 tokens in and out do not fit a context of 95" in only_problem(text)
    fits = text.replace("95", "96").replace("1520", "1536")
    assert load_recipe(fits, "r").engine == engine


def test_an_address_takes_nothing_that_boots() -> None:
    text = SMALL.replace('"vllm"', '"url"').replace("[workload]", "port=1\n[workload]")
    paths = " ".join(problems(text))
    assert "r.toml: server: missing" in paths
    assert "r.toml: port: engine url boots nothing" in paths


def test_the_embedded_engine_knows_its_flags() -> None:
    line = only_problem(with_flags("slot = 3", "embedded"))
    assert line.endswith('Perhaps you meant "slots".')


def test_an_address_loses_its_last_slash() -> None:
    text = SMALL.replace('"vllm"', '"url"') + '[server]\nbase_url = "http://h:1/"\n'
    server = load_recipe(text, "r").server
    assert server is not None
    assert server.base_url == "http://h:1"


@pytest.mark.parametrize(
    ("keys", "need"),
    [
        ("prefix_tokens = 20", 116),
        ("input_range = 0.5", 112),
        ("output_range = 0.25", 112),
    ],
)
def test_the_longest_request_has_to_fit_the_context(keys: str, need: int) -> None:
    text = with_flags("max-model-len = 100", "vllm")
    text = text.replace("[workload]\n", f"[workload]\n{keys}\n")
    assert f"{need} tokens in and out do not fit" in only_problem(text)


@pytest.mark.parametrize(
    ("engine", "endpoint", "owner"),
    [
        ("vllm", "/generate", "sglang"),
        ("sglang", "/completion", "llamacpp and embedded"),
        ("embedded", "/generate", "sglang"),
    ],
)
def test_another_engine_s_own_endpoint_is_refused(
    engine: str, endpoint: str, owner: str
) -> None:
    text = with_flags("", engine)
    text = text.replace("[workload]\n", f'[workload]\nendpoint = "{endpoint}"\n')
    assert f"{engine} does not have it; only {owner} do" in only_problem(text)


def test_a_base_url_that_holds_the_endpoint_s_beginning_is_told() -> None:
    text = SMALL.replace('"vllm"', '"url"') + '[server]\nbase_url = "http://h:1/v1/"\n'
    assert "server.base_url: it ends in /v1" in only_problem(text)
