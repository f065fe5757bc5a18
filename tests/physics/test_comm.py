"""What ranks must tell each other."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.physics.comm import communication
from stepscope.physics.hardware import find_gpu
from stepscope.physics.model.records import ModelShape
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]


def test_one_rank_has_nobody_to_talk_to(shape_of: ShapeOf) -> None:
    alone = communication(shape_of("llama-3-8b"), Layout(), 8)
    assert alone.collectives == ()
    assert (alone.bytes_per_rank, alone.floor_ms) == (0, 0)


def test_tensor_parallelism_reduces_twice_a_layer(shape_of: ShapeOf) -> None:
    talk = communication(shape_of("llama-3-8b"), Layout(tp=8), 16)
    reduce = talk.collectives[0]
    assert (reduce.name, reduce.per_step) == ("all-reduce", 64)
    # 2 (n-1)/n of 16 rows of 4096 two-byte numbers, 64 times.
    assert reduce.bytes_per_rank == pytest.approx(2 * 7 / 8 * 16 * 4096 * 2 * 64)


def test_dense_replicas_do_not_talk(shape_of: ShapeOf) -> None:
    assert communication(shape_of("llama-3-8b"), Layout(dp=8), 16).bytes_per_rank == 0


def test_experts_over_data_parallel_ranks_gather_and_scatter(shape_of: ShapeOf) -> None:
    talk = communication(shape_of("qwen3-30b-a3b"), Layout(dp=4), 16)
    assert [c.name for c in talk.collectives] == ["all-gather", "reduce-scatter"]
    assert talk.collectives[0].bytes_per_rank == 3 * 4 * 2048 * 2 * 48


@given(batch=st.floats(1, 1e4), ep=st.sampled_from([2, 4, 8, 16, 32]))
@settings(max_examples=30)
def test_sending_to_the_chosen_experts_is_never_more_than_gathering(
    shape_of: ShapeOf, batch: float, ep: int
) -> None:
    shape = shape_of("deepseek-v3")
    chosen = communication(shape, Layout(dp=ep, ep=ep), batch).bytes_per_rank
    gathered = communication(shape, Layout(dp=ep), batch).bytes_per_rank
    assert chosen <= gathered * (1 + 1e-9)


def test_the_floor_is_volume_over_the_link(shape_of: ShapeOf) -> None:
    gpu = find_gpu("H200")
    talk = communication(shape_of("llama-3.1-70b"), Layout(tp=8), 64, gpu)
    assert talk.floor_ms == pytest.approx(talk.bytes_per_rank / 450e9 * 1e3)


def test_a_link_of_unknown_rate_has_no_floor(shape_of: ShapeOf) -> None:
    gpu = find_gpu("TPU v5e")
    assert communication(shape_of("llama-3-8b"), Layout(tp=4), 8, gpu).floor_ms is None


def test_stages_send_the_residual_streams(shape_of: ShapeOf) -> None:
    talk = communication(shape_of("deepseek-v4.1-flash"), Layout(pp=2), 8)
    (send,) = talk.collectives
    assert send.bytes_per_rank == 4 * 5120 * 2 * 4
