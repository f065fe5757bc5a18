"""Where to measure next: planted models, and the real sweep."""

from collections.abc import Callable

import numpy as np
import pytest

from stepscope.analysis.across.next_points import NextPoint, next_points
from stepscope.analysis.across.records import StepModel
from stepscope.analysis.across.stepmodel import step_models
from stepscope.analysis.records import Analysis, CellResult

Make = Callable[..., CellResult]
SIZES = (2, 4, 8, 16, 32, 64, 128, 256)


def model_of(
    make: Make, law: Callable[[float], float], *, cv: float, repeats: int = 1,
    seed: int = 0, dp: int = 1, more: tuple[int, ...] = (),
) -> StepModel:  # fmt: skip
    rng = np.random.default_rng(seed)
    cells = [
        make(
            name=f"c{size}-r{i}",
            concurrency=size * dp,
            mean_in_flight=float(size * dp),
            tpot_ms=law(size) * float(np.exp(rng.normal(0, cv))),
        )
        for size in (*SIZES, *more)
        for i in range(repeats)
    ]
    (model,), _ = step_models(cells, dp, None)
    return model


def bent(x: float) -> float:
    return 17.0 + 0.08 * max(x - 13.75, 0.0)


def test_a_knee_is_looked_for_where_it_may_lie(result_of: Make) -> None:
    model = model_of(result_of, bent, cv=0.01, repeats=2, seed=5)
    assert model.kind == "hinge"
    found = next_points([model])
    assert [p.target for p in found] == ["knee", "knee"]
    assert model.knee_ci95 is not None
    low, high = model.knee_ci95
    for point in found:
        assert low / 1.5 - 1 <= point.seqs_per_rank <= high * 1.5 + 1
        assert point.narrows_pct is not None
        assert point.narrows_pct > 0
    assert found[0].width_now == pytest.approx(high - low, rel=0.01)
    assert found[1].width_now == found[0].width_after


def test_the_promise_is_kept_on_average(result_of: Make) -> None:
    promised, kept = [], []
    for seed in range(12):
        before = model_of(result_of, bent, cv=0.01, repeats=2, seed=seed)
        if before.kind != "hinge" or before.knee_ci95 is None:
            continue
        found = next_points([before])
        more = tuple(p.concurrency for p in found if not p.measured_before)
        after = model_of(result_of, bent, cv=0.01, repeats=2, seed=seed, more=more)
        if after.kind != "hinge" or after.knee_ci95 is None:
            continue
        promised.append(found[-1].width_after)
        kept.append(after.knee_ci95[1] - after.knee_ci95[0])
    assert len(kept) >= 8
    # Two repeats are measured where one was reckoned with.
    assert 0.3 < np.mean(kept) / np.mean(promised) < 1.3


def test_the_level_of_a_line_is_read_at_its_low_end(result_of: Make) -> None:
    model = model_of(result_of, lambda x: 5 + 0.1 * x, cv=0.01, repeats=2, seed=1)
    assert model.kind == "line"
    found = next_points([model])
    assert {p.target for p in found} == {"level"}
    assert all(p.concurrency <= 8 for p in found)


def test_concurrencies_are_whole_sequences_a_rank(result_of: Make) -> None:
    model = model_of(result_of, bent, cv=0.01, repeats=2, seed=5, dp=8)
    assert all(p.concurrency % 8 == 0 for p in next_points([model], 8))
    assert all(p.concurrency == 8 * p.seqs_per_rank for p in next_points([model], 8))


def test_the_real_sweeps_toll_is_narrowed_at_low_concurrency(
    baseline: Analysis,
) -> None:
    found = next_points(baseline.step_model)
    assert len(found) == 2
    first: NextPoint = found[0]
    assert first.target == "level"
    assert first.width_now == pytest.approx(0.385, abs=0.02)
    # Each row counts once there, so none is proposed again.
    assert [p.measured_before for p in found] == [False, False]
    assert first.concurrency <= 6
    assert first.narrows_pct is not None
    assert 5 < first.narrows_pct < 50
