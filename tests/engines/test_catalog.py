"""Commands, environment and what each engine takes."""

import json
import sys
from importlib import resources
from pathlib import Path
from typing import get_args

import pytest

from stepscope.engines.catalog import ENGINES, engine_of, shell_line
from stepscope.engines.definition import TraceOrder, rendered
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Engine, Recipe

EXAMPLES = Path(__file__).parents[2] / "examples"


def recipe(top: str, rest: str = "") -> Recipe:
    workload = "[workload]\ninput_tokens = 8\noutput_tokens = 8\nconcurrency = [1]\n"
    return load_recipe(f'name = "x"\n{top}\n{workload}{rest}', "r.toml")


def command(of: Recipe, i: int = 0, trace: TraceOrder | None = None) -> tuple[str, ...]:
    return engine_of(of).command(of, of.configurations[i], 8123, trace)


def test_every_engine_a_recipe_may_name_is_defined() -> None:
    assert set(ENGINES) == set(get_args(Engine))
    assert all(engine.name == name for name, engine in ENGINES.items())


def test_the_demo_runs_the_recipe_that_the_examples_show() -> None:
    kept = resources.files("stepscope.engines").joinpath("demo.toml").read_text()
    assert kept == (EXAMPLES / "demo.toml").read_text()


def test_vllm_is_started_by_its_own_words_and_then_the_flags() -> None:
    vllm = recipe(
        'engine = "vllm"\nmodel = "m/x"\nserved_model_name = "s"\n'
        'executable = ["python3", "-m", "vllm.entrypoints.cli.main"]',
        "[baseline.flags]\nmax_model_len = 64\nenforce-eager = true\n"
        "[[patch]]\nname = 'graphs'\nflags = { enforce-eager = false }",
    )
    start = (
        "python3", "-m", "vllm.entrypoints.cli.main", "serve", "m/x",
        "--host", "127.0.0.1", "--port", "8123", "--served-model-name", "s",
        "--max-model-len", "64",
    )  # fmt: skip
    assert command(vllm, 0) == (*start, "--enforce-eager")
    assert command(vllm, 1) == start
    assert engine_of(vllm).request_model(vllm) == "s"


def test_what_stepscope_adds_is_told_and_the_recipe_has_the_last_word() -> None:
    sglang = recipe(
        'engine = "sglang"\nmodel = "m"',
        "[[patch]]\nname = 'blind'\nflags = { enable-metrics = false }",
    )
    engine = engine_of(sglang)
    baseline, blind = sglang.configurations
    assert engine.added_flags(sglang, baseline, 8123) == {
        "host": "127.0.0.1",
        "port": 8123,
        "enable-metrics": True,
    }
    assert "enable-metrics" not in engine.added_flags(sglang, blind, 8123)
    assert "--enable-metrics" in command(sglang, 0)
    assert "--enable-metrics" not in command(sglang, 1)


def test_sglang_is_never_asked_for_health_which_generates() -> None:
    assert "health" not in ENGINES["sglang"].ready_path


def test_llamacpp_calls_the_served_name_an_alias_and_caches_no_prompt() -> None:
    llamacpp = recipe('engine = "llamacpp"\nmodel = "m.gguf"\nserved_model_name = "s"')
    assert command(llamacpp) == (
        "llama-server", "--model", "m.gguf", "--host", "127.0.0.1",
        "--port", "8123", "--alias", "s", "--metrics",
    )  # fmt: skip
    assert ENGINES["llamacpp"].extra_body == {"cache_prompt": False}


def test_the_embedded_engine_is_this_interpreters_module() -> None:
    embedded = recipe('engine = "embedded"', "[baseline.flags]\nslots = 4")
    assert command(embedded)[:3] == (
        sys.executable,
        "-m",
        "stepscope.engines.embedded",
    )
    assert command(embedded)[-2:] == ("--slots", "4")
    assert engine_of(embedded).n_vocabulary == 4096
    own = recipe('engine = "embedded"\nmodel = "mine.gguf"')
    assert engine_of(own).n_vocabulary is None
    assert engine_of(own).model_config is None


def test_captures_become_flags_of_vllm() -> None:
    vllm = recipe('engine = "vllm"\nmodel = "m"\ncapture = ["iteration-details"]')
    assert "--enable-logging-iteration-details" in command(vllm)
    assert "--profiler-config" not in command(vllm)
    traced = command(vllm, trace=TraceOrder(folder="t"))
    config = json.loads(traced[traced.index("--profiler-config") + 1])
    assert config["torch_profiler_dir"] == "t"


def test_a_recipes_environment_wins_over_our_own() -> None:
    vllm = recipe(
        'engine = "vllm"\nmodel = "m"',
        "[baseline.environment]\nVLLM_NO_USAGE_STATS = 0\nOMP_NUM_THREADS = 1\n",
    )
    assert engine_of(vllm).environment(vllm, vllm.configurations[0]) == {
        "VLLM_NO_USAGE_STATS": "0",
        "OMP_NUM_THREADS": "1",
    }


def test_an_address_is_read_like_the_engine_that_it_names_and_not_booted() -> None:
    known = load_recipe((EXAMPLES / "url.toml").read_text(), "url.toml")
    engine = engine_of(known)
    assert (engine.log_format, engine.boots) == ("vllm", False)
    assert engine.accepts_token_ids("/v1/completions")
    assert engine.role(("VLLM::EngineCore",), "") == "engine-core"
    assert command(known) == ()
    assert engine.added_flags(known, known.configurations[0], 1) == {}
    assert not ENGINES["url"].accepts_token_ids("/v1/completions")


def test_token_ids_go_to_completions_and_not_to_chat() -> None:
    for name in ("vllm", "sglang", "llamacpp", "embedded"):
        assert ENGINES[name].accepts_token_ids("/v1/completions")
        assert not ENGINES[name].accepts_token_ids("/v1/chat/completions")


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        (True, ("--f",)),
        (False, ()),
        (None, ()),
        (3, ("--f", "3")),
        (0.9, ("--f", "0.9")),
        ("a b", ("--f", "a b")),
        ("[1,2]", ("--f", "[1,2]")),
        (-1, ("--f=-1",)),
        ("-x", ("--f=-x",)),
    ],
)
def test_a_flags_value_becomes_arguments(
    value: str | float | bool | None, arguments: tuple[str, ...]
) -> None:
    assert rendered({"f": value}) == arguments


def test_a_shell_line_can_be_pasted() -> None:
    assert shell_line({"A": "x y"}, ("run", '{"a":1}')) == "A='x y' run '{\"a\":1}'"
