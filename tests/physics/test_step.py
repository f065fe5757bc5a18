"""The laws of bytes per step."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.errors import RecipeError
from stepscope.physics.model.records import ModelShape
from stepscope.physics.stages import stage_of
from stepscope.physics.step import StepOptions, step_bytes
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]
NAMES = (
    "llama-3-8b", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3.2", "gemma-3-27b",
    "qwen3-next-80b-a3b", "deepseek-v4.1-flash", "deepseek-v4-flash",
    "nemotron-3-nano-30b-a3b",
)  # fmt: skip
names = st.sampled_from(NAMES)
batches = st.floats(0.5, 1e5)
contexts = st.integers(0, 200_000)
degrees = st.sampled_from([1, 2, 4, 8])


@given(name=names, batch=batches, more=st.floats(1.0, 100.0), context=contexts)
@settings(max_examples=60)
def test_bytes_never_fall_with_the_batch(
    shape_of: ShapeOf, name: str, batch: float, more: float, context: int
) -> None:
    shape = shape_of(name)
    small = step_bytes(shape, Layout(), batch, context)
    large = step_bytes(shape, Layout(), batch * more, context)
    assert large.bytes_per_rank >= small.bytes_per_rank * (1 - 1e-12)


@given(name=names, batch=batches, context=contexts, longer=st.integers(0, 100_000))
@settings(max_examples=60)
def test_bytes_never_fall_with_the_context(
    shape_of: ShapeOf, name: str, batch: float, context: int, longer: int
) -> None:
    shape = shape_of(name)
    short = step_bytes(shape, Layout(), batch, context)
    long = step_bytes(shape, Layout(), batch, context + longer)
    assert long.kv_bytes >= short.kv_bytes * (1 - 1e-12)
    assert long.dense_bytes == short.dense_bytes


@given(name=names, batch=batches, context=contexts, tp=degrees, dp=degrees)
@settings(max_examples=60)
def test_the_parts_sum_to_the_whole(
    shape_of: ShapeOf, name: str, batch: float, context: int, tp: int, dp: int
) -> None:
    step = step_bytes(shape_of(name), Layout(tp=tp, dp=dp), batch, context)
    parts = step.dense_bytes + step.expert_bytes + step.kv_bytes
    assert step.bytes_per_rank == pytest.approx(parts)
    assert step.path_bytes == step.bytes_per_rank
    assert step.seqs_per_rank == batch / dp


@given(name=names, batch=batches, context=contexts, tp=st.sampled_from([2, 4, 8]))
@settings(max_examples=60)
def test_tensor_parallelism_divides_at_most_by_its_degree(
    shape_of: ShapeOf, name: str, batch: float, context: int, tp: int
) -> None:
    one = step_bytes(shape_of(name), Layout(), batch, context)
    some = step_bytes(shape_of(name), Layout(tp=tp), batch, context)
    for part in ("dense_bytes", "expert_bytes", "kv_bytes"):
        whole, rank = getattr(one, part), getattr(some, part)
        assert whole / tp * (1 - 1e-9) <= rank <= whole * (1 + 1e-9)


def test_tensor_parallelism_divides_experts_and_kv_heads_exactly(
    shape_of: ShapeOf,
) -> None:
    shape = shape_of("qwen3-30b-a3b")
    one = step_bytes(shape, Layout(), 16, 2048)
    four = step_bytes(shape, Layout(tp=4), 16, 2048)
    eight = step_bytes(shape, Layout(tp=8), 16, 2048)
    assert four.expert_bytes == pytest.approx(one.expert_bytes / 4)
    assert four.kv_bytes == pytest.approx(one.kv_bytes / 4)
    # Four KV heads: from there on ranks hold copies.
    assert eight.kv_bytes == pytest.approx(one.kv_bytes / 4)


def test_latents_are_whole_on_every_rank(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v3")
    one = step_bytes(shape, Layout(), 16, 2048)
    eight = step_bytes(shape, Layout(tp=8), 16, 2048)
    assert eight.kv_bytes == one.kv_bytes
    dcp = step_bytes(shape, Layout(tp=8, dcp=8), 16, 2048)
    assert dcp.kv_bytes == pytest.approx(one.kv_bytes / 8)


@given(
    name=st.sampled_from(["qwen3-30b-a3b", "deepseek-v3", "deepseek-v4.1-flash"]),
    batch=batches,
    group=st.sampled_from([(1, 8), (8, 1), (2, 4), (4, 2)]),
)
@settings(max_examples=40)
def test_experts_cost_the_same_whole_or_sliced(
    shape_of: ShapeOf, name: str, batch: float, group: tuple[int, int]
) -> None:
    tp, dp = group
    shape = shape_of(name)
    sliced = step_bytes(shape, Layout(tp=tp, dp=dp), batch, 1024)
    whole = step_bytes(shape, Layout(tp=tp, dp=dp, ep=8), batch, 1024)
    assert whole.expert_bytes == sliced.expert_bytes
    assert whole.coverage == sliced.coverage


@given(batch=batches, dp=degrees)
@settings(max_examples=30)
def test_experts_of_all_ranks_do_not_depend_on_how_attention_is_spread(
    shape_of: ShapeOf, batch: float, dp: int
) -> None:
    shape = shape_of("qwen3-30b-a3b")
    one = step_bytes(shape, Layout(), batch, 1024)
    spread = step_bytes(shape, Layout(dp=dp, ep=dp), batch, 1024)
    assert spread.expert_bytes * dp == pytest.approx(one.expert_bytes)
    assert spread.kv_bytes * dp == pytest.approx(one.kv_bytes)


def test_replicas_cover_experts_each_for_itself(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    alone = step_bytes(shape, Layout(), 16, 1024)
    options = StepOptions(dp_shares_experts=False)
    replica = step_bytes(shape, Layout(dp=4), 64, 1024, options)
    assert replica.bytes_per_rank == alone.bytes_per_rank


def test_stages_divide_layers_and_the_path_is_their_sum(shape_of: ShapeOf) -> None:
    shape = shape_of("llama-3.1-70b")
    one = step_bytes(shape, Layout(), 8, 1024)
    four = step_bytes(shape, Layout(pp=4), 32, 1024)
    assert four.seqs_per_rank == 8
    assert four.path_bytes == pytest.approx(one.path_bytes)
    assert four.bytes_per_rank < one.bytes_per_rank / 3


@given(n_layers=st.integers(1, 100), pp=st.integers(1, 16))
def test_stages_take_all_layers_in_order_and_differ_by_one(
    n_layers: int, pp: int
) -> None:
    if pp > n_layers:
        return
    stages = stage_of(n_layers, pp)
    sizes = [stages.count(s) for s in range(pp)]
    assert list(stages) == sorted(stages)
    assert sum(sizes) == n_layers
    assert max(sizes) - min(sizes) <= 1


def test_more_tokens_a_sequence_cover_more_experts_but_no_more_kv(
    shape_of: ShapeOf,
) -> None:
    shape = shape_of("qwen3-30b-a3b")
    plain = step_bytes(shape, Layout(), 4, 1024)
    drafted = step_bytes(shape, Layout(), 4, 1024, StepOptions(tokens_per_sequence=4))
    assert drafted.coverage == step_bytes(shape, Layout(), 16, 1024).coverage
    assert drafted.kv_bytes == plain.kv_bytes


def test_offloaded_tables_move_to_a_lane_of_their_own(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    held = step_bytes(shape, Layout(dp=8, ep=8), 16, 1024)
    away = step_bytes(
        shape, Layout(dp=8, ep=8), 16, 1024, StepOptions(tables_offloaded=True)
    )
    # Two modules, 24 rows of 256 numbers and 8 scales, two sequences a rank.
    assert away.host_bytes == 2 * 2 * 24 * 264
    assert held.host_bytes == 0
    assert held.dense_bytes - away.dense_bytes == pytest.approx(away.host_bytes)


@pytest.mark.parametrize(
    ("name", "layout", "match"),
    [
        ("deepseek-v3", Layout(dp=7, ep=7), "7 does not divide the 256 experts"),
        ("deepseek-v3", Layout(ep=8), "the 1 ranks of tp x dp"),
        ("llama-3-8b", Layout(dp=8, ep=8), "no experts"),
        ("llama-3-8b", Layout(pp=33), "--pp"),
        ("llama-3-8b", Layout(tp=0), "--tp"),
        ("llama-3-8b", Layout(tp=8, dcp=3), "--dcp"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(
    shape_of: ShapeOf, name: str, layout: Layout, match: str
) -> None:
    with pytest.raises(RecipeError, match=match):
        step_bytes(shape_of(name), layout, 1, 1)
