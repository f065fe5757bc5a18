"""Intervals hold what they claim, on planted curves and on a real sweep."""

import numpy as np
import pytest

from stepscope.analysis.across.curves import Curve, Points, plain
from stepscope.analysis.across.stepmodel import Bytes, best_curve
from stepscope.analysis.analyze import physics_of
from stepscope.analysis.floor import step_bytes_of
from stepscope.analysis.predict.backtest import doublings_outside, errors
from stepscope.analysis.predict.basis import basis
from stepscope.analysis.records import Analysis
from stepscope.run.run import Run

SIZES = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
N_DRAWS = 60


def line(x: np.ndarray) -> np.ndarray:
    return np.asarray(10 + 0.1 * x)


def drawn(seed: int, cv: float, repeats: int = 1) -> Points:
    rng = np.random.default_rng(seed)
    x = np.repeat(SIZES, repeats)
    y = line(x) * np.exp(rng.normal(0, cv, x.size))
    return Points.of(x, y, x)


def fit(points: Points) -> Curve:
    # A straight line has no knee to look for: fast enough to draw often.
    return plain(Points(points.x, points.y, points.asked, points.sizes[:4]))


@pytest.mark.parametrize(("x", "least"), [(24.0, 0.93), (256.0, 0.90)])
def test_about_95_percent_of_intervals_hold_the_next_run(
    x: float, least: float
) -> None:
    held = 0
    for seed in range(N_DRAWS):
        points = drawn(seed, 0.01)
        found = errors(points, fit)
        assert found is not None
        half = found.half(1.0, 128.0, x)
        assert half is not None
        truth = float(line(np.array([x]))[0])
        seen = np.log(truth) + np.random.default_rng(10_000 + seed).normal(0, 0.01)
        told = float(np.log(fit(points).at(np.array([x]))[0]))
        held += abs(seen - told) <= half
    assert held / N_DRAWS >= least


def test_every_size_left_out_of_a_real_sweep_is_inside_its_interval(
    h200: Run, baseline: Analysis
) -> None:
    bytes_of, _ = step_bytes_of(h200)
    base = basis(baseline.step_model[0], baseline, 1, physics_of(h200, bytes_of))
    known = physics_of(h200, bytes_of)
    assert known is not None
    physics = known(base.cells)
    points = base.points
    misses, halves = {}, {}
    for size in np.unique(points.asked):
        kept = points.asked != size
        left = Points.of(points.x[kept], points.y[kept], points.asked[kept])
        found = errors(left, lambda some: best_curve(some, physics))
        assert found is not None
        x = float(points.x[~kept].mean())
        told = float(best_curve(left, physics).at(np.array([x]))[0])
        seen = float(np.exp(np.log(points.y[~kept]).mean()))
        half = found.half(float(left.sizes[0]), float(left.sizes[-1]), x)
        assert half is not None
        misses[int(size)], halves[int(size)] = np.log(told / seen), half
    assert sorted(misses) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert all(abs(misses[c]) <= halves[c] for c in misses)
    # Inside the sweep the interval is tight enough to be of use.
    assert max(halves[c] for c in misses if 1 < c < 256) < 0.07


def test_errors_grow_with_the_distance_and_end_somewhere() -> None:
    found = errors(drawn(3, 0.02), fit)
    assert found is not None
    inside, near, far = (found.half(1.0, 128.0, x) for x in (64.0, 256.0, 500.0))
    assert inside is not None
    assert near is not None
    assert far is not None
    assert inside < near < far
    assert found.half(1.0, 128.0, 600.0) is None


def test_three_sizes_leave_nothing_to_check_with() -> None:
    points = Points.of(SIZES[:3], line(SIZES[:3]), SIZES[:3])
    assert errors(points, fit) is None


def test_repeats_of_one_size_are_left_out_together() -> None:
    # One size is off by a fifth in all its repeats: only leaving it out shows it.
    points = drawn(1, 0.001, repeats=3)
    y = np.where(points.asked == 16, 1.2 * points.y, points.y)
    found = errors(Points.of(points.x, y, points.asked), fit)
    assert found is not None
    assert found.inside > 0.05


def test_a_hundredth_beyond_the_range_is_inside() -> None:
    assert doublings_outside(1.0, 254.0, 256.0) == 0
    assert doublings_outside(1.0, 256.0, 512.0) == pytest.approx(1)
    assert doublings_outside(4.0, 256.0, 1.0) == pytest.approx(2)


def test_five_sizes_are_checked_by_the_shape_in_use() -> None:
    # Leaving one of five out leaves four, too few to report bytes from; a constant in
    # their place would say nothing of the shape in use.
    def read(x: float) -> float:
        return float(3e9 + 60e9 * (1 - (1 - 8 / 128) ** x))

    off = (1.01, 0.99, 1.01, 0.99, 1.005)
    x = np.repeat([1.0, 8, 16, 64, 256], 2)
    y = np.array([2.7 + 1e3 * read(v) / 4.3e12 for v in x]) * np.repeat(off, 2)
    physics = Bytes(at=read, peak_bytes_per_s=4.8e12)
    points = Points.of(x, y, x)
    checked = errors(
        points,
        lambda some: best_curve(some, physics),
        lambda some: best_curve(some, physics, least_sizes=4),
    )
    assert checked is not None
    half = checked.half(1.0, 256.0, 32.0)
    assert half is not None
    assert half < 0.2
