"""Bytes per token and reads of a step, by kind of attention."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from stepscope.errors import RecipeError
from stepscope.physics.kv import (
    entries_read,
    entry_bytes,
    footprint,
    step_read_bytes,
)
from stepscope.physics.model.records import ModelShape
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deepseek-v3", 70_272), ("qwen3-235b-a22b", 192_512),
        ("qwen3-30b-a3b", 98_304), ("gpt-oss-120b", 36_864), ("glm-4.5-air", 188_416),
        ("mixtral-8x7b", 131_072), ("llama-3.1-70b", 327_680),
        ("qwen3-next-80b-a3b", 24_576), ("deepseek-v4.1-flash", 1_790),
    ],
)  # fmt: skip
def test_bytes_per_token(name: str, expected: int, shape_of: ShapeOf) -> None:
    assert footprint(shape_of(name)).bytes_per_token == expected


def test_a_state_of_qwen3_next_is_a_megabyte_a_layer(shape_of: ShapeOf) -> None:
    states = [c for c in shape_of("qwen3-next-80b-a3b").caches if c.kind == "state"]
    assert len(states) == 36
    # 32 heads of 128 x 128, and three inputs of a convolution over 8192 channels.
    assert states[0].state_bytes == 2 * (32 * 128 * 128 + 3 * 8192)


def test_fp8_halves_what_bf16_takes(shape_of: ShapeOf) -> None:
    shape = shape_of("llama-3-8b")
    half = footprint(shape, kv_dtype="fp8").bytes_per_token
    assert half * 2 == footprint(shape).bytes_per_token


def test_tensor_parallelism_stops_at_one_head_a_rank(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    per_rank = [footprint(shape, Layout(tp=tp)).bytes_per_token for tp in (1, 2, 4, 8)]
    assert per_rank == [98_304, 49_152, 24_576, 24_576]


def test_a_stage_keeps_its_own_layers_only(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    assert footprint(shape, Layout(pp=4)).bytes_per_token == 98_304 / 4


@given(context=st.integers(0, 10**6))
def test_a_window_never_reads_beyond_itself(shape_of: ShapeOf, context: int) -> None:
    for cache in shape_of("gpt-oss-20b").caches:
        limit = cache.window or context
        assert entries_read(cache, context) == min(context, limit)


def test_sparse_attention_reads_its_top_k_and_all_index_keys(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v3.2")
    reads = sum(step_read_bytes(shape, c, 100_000) for c in shape.caches)
    assert reads == 61 * (2048 * 1152 + 100_000 * 132)


def test_a_state_is_read_and_written_back(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-next-80b-a3b")
    state = next(c for c in shape.caches if c.kind == "state")
    assert step_read_bytes(shape, state, 5) == 2 * state.state_bytes


def test_reads_of_deepseek_v41_stay_near_fourteen_megabytes(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    main = [c for c in shape.caches if c.kind != "index"]
    reads = sum(step_read_bytes(shape, c, 2048) for c in main)
    assert reads == 584 * (40 * 128 + 38 * 512)


def test_later_index_layers_of_deepseek_v41_read_candidates_only(
    shape_of: ShapeOf,
) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    index = [c for c in shape.caches if c.kind == "index"]
    far = sum(step_read_bytes(shape, c, 1_000_000) for c in index)
    assert far == 132 * (3 * 500_000 + 1_000_000 + 4 * 2048 * 8)


def test_an_unknown_kv_type_names_the_known(shape_of: ShapeOf) -> None:
    shape = shape_of("llama-3-8b")
    with pytest.raises(RecipeError, match="bf16"):
        entry_bytes(shape, shape.caches[0], "q5_k")
    with pytest.raises(RecipeError, match="no packed"):
        entry_bytes(shape, shape.caches[0], "fp8_ds_mla")
