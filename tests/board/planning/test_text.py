"""Recipes are written as TOML, and commands read as recipes."""

import tomllib

import pytest
from hypothesis import given, strategies as st

from stepscope.analysis.records import Analysis
from stepscope.board.planning.command import command_keys
from stepscope.board.planning.draft import Draft, Patch
from stepscope.board.planning.recipe_text import Base, fits, written
from stepscope.board.planning.sizes import next_sizes
from stepscope.board.planning.toml_text import toml_text

TEXT = st.text(max_size=20)
SCALAR = TEXT | st.integers(-(2**53), 2**53) | st.booleans() | st.floats(
    allow_nan=False, allow_infinity=False
)  # fmt: skip
INLINE = SCALAR | st.lists(SCALAR, max_size=3)
TABLE = st.dictionaries(TEXT, INLINE, max_size=3)
OWN = """
name = "own"
engine = "embedded"
[workload]
input_tokens = 32
output_tokens = 48
concurrency = [1]
"""


@given(
    st.dictionaries(
        TEXT, INLINE | TABLE | st.dictionaries(TEXT, TABLE, max_size=2), max_size=4
    )
)
def test_what_is_written_reads_back(data: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(data)) == data


def test_a_list_of_tables_reads_back_with_what_is_inside() -> None:
    data = {
        "name": "a",
        "patch": [{"name": "x", "flags": {"a-b": True, "c.d": [1, 'q"uo\\te']}}],
        "workload": {"concurrency": [1, "64x3"]},
    }
    assert tomllib.loads(toml_text(data)) == data


@pytest.mark.parametrize(
    ("engine", "command", "keys"),
    [
        (
            "vllm",
            "python3 -m vllm serve /m --port 1 --tensor-parallel-size 2"
            " --enforce-eager",
            {
                "executable": ["python3", "-m", "vllm"],
                "model": "/m",
                "baseline": {
                    "flags": {"tensor-parallel-size": 2, "enforce-eager": True}
                },
            },
        ),
        (
            "sglang",
            "python3 -m sglang.launch_server --model-path /m"
            " --mem-fraction-static=0.85",
            {
                "executable": ["python3", "-m", "sglang.launch_server"],
                "model": "/m",
                "baseline": {"flags": {"mem-fraction-static": 0.85}},
            },
        ),
        (
            "llamacpp",
            "llama-server -m x.gguf --ctx-size 4096 --host 0.0.0.0",
            {
                "executable": ["llama-server"],
                "model": "x.gguf",
                "baseline": {"flags": {"ctx-size": 4096}},
            },
        ),
    ],
)  # fmt: skip
def test_a_command_becomes_keys(
    engine: str, command: str, keys: dict[str, object]
) -> None:
    found, notes = command_keys(engine, command.split())
    assert found == keys
    assert len(notes) == 1


def test_a_secret_and_a_short_flag_are_left_out_and_told() -> None:
    found, notes = command_keys(
        "vllm", ["vllm", "serve", "m", "--api-key", "hunter2", "-tp", "2"]
    )
    assert "hunter2" not in repr((found, notes))
    assert "baseline" not in found
    assert sum("left out" in note for note in notes) == 3


def test_a_draft_that_the_engine_can_not_do_is_less_or_nothing() -> None:
    base = Base(tomllib.loads(OWN), ())
    fine = Draft(repeats={1: 3, 4: 1})
    assert fits(base, fine) == fine
    assert fits(base, Draft(repeats={1: 1}, traces=frozenset({1}))) is None
    text = written(base, fine).text
    assert 'concurrency = ["1x3", 4]' in text


def test_patches_follow_the_baseline_and_launches_are_counted() -> None:
    base = Base(tomllib.loads(OWN), ())
    draft = Draft(
        repeats={2: 2}, patches=(Patch("half-cpus", cpus="0-1"),), n_launches=2
    )
    plan = written(base, draft).plan
    assert [x.name for x in plan.launches] == [
        "baseline-l0", "half-cpus-l0", "half-cpus-l1", "baseline-l1",
    ]  # fmt: skip


def test_needs_put_together_are_what_any_of_them_needs() -> None:
    one = Draft(repeats={1: 3, 8: 1}, details=True, blocks=6)
    two = Draft(repeats={8: 2}, blocks=12, waves=4, traces=frozenset({8}))
    both = one.plus(two)
    assert both == Draft(
        repeats={1: 3, 8: 2}, details=True, blocks=12, waves=4, traces=frozenset({8})
    )
    assert two.plus(one) == both


def test_sizes_go_into_the_widest_gaps() -> None:
    nothing = Analysis(cells=())
    assert next_sizes(nothing, (1, 2, 4, 64)) == (3, 16)
    assert next_sizes(nothing, (8, 16)) == (11, 32)
    assert next_sizes(nothing, ()) == ()
    assert next_sizes(nothing, (8, 16), most=16) == (4, 11)
    assert next_sizes(nothing, (64, 256), most=96) == (16, 32)
