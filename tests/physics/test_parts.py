"""What a step's dense reads consist of."""

from collections.abc import Callable

import pytest

from stepscope.physics.model.records import ModelShape
from stepscope.physics.parts import dense_parts, resident_bytes
from stepscope.physics.step import StepOptions, step_bytes
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]


@pytest.mark.parametrize(
    "name",
    [
        "llama-3-8b", "qwen3-next-80b-a3b", "deepseek-v4.1-flash", "glm-4.5",
        "nemotron-3-nano-30b-a3b", "jamba-1.5-mini", "deepseek-v4-flash",
    ],
)  # fmt: skip
def test_parts_sum_to_the_dense_bytes(name: str, shape_of: ShapeOf) -> None:
    shape = shape_of(name)
    # An embedding row and an Engram row or two are gathered on top.
    step = step_bytes(shape, Layout(tp=2), 1, 0)
    parts = dense_parts(shape, Layout(tp=2))
    assert step.dense_bytes == pytest.approx(sum(parts.values()), rel=1e-4)
    assert step.dense_bytes > sum(parts.values())


def test_deepseek_v41_reads_are_named(shape_of: ShapeOf) -> None:
    parts = dense_parts(shape_of("deepseek-v4.1-flash"), Layout(dp=8, ep=8))
    assert next(iter(parts)) == "attention"
    assert {"engram", "hyper-connections", "compressor", "indexer", "head"} <= set(
        parts
    )
    # Two modules of (4 + 1) x 5120 outputs and 24 x 256 inputs, fp8 in 32 x 32 blocks.
    assert parts["engram"] == pytest.approx(2 * 25_600 * 6_144 * 1025 / 1024, rel=1e-3)


def test_gates_of_an_mlp_are_no_router(shape_of: ShapeOf) -> None:
    assert "router" not in dense_parts(shape_of("llama-3-8b"), Layout())
    assert dense_parts(shape_of("mixtral-8x7b"), Layout())["router"] == (
        32 * 8 * 4096 * 2
    )


def test_stages_hold_their_own_layers(shape_of: ShapeOf) -> None:
    shape, options = shape_of("llama-3.1-70b"), StepOptions()
    whole = resident_bytes(shape, Layout(), options)
    quarter = resident_bytes(shape, Layout(pp=4), options)
    assert whole == shape.weight_bytes
    assert whole / 4 < quarter < whole / 4 * 1.05


def test_a_rank_of_the_post_holds_what_its_log_nearly_says(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    held = resident_bytes(shape, Layout(dp=8, ep=8), StepOptions(tables_offloaded=True))
    # Measured: 45.11 GiB with the vision tower (0.9) and copies that the engine keeps.
    assert 42 < held / 2**30 < 45.11
    with_tables = resident_bytes(shape, Layout(dp=8, ep=8), StepOptions())
    # Measured difference of the two boots: 23.61 GiB.
    assert (with_tables - held) / 2**30 == pytest.approx(23.61, abs=0.02)
