"""Shapes of published models, read once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from stepscope.physics.model.records import ModelShape
from stepscope.physics.shapes import model_shape

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
ShapeOf = Callable[[str], ModelShape]


@cache
def _shape_of(name: str) -> ModelShape:
    return model_shape((CONFIGS / f"{name}.json").read_text("utf-8"), name)


@pytest.fixture(scope="session")
def shape_of() -> ShapeOf:
    return _shape_of


@pytest.fixture(scope="session")
def shared() -> Path:
    shared = Path(__file__).parents[2].parent / "shared"
    if not shared.exists():
        pytest.skip("no real evidence beside the repository")
    return shared
