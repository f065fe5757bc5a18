"""KV accounting by the engine's blocks, to the token."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from stepscope.errors import RefusedError
from stepscope.physics.blocks import KvRules, capacity, kv_pool
from stepscope.physics.model.records import ModelShape
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]
GIB = 2**30


@pytest.mark.parametrize(
    ("n_blocks", "context", "tokens", "concurrency", "gib"),
    [
        (605_237, 1_048_576, 51_558_777, 49.17, 129.87),
        (679_074, 4_096, 5_066_461, 1236.93, 145.71),
        (495_533, 1_048_576, 42_213_340, 40.26, 106.33),
    ],
)
def test_the_posts_token_counts_come_out_to_the_token(
    shape_of: ShapeOf,
    n_blocks: int,
    context: int,
    tokens: int,
    concurrency: float,
    gib: float,
) -> None:
    pool = kv_pool(shape_of("deepseek-v4.1-flash"), Layout(dp=8, ep=8))
    found = capacity(pool, n_blocks, context)
    assert found.n_tokens == tokens
    assert round(found.max_concurrency, 2) == concurrency
    assert round(n_blocks * pool.block_bytes / GIB, 2) == gib


def test_a_token_of_deepseek_v41_costs_1800_bytes_and_a_request_a_reserve(
    shape_of: ShapeOf,
) -> None:
    pool = kv_pool(shape_of("deepseek-v4.1-flash"))
    assert pool.block_bytes == 230_400
    assert pool.bytes_per_token == 1800
    assert pool.blocks_per_request(1_048_576) == 12_309
    assert pool.fixed_bytes(1_048_576) == 948_556_800
    assert pool.blocks_per_request(2048, prefill=False) == 37


def test_the_h200_servers_tokens_lie_within_the_rounding_of_its_memory(
    shape_of: ShapeOf,
) -> None:
    # Log: "Available KV cache memory: 65.38 GiB", "GPU KV cache size: 714,128 tokens",
    # 44,633 blocks of 16 in its cache_config_info.
    pool = kv_pool(shape_of("qwen3-30b-a3b"))
    least, most = (pool.n_blocks(gib * GIB) for gib in (65.375, 65.385))
    assert least <= 44_633 <= most
    found = capacity(pool, 44_633, 4096)
    assert found.n_tokens == 714_128
    assert round(found.max_concurrency, 8) == 174.34765625


def test_hybrid_blocks_grow_to_the_size_of_a_state(shape_of: ShapeOf) -> None:
    # Known from vLLM's log: attention block size 544 at TP 1 and 2, 272 at TP 4.
    shape = shape_of("qwen3-next-80b-a3b")
    sizes = []
    for tp in (1, 2, 4):
        pool = kv_pool(shape, Layout(tp=tp))
        sizes.append(max(g.block_tokens or 0 for g in pool.groups))
        assert [g.kind for g in pool.groups].count("state") == 3
    assert sizes == [544, 544, 272]


def test_windows_and_full_layers_form_groups_of_equal_size(shape_of: ShapeOf) -> None:
    pool = kv_pool(shape_of("gemma-3-27b"), rules=KvRules(batches_in_flight=1))
    # 10 full layers and 52 windows: groups of ten, the windows in six of them.
    assert [g.kind for g in pool.groups].count("window") == 6
    assert [g.kind for g in pool.groups].count("full") == 1


def test_twelve_windows_beside_as_many_full_layers_are_two_groups(
    shape_of: ShapeOf,
) -> None:
    pool = kv_pool(shape_of("gpt-oss-20b"))
    assert sorted(g.kind for g in pool.groups) == ["full", "window"]
    assert pool.bytes_per_token == 12 * 2 * 8 * 64 * 2


def test_index_keys_share_the_latents_blocks(shape_of: ShapeOf) -> None:
    bf16 = kv_pool(shape_of("deepseek-v3.2"))
    packed = kv_pool(shape_of("deepseek-v3.2"), rules=KvRules(kv_dtype="fp8"))
    assert bf16.bytes_per_token == 61 * (576 * 2 + 132)
    assert packed.bytes_per_token == 61 * (656 + 132)


def test_an_unknown_grouping_is_refused(shape_of: ShapeOf) -> None:
    with pytest.raises(RefusedError, match="compresses for itself"):
        kv_pool(shape_of("deepseek-v4-flash"))


def test_context_parallelism_multiplies_the_tokens_that_fit(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v3")
    one = capacity(kv_pool(shape, Layout(tp=8)), 10_000, 131_072)
    four = capacity(kv_pool(shape, Layout(tp=8, dcp=4)), 10_000, 131_072)
    assert four.n_tokens == 4 * one.n_tokens


@given(n=st.integers(1, 200_000), more=st.integers(0, 10_000))
def test_a_longer_request_never_takes_fewer_blocks(
    shape_of: ShapeOf, n: int, more: int
) -> None:
    for name in ("deepseek-v4.1-flash", "gemma-3-27b", "qwen3-next-80b-a3b"):
        pool = kv_pool(shape_of(name))
        assert pool.blocks_per_request(n + more) >= pool.blocks_per_request(n)
        decoding = pool.blocks_per_request(n, prefill=False)
        assert decoding <= pool.blocks_per_request(n)
