"""Operations and the roof that binds."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.physics.hardware import Gpu, find_gpu
from stepscope.physics.model.records import ModelShape
from stepscope.physics.roof import crossover_batch, operations, peak, roofs
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]


def gpu(name: str) -> Gpu:
    found = find_gpu(name)
    assert found is not None
    return found


def test_a_dense_token_costs_two_operations_a_parameter(shape_of: ShapeOf) -> None:
    shape = shape_of("llama-3-8b")
    read = shape.params_total - shape.vocab_size * shape.hidden_size  # embedding
    assert operations(shape, Layout(), 1, 0).weights == 2 * read


def test_a_routed_token_costs_its_own_experts_only(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    read = shape.params_active - shape.vocab_size * shape.hidden_size
    assert operations(shape, Layout(), 1, 0).weights == pytest.approx(2 * read)


def test_attention_of_one_entry_is_a_product_and_a_sum_a_head(
    shape_of: ShapeOf,
) -> None:
    shape = shape_of("llama-3-8b")
    # 32 layers, 32 heads of 128: q.k and p.v, two operations each.
    assert operations(shape, Layout(), 1, 10).attention == 32 * 32 * 128 * 4 * 10


@given(batch=st.floats(1, 1e5), tp=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=30)
def test_ranks_share_the_work_of_experts_evenly(
    shape_of: ShapeOf, batch: float, tp: int
) -> None:
    shape = shape_of("deepseek-v3")
    one = operations(shape, Layout(), batch, 0)
    many = operations(shape, Layout(tp=tp), batch, 0)
    assert one.weights / tp <= many.weights * (1 + 1e-9)
    assert many.weights <= one.weights * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("H200", "bf16", 989.4e12), ("H200", "fp8", 1978.9e12),
        ("H200", "int4", 989.4e12), ("H200", "mxfp4 experts, bf16 rest", 1978.9e12),
        ("B200", "nvfp4", 9000e12), ("A100", "fp8", 312e12), ("A100", "int8", 624e12),
    ],
)  # fmt: skip
def test_the_peak_is_the_highest_that_the_form_can_reach(
    name: str, form: str, expected: float
) -> None:
    assert peak(gpu(name), form) == expected


def test_the_highest_lane_binds() -> None:
    assert roofs(2.0, 1.0, 3.0, None).binds == "communication"
    assert roofs(2.0, 1.0, None, None).binds == "memory"
    assert roofs(2.0, 1.0, 0.0, 9.0).binds == "host"


def test_a_dense_model_turns_compute_bound_at_the_machines_balance(
    shape_of: ShapeOf,
) -> None:
    shape, device = shape_of("llama-3-8b"), gpu("H200")
    crossing = crossover_batch(shape, Layout(), device, 0)
    balance = device.peaks["bf16"] / device.bandwidth_bytes_per_s  # 2 ops, 2 bytes
    assert crossing == pytest.approx(balance, rel=0.03)


def test_long_contexts_never_turn_compute_bound(shape_of: ShapeOf) -> None:
    assert crossover_batch(shape_of("llama-2-7b"), Layout(), gpu("H200"), 4096) is None
