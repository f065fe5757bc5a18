"""config.json -> shape: aliases, nesting, kinds of layers, refusals."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.errors import RecipeError, RefusedError
from stepscope.physics.model.records import ModelShape
from stepscope.physics.shapes import model_shape

ShapeOf = Callable[[str], ModelShape]
TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 100, "torch_dtype": "bfloat16",
}  # fmt: skip


def shape(**changes: Any) -> ModelShape:
    merged = {**TINY, **changes}
    return model_shape(json.dumps({k: v for k, v in merged.items() if v != "absent"}))


def kinds(model: ModelShape) -> list[str]:
    return [c.kind for c in model.caches]


def test_a_nested_config_is_the_same_model_and_says_what_is_left_out() -> None:
    nested = model_shape(
        json.dumps({"model_type": "outer", "text_config": TINY, "vision_config": {}})
    )
    assert nested.params_total == shape().params_total
    assert any("images" in a for a in nested.assumptions)


@pytest.mark.parametrize(
    ("field", "alias"),
    [
        ("num_hidden_layers", "n_layer"),
        ("hidden_size", "n_embd"),
        ("num_attention_heads", "n_head"),
        ("intermediate_size", "n_inner"),
    ],
)
def test_a_field_may_have_its_other_name(field: str, alias: str) -> None:
    renamed = shape(**{field: "absent", alias: TINY[field]})
    assert renamed.params_total == shape().params_total


@pytest.mark.parametrize(
    "alias", ["n_routed_experts", "num_experts", "num_local_experts"]
)
def test_experts_are_found_under_each_name(alias: str) -> None:
    model = shape(
        model_type="qwen3_moe", num_experts_per_tok=2, moe_intermediate_size=32,
        **{alias: 8},
    )  # fmt: skip
    assert model.experts is not None
    assert (model.experts.n, model.experts.per_token) == (8, 2)
    assert model.experts.params_each == 3 * 64 * 32


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"]
)
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(RecipeError, match=field):
        shape(**{field: "absent"})


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RefusedError, match=r"'new_thing' is not known.*llama"):
        shape(model_type="new_thing")


def test_an_unknown_architecture_may_be_assumed_and_says_so() -> None:
    text = json.dumps({**TINY, "model_type": "new_thing"})
    model = model_shape(text, like="llama")
    assert model.params_total == shape().params_total
    assert any("new_thing" in a for a in model.assumptions)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 5}, "hidden_size"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        (
            {"num_experts": 8, "num_experts_per_tok": 9, "moe_intermediate_size": 8},
            "num_experts_per_tok",
        ),
    ],
)
def test_a_field_that_makes_no_sense_is_named(
    changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(RecipeError, match=match):
        shape(**changes)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", '"x"', "{}"])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises((RecipeError, RefusedError)):
        model_shape(text)


def test_an_unknown_kind_of_layer_is_refused() -> None:
    with pytest.raises(RefusedError, match="holographic"):
        shape(layer_types=["holographic", "full_attention"])


def test_gemma_3_has_five_windows_for_each_full_layer(shape_of: ShapeOf) -> None:
    assert kinds(shape_of("gemma-3-1b"))[:7] == ["window"] * 5 + ["full", "window"]


def test_gpt_oss_alternates_and_starts_with_a_window(shape_of: ShapeOf) -> None:
    caches = shape_of("gpt-oss-120b").caches
    assert kinds(shape_of("gpt-oss-120b")) == ["window", "full"] * 18
    assert caches[0].window == 128


def test_qwen3_next_keeps_tokens_in_every_fourth_layer(shape_of: ShapeOf) -> None:
    assert kinds(shape_of("qwen3-next-80b-a3b")) == (["state"] * 3 + ["full"]) * 12


def test_a_window_as_long_as_the_context_is_no_window(shape_of: ShapeOf) -> None:
    assert set(kinds(shape_of("phi-3.5-moe"))) == {"full"}
    assert set(kinds(shape_of("mistral-7b-v0.1"))) == {"window"}


def test_llama_4_attends_to_everything_in_each_fourth_layer(shape_of: ShapeOf) -> None:
    assert kinds(shape_of("llama-4-scout"))[:4] == ["window"] * 3 + ["full"]


def test_layers_of_nemotron_are_one_block_each(shape_of: ShapeOf) -> None:
    model = shape_of("nemotron-3-nano-30b-a3b")
    assert kinds(model).count("state") == 23
    assert kinds(model).count("full") == 6
    assert model.experts is not None
    assert model.experts.n_layers == 23


def test_tied_embedding_is_counted_once() -> None:
    tied, untied = shape(tie_word_embeddings=True), shape(tie_word_embeddings=False)
    assert untied.params_total - tied.params_total == 100 * 64


def test_draft_layers_are_named_as_left_out(shape_of: ShapeOf) -> None:
    assert any("Draft" in a for a in shape_of("deepseek-v3").assumptions)


def test_shared_indexers_keep_no_keys_of_their_own() -> None:
    mla = {
        "model_type": "glm_moe_dsa", "q_lora_rank": 32, "kv_lora_rank": 128,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "index_topk": 8, "index_n_heads": 2, "index_head_dim": 16,
    }  # fmt: skip
    assert kinds(shape(**mla)).count("index") == 2
    assert kinds(shape(**mla, indexer_types=["full", "shared"])).count("index") == 1
