"""Counts against what publishers say, model by model."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.physics.model.records import ModelShape

ShapeOf = Callable[[str], ModelShape]
PUBLISHED: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "configs" / "published.toml").read_text()
)
EXACT = [name for name, entry in PUBLISHED.items() if entry.get("exact")]
ACTIVE = [name for name, entry in PUBLISHED.items() if "active" in entry]


def test_at_least_twenty_five_models_are_checked_to_the_parameter() -> None:
    assert len(EXACT) >= 25


@pytest.mark.parametrize("name", EXACT)
def test_the_total_is_that_of_the_checkpoint(name: str, shape_of: ShapeOf) -> None:
    assert shape_of(name).params_total == PUBLISHED[name]["total"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_total_is_within_one_percent(name: str, shape_of: ShapeOf) -> None:
    assert shape_of(name).params_total == pytest.approx(
        PUBLISHED[name]["total"], rel=0.01
    )


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_round_to_what_is_published(
    name: str, shape_of: ShapeOf
) -> None:
    shape, entry = shape_of(name), PUBLISHED[name]
    table = shape.vocab_size * shape.hidden_size
    left_out = {"both": 0, "head": table, "none": 2 * table}
    ours = shape.params_active - left_out[entry.get("head_counts", "both")]
    published = entry["active"]
    decimals = len(str(published).partition(".")[2])
    rounded = round(ours / 1e9, decimals)
    assert rounded == published or ours / 1e9 == pytest.approx(published, rel=0.025)


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gpt-oss-20b"])
def test_bytes_are_those_of_the_published_checkpoint(
    name: str, shape_of: ShapeOf
) -> None:
    gib = shape_of(name).weight_bytes / 2**30
    assert gib == pytest.approx(PUBLISHED[name]["checkpoint_gib"], abs=0.05)


def test_weights_of_the_real_h200_server_are_what_its_log_says(
    shape_of: ShapeOf,
) -> None:
    # "Model loading took 56.88 GiB memory"
    assert shape_of("qwen3-30b-a3b").weight_bytes / 2**30 == pytest.approx(
        56.88, abs=0.02
    )


def test_a_dense_model_is_active_as_a_whole(shape_of: ShapeOf) -> None:
    shape = shape_of("llama-3-8b")
    assert shape.experts is None
    assert shape.params_active == shape.params_total
