from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from stepscope.analysis.across.curves import Points, coverage, plain
from stepscope.analysis.across.fits import aicc, bend_p, better, hinge, linear
from stepscope.analysis.across.records import StepModel
from stepscope.analysis.across.stepmodel import Bytes, step_models
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

Make = Callable[..., CellResult]
SIZES = (2, 4, 8, 16, 32, 64, 128, 256)


def cells(
    make: Make, law: Callable[[float], float], *, cv: float = 0.0, repeats: int = 1,
    seed: int = 0, sizes: Sequence[int] = SIZES, ranks: int = 1,
) -> list[CellResult]:  # fmt: skip
    rng = np.random.default_rng(seed)
    return [
        make(
            name=f"base-c{size}-r{i}",
            concurrency=size * ranks,
            mean_in_flight=float(size * ranks),
            tpot_ms=law(size) * float(np.exp(rng.normal(0, cv))),
        )
        for size in sizes
        for i in range(repeats)
    ]


def one(found: tuple[tuple[StepModel, ...], list[Finding]]) -> StepModel:
    (model,) = found[0]
    return model


def bent(x: float) -> float:
    return 17.0 + 0.08 * max(x - 13.75, 0.0)


def test_a_planted_hinge_comes_back_with_its_intervals(result_of: Make) -> None:
    model = one(
        step_models(cells(result_of, bent, cv=0.01, repeats=3, seed=5), 1, None)
    )
    assert model.kind == "hinge"
    assert model.level_ms == pytest.approx(17.0, abs=0.2)
    assert model.slope_ms_per_seq == pytest.approx(0.08, rel=0.05)
    assert model.level_ci95_ms is not None
    assert model.level_ci95_ms[0] < 17.0 < model.level_ci95_ms[1]
    assert model.slope_ci95 is not None
    assert model.slope_ci95[0] < 0.08 < model.slope_ci95[1]
    assert model.knee_ci95 is not None
    assert model.knee_ci95[0] < 13.75 < model.knee_ci95[1]
    assert model.knee_seqs_per_rank is not None
    assert model.level_ms is not None
    assert model.slope_ms_per_seq is not None
    assert model.asymptote_ms == pytest.approx(
        model.level_ms - model.slope_ms_per_seq * model.knee_seqs_per_rank
    )
    assert model.toll_share["256"] == pytest.approx(100 * 17 / bent(256), rel=0.02)
    assert model.step_source == "client TPOT"


def test_the_intercept_of_a_line_is_not_taken_for_the_level(result_of: Make) -> None:
    model = one(step_models(cells(result_of, bent), 1, None))
    assert model.level_ms == pytest.approx(17.0, abs=0.01)
    x = np.array(SIZES, dtype=float)
    y = np.array([bent(v) for v in SIZES])
    assert linear(np.column_stack([np.ones_like(x), x]), y).theta[0] < 16.8


def test_sequences_are_counted_per_rank(result_of: Make) -> None:
    model = one(step_models(cells(result_of, bent, ranks=8), 8, None))
    assert model.knee_seqs_per_rank == pytest.approx(13.75, rel=0.05)
    assert list(model.toll_share) == [str(8 * size) for size in SIZES]


def test_a_planted_line_and_a_planted_constant_come_back(result_of: Make) -> None:
    rows = cells(result_of, lambda x: 5 + 0.1 * x, cv=0.005, repeats=2, seed=1)
    line = one(step_models(rows, 1, None))
    assert line.kind == "line"
    assert line.level_ms == pytest.approx(5.0, rel=0.02)
    assert line.slope_ms_per_seq == pytest.approx(0.1, rel=0.02)
    assert line.knee_seqs_per_rank is None
    rows = cells(result_of, lambda _: 9.0, cv=0.01, repeats=2, seed=3)
    flat = one(step_models(rows, 1, None))
    assert flat.kind == "constant"
    assert flat.slope_ms_per_seq == 0.0
    assert flat.toll_share["2"] == 100.0


def test_a_knee_at_the_end_of_the_sweep_is_not_claimed(result_of: Make) -> None:
    late = step_models(
        cells(result_of, lambda x: 10 + 0.2 * max(x - 200, 0), cv=0.01, repeats=2),
        1,
        None,
    )
    model = one(late)
    assert model.kind == "hinge"
    assert model.knee_seqs_per_rank is None
    assert model.asymptote_ms is None
    assert model.level_ms == pytest.approx(10.0, rel=0.02)
    assert any(reason.startswith("knee:") for reason in model.rejected)


def test_hinge_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(8)
    sizes = np.array(SIZES, dtype=float)
    x = np.repeat(sizes, 3)
    truth = np.array([bent(v) for v in x])
    hits = {"level": 0, "slope": 0, "knee": 0}
    n = 40
    for _ in range(n):
        found = hinge(x, truth * np.exp(rng.normal(0, 0.01, x.size)), sizes)
        assert found is not None
        for key, ci, value in (
            ("level", found.level_ci, 17.0),
            ("slope", found.slope_ci, 0.08),
            ("knee", found.knee_ci, 13.75),
        ):
            assert ci is not None
            hits[key] += ci[0] <= value <= ci[1]
    # 95 % of 40 is 38; fewer than 33 has a chance below one in a thousand.
    assert min(hits.values()) >= 33


def test_two_sizes_give_no_model_and_say_why(result_of: Make) -> None:
    models, findings = step_models(cells(result_of, bent, sizes=(8, 256)), 1, None)
    assert models == ()
    assert [f.code for f in findings] == ["too-few-sizes"]


def test_three_scattered_points_are_no_constant(result_of: Make) -> None:
    rows = cells(result_of, lambda x: {16: 12.5, 64: 17.9, 256: 22.6}[int(x)],
                 sizes=(16, 64, 256))  # fmt: skip
    models, findings = step_models(rows, 1, None)
    assert models == ()
    assert [f.code for f in findings] == ["step-model-poor"]


def test_a_shape_that_describes_nothing_has_no_toll_share(result_of: Make) -> None:
    rows = cells(result_of, lambda x: 1 + 2 * x**0.5, repeats=2)
    (model,), findings = step_models(rows, 1, None)
    assert model.residual_pct is not None
    assert model.residual_pct > 10
    assert model.toll_share == {}
    assert [f.code for f in findings] == ["step-model-poor"]


def test_void_anomalous_and_partial_cells_stay_out(result_of: Make) -> None:
    rows = cells(result_of, bent)
    rows += [
        result_of(name="void", concurrency=512, mean_in_flight=512.0, tpot_ms=900.0,
                  valid=False),
        result_of(name="first", concurrency=32, mean_in_flight=32.0, tpot_ms=90.0),
        result_of(name="part", concurrency=32, mean_in_flight=25.0, tpot_ms=90.0,
                  waves=3.125),
    ]  # fmt: skip
    model = one(step_models(rows, 1, None, frozenset({"first"})))
    assert model.n_points == len(SIZES)
    assert model.residual_pct == pytest.approx(0.0, abs=0.5)


def test_step_times_of_two_kinds_are_never_mixed(result_of: Make) -> None:
    rows = [
        result_of(
            name=f"c{size}", concurrency=size, mean_in_flight=float(size),
            tpot_ms=10.0, server_tpot_ms=9.0,
            engine_step_ms=8.0 if size < 64 else None,
        )
        for size in SIZES
    ]  # fmt: skip
    model = one(step_models(rows, 1, None))
    assert model.step_source == "server TPOT"
    assert {y for _, y in model.points} == {9.0}


def expert_bytes(x: float) -> float:
    return float(3e9 + 60e9 * (1 - (1 - 8 / 128) ** x))


def moe(x: float) -> float:
    return 2.7 + 1e3 * expert_bytes(x) / 4.3e12 + 0.02 * x


@pytest.mark.parametrize("cv", [0.0, 0.01])
def test_planted_toll_bandwidth_and_slope_come_back(result_of: Make, cv: float) -> None:
    rows = cells(result_of, moe, cv=cv, repeats=2, seed=7, sizes=(1, *SIZES))
    physics = Bytes(at=expert_bytes, peak_bytes_per_s=4.8e12)
    model = one(step_models(rows, 1, lambda _: physics))
    assert model.kind == "coverage"
    assert model.level_ms == pytest.approx(2.7, rel=0.001 + 6 * cv)
    assert model.bandwidth_bytes_per_s == pytest.approx(4.3e12, rel=0.001 + 5 * cv)
    assert model.slope_ms_per_seq == pytest.approx(0.02, rel=0.001 + 15 * cv)
    if cv:
        assert model.bandwidth_ci95 is not None
        assert model.bandwidth_ci95[0] < 4.3e12 < model.bandwidth_ci95[1]
    assert any(reason.startswith("line: it leaves") for reason in model.rejected)


def test_a_bandwidth_above_the_data_sheet_is_refused(result_of: Make) -> None:
    rows = cells(result_of, moe, sizes=(1, *SIZES))
    physics = Bytes(at=expert_bytes, peak_bytes_per_s=2e12)
    model = one(step_models(rows, 1, lambda _: physics))
    assert model.kind != "coverage"
    assert any("x the peak bandwidth" in reason for reason in model.rejected)


def test_coverage_is_not_read_into_a_flat_step(result_of: Make) -> None:
    rows = cells(result_of, lambda _: 9.0, cv=0.01, repeats=3, sizes=(1, *SIZES))
    model = one(step_models(rows, 1, lambda _: Bytes(expert_bytes, 4.8e12)))
    assert model.kind == "constant"


def test_no_term_of_the_coverage_curve_is_negative() -> None:
    x = np.array(SIZES, dtype=float)
    y = 1e3 * np.array([expert_bytes(v) for v in x]) / 4.3e12 - 0.5
    curve = coverage(Points.of(x, y, x), expert_bytes, None)
    assert not isinstance(curve, str)
    assert curve.level == 0.0
    assert curve.slope >= 0.0


def test_the_f_test_and_akaike_refuse_what_small_samples_cannot_carry() -> None:
    assert not better(1.0, 0.5, 3, 2, 3)
    assert aicc(0.1, 4, 3) == float("inf")
    assert aicc(0.1, 20, 3) > aicc(0.1, 20, 2)


def test_rows_that_miss_every_law_count_once(result_of: Make) -> None:
    rng = np.random.default_rng(6)
    off = {size: float(np.exp(rng.normal(0, 0.015))) for size in SIZES}
    rows = cells(result_of, lambda x: bent(x) * off[int(x)], cv=0.002, repeats=3)
    model = one(step_models(rows, 1, None))
    assert (model.n_points, model.n_rows) == (24, 8)
    assert model.level_ci95_ms is not None
    assert model.level_ci95_ms[0] < 17.0 < model.level_ci95_ms[1]
    assert model.level_ci95_ms[1] - model.level_ci95_ms[0] > 0.3
    alike = one(
        step_models(cells(result_of, bent, cv=0.01, repeats=3, seed=6), 1, None)
    )
    assert (alike.n_points, alike.n_rows) == (24, 24)


def test_a_knee_known_to_a_hair_still_has_an_interval() -> None:
    rng = np.random.default_rng(13)
    x = np.repeat(np.array(SIZES, dtype=float), 3)
    y = np.array([bent(v) for v in x]) * np.exp(rng.normal(0, 0.0005, x.size))
    found = hinge(x, y, np.array(SIZES, dtype=float))
    assert found is not None
    low, high = found.knee_ci
    assert low < high < 1.02 * low
    assert low < 13.75 < high


def test_the_asymptote_has_an_interval_that_holds_it(result_of: Make) -> None:
    model = one(
        step_models(cells(result_of, bent, cv=0.01, repeats=3, seed=5), 1, None)
    )
    assert model.asymptote_ci95_ms is not None
    assert model.asymptote_ci95_ms[0] < 17 - 0.08 * 13.75 < model.asymptote_ci95_ms[1]


def test_a_bend_by_luck_is_as_rare_as_it_should_be() -> None:
    rng = np.random.default_rng(14)
    x = np.array(SIZES, dtype=float)
    truth = 5 + 0.1 * x
    y = truth * np.exp(rng.normal(0, 0.01, 8))
    line = linear(np.column_stack([np.ones_like(x), x]), y)
    chance = [bend_p(x, line, x, f) for f in (0.0, 2.0, 20.0, 200.0)]
    assert chance == sorted(chance, reverse=True)
    assert chance[0] > 0.2
    assert chance[3] < 0.01
    kinds = [
        plain(Points.of(x, truth * np.exp(rng.normal(0, 0.01, 8)), x)).kind
        for _ in range(100)
    ]
    assert kinds.count("hinge") <= 12


def test_noise_alone_is_rarely_called_a_slope() -> None:
    rng = np.random.default_rng(21)
    x = np.repeat(np.array(SIZES, dtype=float), 2)
    kinds = [
        plain(Points.of(x, 10 * np.exp(rng.normal(0, 0.01, x.size)), x)).kind
        for _ in range(40)
    ]
    # Each of two tests at 5 %: 4 of 40 are expected at most.
    assert kinds.count("constant") >= 33


def test_five_sizes_suffice_where_their_repeats_agree_better_than_the_law(
    result_of: Make,
) -> None:
    # Rows 1 % off the law and repeats 0.01 % apart count once each: five points for
    # three terms, too few for Akaike's criterion. As measured on one H200.
    off = dict(zip((1, 8, 16, 64, 256), (1.01, 0.99, 1.01, 0.99, 1.005), strict=True))
    rows = cells(
        result_of, lambda x: moe(x) * off[int(x)], cv=0.0001, repeats=3,
        sizes=tuple(off),
    )  # fmt: skip
    physics = Bytes(at=expert_bytes, peak_bytes_per_s=4.8e12)
    model = one(step_models(rows, 1, lambda _: physics))
    assert (model.kind, model.n_points, model.n_rows) == ("coverage", 15, 5)
    assert model.bandwidth_bytes_per_s == pytest.approx(4.3e12, rel=0.1)


def test_five_rows_without_growth_are_no_coverage(result_of: Make) -> None:
    off = dict(zip((1, 8, 16, 64, 256), (1.01, 0.99, 1.01, 0.99, 1.005), strict=True))
    rows = cells(
        result_of, lambda x: 9.0 * off[int(x)], cv=0.0001, repeats=3, sizes=tuple(off)
    )
    model = one(step_models(rows, 1, lambda _: Bytes(expert_bytes, 4.8e12)))
    assert model.kind == "constant"


def test_sequences_that_wait_for_a_place_are_in_no_step(result_of: Make) -> None:
    found = [
        msgspec.structs.replace(
            cell, sequences_per_step=min(float(cell.concurrency or 0), 96.0)
        )
        for cell in cells(result_of, lambda x: 8.0 + 0.1 * min(x, 96.0))
    ]
    model = one(step_models(found, 1, None))
    assert max(x for x, _ in model.points) == 96.0
    assert model.kind == "line"


def test_a_step_that_falls_as_the_batch_grows_is_no_line(result_of: Make) -> None:
    """A server that warms up along the sweep: neither fixed cost nor slope is in it."""

    def falling(a_seq: float) -> list[CellResult]:
        return cells(result_of, lambda x: 10.0 - a_seq * x, cv=0.002, repeats=3, seed=9)

    models, (note,) = step_models(falling(0.015), 1, None)
    assert models == ()
    assert "which no batch does by itself" in note.message
    # A few percent are no law either, and leave a level that is known as well.
    model = one(step_models(falling(0.001), 1, None))
    assert (model.kind, model.slope_ms_per_seq) == ("constant", 0.0)
    assert "line: it falls as the batch grows" in model.rejected
