"""The post's own figures from its inputs, and the corrected ones from the shapes.

Its dense 7.6 GB and expert 259.5 GiB are inputs here; the shapes give 8.5 GB and
268.95 GiB because scales, router, hyper-connections and compressors are read too.
"""

from collections.abc import Callable

import pytest

from stepscope.physics.coverage import coverage
from stepscope.physics.model.records import ModelShape
from stepscope.physics.step import step_bytes
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]
LAYOUT = Layout(dp=8, ep=8)
BANDWIDTH = 8e12


@pytest.mark.parametrize(
    ("tokens", "gigabytes", "milliseconds"),
    [(16, 15.36, 1.92), (128, 37.79, 4.72), (10**6, 42.43, 5.30)],
)
def test_the_posts_figures_follow_from_its_inputs(
    tokens: int, gigabytes: float, milliseconds: float
) -> None:
    experts = 259.5 / 8 * 2**30
    moved = 7.6e9 + coverage(tokens, 384, 6) * experts
    assert round(moved / 1e9, 2) == gigabytes
    assert round(moved / BANDWIDTH * 1e3, 2) == milliseconds


def test_an_expert_holds_its_scales(shape_of: ShapeOf) -> None:
    experts = shape_of("deepseek-v4.1-flash").experts
    assert experts is not None
    assert experts.params_each == 35_389_440
    assert experts.bytes_each == 18_800_640


def test_experts_take_268_95_gib_and_a_rank_an_eighth(shape_of: ShapeOf) -> None:
    weights = shape_of("deepseek-v4.1-flash").weights
    total = sum(w.n_bytes for w in weights if w.read == "coverage")
    assert round(total / 2**30, 2) == 268.95
    assert round(total / 8 / 2**30, 2) == 33.62


def test_the_posts_259_5_gib_are_payload_alone_with_the_drafts_experts(
    shape_of: ShapeOf,
) -> None:
    experts = shape_of("deepseek-v4.1-flash").experts
    assert experts is not None
    n = experts.n * experts.n_layers + 3 * 128
    assert n * experts.params_each * 0.5 / 2**30 == pytest.approx(259.5, abs=0.06)


def test_engram_takes_188_83_gib(shape_of: ShapeOf) -> None:
    tables = [
        w for w in shape_of("deepseek-v4.1-flash").weights if w.name == "engram.embed"
    ]
    assert [w.n_rows for w in tables] == [384_006_168, 384_016_682]
    assert round(sum(w.n_bytes for w in tables) / 2**30, 2) == 188.83
    assert [round(w.n_bytes / 8 / 2**30, 2) for w in tables] == [11.80, 11.80]


def test_dense_reads_are_near_8_48_gb(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    step = step_bytes(shape, LAYOUT, 16, 0)
    small = ("compressor", "indexer.w", "indexer.k", "norm", "sink", "hc_head", "bias")
    left_out = sum(
        w.n_bytes
        for w in shape.weights
        if w.read == "step" and any(s in w.name for s in small)
    ) - sum(w.n_bytes for w in shape.weights if w.name == "attn.indexer.wq_b")
    # What the hand calculation counted, and the small weights that it left out.
    assert (step.dense_bytes - left_out) / 1e9 == pytest.approx(8.48, abs=0.01)
    assert 0.03e9 < left_out < 0.06e9


@pytest.mark.parametrize(
    ("batch", "milliseconds"), [(16, 2.07), (128, 4.97), (10**4, 5.57)]
)
def test_the_corrected_floor(
    shape_of: ShapeOf, batch: int, milliseconds: float
) -> None:
    step = step_bytes(shape_of("deepseek-v4.1-flash"), LAYOUT, batch, 2048)
    floor = (step.dense_bytes + step.expert_bytes) / BANDWIDTH * 1e3
    assert floor == pytest.approx(milliseconds, rel=0.006)


def test_the_backbone_is_the_published_552_billion(shape_of: ShapeOf) -> None:
    shape = shape_of("deepseek-v4.1-flash")
    backbone = shape.params_total - shape.params_table
    assert round(backbone / 1e9) == 552
    assert shape.params_table == 768_022_850 * 256
