"""Bytes of a weight by quantization."""

import json
from typing import Any

import pytest

from stepscope.errors import RefusedError
from stepscope.physics.model.records import ModelShape
from stepscope.physics.shapes import model_shape

ROWS, COLUMNS = 512, 1024
N = ROWS * COLUMNS


def shape(quant: dict[str, Any] | None, **more: Any) -> ModelShape:
    config = {
        "model_type": "llama", "hidden_size": COLUMNS, "intermediate_size": ROWS,
        "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 64,
        "torch_dtype": "bfloat16", **more,
    }  # fmt: skip
    if quant is not None:
        config["quantization_config"] = quant
    return model_shape(json.dumps(config))


def up_bytes(quant: dict[str, Any] | None, **more: Any) -> float:
    (weight,) = (w for w in shape(quant, **more).weights if w.name == "mlp.up_proj")
    return weight.n_bytes


def compressed(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        (None, 2 * N),
        ({"quant_method": "fp8"}, N + 4),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, N + N // 16384 * 4),
        (
            {
                "quant_method": "fp8", "weight_block_size": [32, 32],
                "scale_fmt": "ue8m0",
            },
            N + N // 1024,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, N / 2 + N / 16 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, N + 4),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            N / 2 + N / 128 * 2.5,
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128},
            N / 2 + N / 128 * 2.5,
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, N + ROWS * 3),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, N + ROWS * 4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, N / 2 + N / 64 * 4),
        (compressed(num_bits=8, type="float", strategy="channel"), N + ROWS * 2),
        (compressed(num_bits=8, type="int", strategy="channel"), N + ROWS * 2),
        (
            compressed(num_bits=4, type="int", group_size=32, symmetric=True),
            N / 2 + N / 32 * 2,
        ),
        (compressed(num_bits=4, type="float", group_size=16), N / 2 + N / 16 + 8),
    ],
)  # fmt: skip
def test_bytes_of_a_matrix(quant: dict[str, Any] | None, expected: float) -> None:
    assert up_bytes(quant) == pytest.approx(expected, abs=1e-6)


def test_half_a_block_carries_a_whole_scale() -> None:
    quant = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    odd = up_bytes(quant, intermediate_size=130)
    assert odd == 130 * COLUMNS + 2 * 8 * 4


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("ignore", "re:.*up_proj$"),
        ("ignored_layers", "up_proj"),
        ("modules_to_not_convert", "model.layers.0.mlp"),
        ("modules_to_not_convert", "model.layers.*.mlp"),
        ("exclude_modules", "*.up_proj"),
    ],
)
def test_what_is_ignored_stays_bf16(key: str, pattern: str) -> None:
    assert up_bytes({"quant_method": "fp8", key: [pattern]}) == 2 * N


def test_a_pattern_of_another_module_ignores_nothing() -> None:
    quant = {"quant_method": "fp8", "ignored_layers": ["p_proj", "gate"]}
    assert up_bytes(quant) == N + 4


def test_embedding_head_and_norms_are_never_quantized() -> None:
    model = shape({"quant_method": "fp8"})
    for weight in model.weights:
        if weight.name in ("embed_tokens", "lm_head", "norm", "norms"):
            assert weight.n_bytes == 2 * weight.n_params


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(RefusedError, match="exl3"):
        shape({"quant_method": "exl3", "bits": 2})


@pytest.mark.parametrize(
    "quant",
    [
        compressed(num_bits=8, type="float", strategy="tensor")
        | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    ],
)
def test_a_kv_type_in_the_checkpoint_is_taken(quant: dict[str, Any]) -> None:
    assert shape(quant).kv_dtype == "fp8"


def test_fp32_checkpoints_are_counted_as_served_and_say_so() -> None:
    model = shape(None, torch_dtype="float32")
    assert model.element_bytes == 2
    assert any("float32" in a for a in model.assumptions)
