"""Whatever the text, a recipe or a RecipeError comes back."""

import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from stepscope.errors import RecipeError
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Recipe
from stepscope.recipe.schema import PATCH, TABLES, TOP

EXAMPLES = [
    p.read_text() for p in sorted(Path(__file__).parents[2].glob("examples/*.toml"))
]

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=12)
_LIKELY = st.sampled_from(
    ["vllm", "embedded", "url", "sglang", "16x2", "0-3,8", "http://h:1", "random"]
)
_SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats()
    | _TEXT
    | _LIKELY
    | st.just("/v1/completions")
)
_KEYS = _TEXT | st.sampled_from(
    sorted({*TOP, *PATCH, *(k for table in TABLES.values() for k in table)})
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def toml(value: Any) -> str:
    """Write a value as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return str(value).lower()


def read(text: str) -> Recipe | None:
    lines: tuple[str, ...] = ()
    recipe: Recipe | None = None
    try:
        recipe = load_recipe(text, "r.toml")
    except RecipeError as error:
        lines = error.lines()
    assert (recipe is None) == bool(lines)
    assert all(line.startswith("r.toml: ") for line in lines)
    assert all("\n" not in line for line in lines)
    return recipe


@given(st.dictionaries(_KEYS, _VALUES, max_size=8))
@settings(max_examples=300)
def test_any_toml_is_read_or_refused(data: dict[str, Any]) -> None:
    read("\n".join(f"{toml(k)} = {toml(v)}" for k, v in data.items()))


@given(
    st.sampled_from(EXAMPLES),
    st.lists(st.tuples(st.integers(0, 60), _KEYS, _VALUES), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_a_recipe_with_lines_replaced_is_read_or_refused(
    text: str, changes: list[tuple[int, str, Any]]
) -> None:
    lines = text.splitlines()
    for at, key, value in changes:
        lines[at % len(lines)] = f"{toml(key)} = {toml(value)}"
    recipe = read("\n".join(lines))
    if recipe is not None:
        names = [c.name for launch in expand(recipe).launches for c in launch.cells]
        assert len(names) == len(set(names))
        packed = msgspec.msgpack.encode(recipe)
        assert msgspec.msgpack.decode(packed, type=Recipe) == recipe


@given(st.sampled_from(EXAMPLES), st.integers(0, 2000), st.integers(0, 40), _TEXT)
@settings(max_examples=300)
def test_a_recipe_with_text_cut_out_is_read_or_refused(
    text: str, at: int, length: int, new: str
) -> None:
    at %= len(text)
    read(text[:at] + new + text[at + length :])
