"""Our bytes explain a real sweep: vLLM, one H200, Qwen3-30B-A3B shapes."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import nnls

from stepscope.physics.model.records import ModelShape
from stepscope.physics.step import step_bytes
from stepscope.recipe.records import Layout

ShapeOf = Callable[[str], ModelShape]
Array = npt.NDArray[np.float64]
BATCH = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)
STEP_MS = np.array([4.15, 5.02, 6.54, 9.13, 12.83, 15.81, 18.3, 20.0, 24.5])


def fitted(columns: Array) -> tuple[Array, float]:
    """Least relative squares with coefficients of 0 or more: them and rms in %."""
    found, residual = nnls(columns / STEP_MS[:, None], np.ones(len(STEP_MS)))
    return found, 100 * residual / len(STEP_MS) ** 0.5


def test_toll_bytes_and_slope_beat_the_line_twentyfold(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    moved = np.array(
        [step_bytes(shape, Layout(), b, 384).bytes_per_rank for b in BATCH]
    )
    one = np.ones(len(BATCH))
    found, rms = fitted(np.column_stack([one, moved / 1e9, BATCH]))
    _, line_rms = fitted(np.column_stack([one, BATCH]))
    toll_ms, ms_per_gb, _ = found
    assert toll_ms == pytest.approx(2.7, abs=0.1)
    assert 1e-12 / (ms_per_gb * 1e-3 / 1e9) == pytest.approx(4.3, abs=0.1)
    assert rms == pytest.approx(1.5, abs=0.1)
    assert line_rms == pytest.approx(31, abs=1)


def test_every_measured_step_lies_above_its_floor(shape_of: ShapeOf) -> None:
    shape = shape_of("qwen3-30b-a3b")
    for batch, took in zip(BATCH, STEP_MS, strict=True):
        floor = step_bytes(shape, Layout(), batch, 384).path_bytes / 4.8e12 * 1e3
        assert floor < took
