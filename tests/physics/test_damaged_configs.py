"""Whatever a config.json holds, the answer is a shape or an error of ours."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.errors import StepscopeError
from stepscope.physics.blocks import kv_pool
from stepscope.physics.shapes import model_shape
from stepscope.physics.step import step_bytes
from stepscope.recipe.records import Layout

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
NAMES = sorted(p.stem for p in CONFIGS.glob("*.json"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


def survives(config: dict[str, Any]) -> bool:
    """A shape whose bytes make sense, or one line of ours; anything else raises."""
    try:
        shape = model_shape(json.dumps(config))
        step = step_bytes(shape, Layout(), 4, 1024)
        kv_pool(shape)
    except StepscopeError as error:
        return "\n" not in str(error)
    return math.isfinite(step.bytes_per_rank) and step.bytes_per_rank >= 0


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=15)
def test_a_damaged_field_is_named_or_survived(name: str, data: st.DataObject) -> None:
    config: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    part = config
    if "text_config" in config and data.draw(st.booleans()):
        part = config["text_config"]
    if isinstance(config.get("quantization_config"), dict) and data.draw(st.booleans()):
        part = config["quantization_config"]
    field = data.draw(st.sampled_from(sorted(part)))
    part[field] = data.draw(json_values)
    assert survives(config)


@given(quant=st.dictionaries(
    st.sampled_from([
        "quant_method", "quant_algo", "bits", "group_size", "weight_block_size",
        "config_groups", "ignore", "scale_fmt", "expert_dtype", "kv_cache_scheme",
        "quantization", "load_in_8bit",
    ]),
    json_values | st.sampled_from(["fp8", "awq", "modelopt", "compressed-tensors"]),
    max_size=5,
))  # fmt: skip
@settings(max_examples=300)
def test_a_damaged_quantization_is_named_or_survived(quant: dict[str, Any]) -> None:
    config = json.loads((CONFIGS / "llama-3-8b.json").read_text())
    config["quantization_config"] = quant
    assert survives(config)


@given(text=st.text(max_size=60))
def test_any_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(StepscopeError) as caught:
        model_shape(text)
    assert "\n" not in str(caught.value)
