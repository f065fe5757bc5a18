"""Which headline numbers stand, and which hole the others have."""

from typing import Any

import pytest
from tests.board.test_timelines import real

from stepscope.analysis.across.records import FloorPoint, RepeatGroup, StepModel
from stepscope.analysis.compare.records import Comparison
from stepscope.board.claims import number
from stepscope.board.holes import SETTLES
from stepscope.findings import Finding

Bench = Any  # tests/board/conftest.py; a conftest can not be imported
NAME = "base-c16-r0"


def repeats(metric: str, mean: float) -> RepeatGroup:
    return RepeatGroup(
        configuration="base",
        session="s0",
        concurrency=16,
        metric=metric,
        cells=(NAME,),
        values=(mean, mean, mean),
        mean=mean,
        ci95=(mean * 0.99, mean * 1.01),
        cv_pct=1.0,
    )


GROUPS = (repeats("output_tokens_per_s", 1600.0), repeats("tpot_ms", 10.0))


def model(**over: Any) -> StepModel:
    fields: dict[str, Any] = {
        "configuration": "base",
        "kind": "line",
        "n_points": 6,
        "level_ms": 10.0,
        "level_ci95_ms": (9.5, 10.5),
        "slope_ms_per_seq": 0.1,
        "slope_ci95": (0.09, 0.11),
        "knee_seqs_per_rank": None,
        "knee_ci95": None,
        "asymptote_ms": None,
        "toll_share": {},
        "residual_pct": 1.0,
    }
    return StepModel(**{**fields, **over})


def test_a_number_from_one_run_is_not_solid(bench: Bench) -> None:
    board = bench.board()
    assert board.solid == ()
    assert "one run, so it has no interval" in board.not_solid[0].why


def test_repeats_make_a_number_solid_and_show_their_interval(bench: Bench) -> None:
    board = bench.board(None, groups=GROUPS)
    assert board.not_solid == ()
    assert any("1,600 output tokens/s" in claim for claim in board.solid)
    assert all("95 % interval" in claim for claim in board.solid)


@pytest.mark.parametrize("code", sorted(SETTLES))
def test_each_hole_is_told_with_what_would_settle_it(bench: Bench, code: str) -> None:
    hole = Finding(code=code, severity="warning", message="seen.", cell=NAME)
    board = bench.board(None, groups=GROUPS, findings=(hole,))
    (first, *_) = board.not_solid
    assert f"{code}: seen" in first.why
    assert first.what_would_settle_it == SETTLES[code]


def test_a_finding_on_another_cell_is_no_hole_here(bench: Bench) -> None:
    hole = Finding(code="stall", severity="warning", message="seen", cell="other")
    assert bench.board(None, groups=GROUPS, findings=(hole,)).not_solid == ()


def test_partial_waves_do_not_touch_tpot(bench: Bench) -> None:
    hole = Finding(code="partial-waves", severity="warning", message="m", cell=NAME)
    board = bench.board(None, groups=GROUPS, findings=(hole,))
    assert any("TPOT" in claim for claim in board.solid)
    assert not any("TPOT" in hole.claim for hole in board.not_solid)


def test_an_unknown_warm_up_is_a_hole_of_a_single_run_only(bench: Bench) -> None:
    cold = Finding(
        code="warmup-unknown", severity="info", message="m", launch="base-l0"
    )
    single = bench.board(None, findings=(cold,))
    assert "warmup-unknown" in single.not_solid[0].why
    assert bench.board(None, groups=GROUPS, findings=(cold,)).not_solid == ()


def test_a_void_cell_has_no_solid_number(bench: Bench) -> None:
    void = bench.result(valid=False, void_reasons=("client-bound",))
    board = bench.board(bench.run(), void, groups=GROUPS)
    assert board.solid == ()
    assert board.not_solid[0].claim == f"every number of {NAME}"


def test_a_large_ratio_needs_no_repeats_and_a_small_one_does(bench: Bench) -> None:
    def claims(rate: float) -> tuple[list[str], list[str]]:
        cells = (bench.cell("a", 1), bench.cell("b", 16))
        board = bench.board(
            bench.run(cells=cells),
            bench.result(name="a", concurrency=1, output_tokens_per_s=100.0),
            bench.result(name="b", output_tokens_per_s=rate),
        )
        return list(board.solid), [hole.claim for hole in board.not_solid]

    assert any("times the throughput" in claim for claim in claims(1600.0)[0])
    assert any("times the throughput" in claim for claim in claims(150.0)[1])


def test_a_wide_interval_is_a_hole(bench: Bench) -> None:
    wide = model(level_ci95_ms=(5.0, 15.0))
    board = bench.board(None, groups=GROUPS, step_model=(wide,))
    assert "50.0 % to either side" in board.not_solid[0].why
    assert bench.board(None, groups=GROUPS, step_model=(model(),)).not_solid == ()


def test_the_floor_says_what_it_assumes(bench: Bench) -> None:
    point = FloorPoint(
        configuration="base",
        concurrency=16,
        seqs_per_rank=15.5,
        coverage=None,
        bytes_per_rank=1e10,
        floor_ms=5.0,
        step_ms=10.0,
        times_floor=2.0,
    )
    solid = bench.board(None, groups=GROUPS, floor=(point,)).solid
    assert any("times its byte floor" in c and "assumes" in c for c in solid)


def test_an_undetermined_comparison_is_not_solid(bench: Bench) -> None:
    unsure = Comparison(
        a="base",
        b="x",
        concurrency=16,
        metric="tpot_ms",
        delta_pct=2.0,
        ci95_pct=(-1.0, 5.0),
        verdict="undetermined",
        runs_needed=7,
    )
    (hole,) = bench.board(None, groups=GROUPS, comparisons=(unsure,)).not_solid
    assert "undetermined" in hole.why
    assert "7 runs" in hole.what_would_settle_it


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4.0, "4.00"),
        (0.02074, "0.0207"),
        (99.97, "100"),
        (1451.5, "1,450"),
        (48159.0, "48,200"),
        (-2.26, "-2.26"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_concurrency_is_not_compared_with_itself(bench: Bench) -> None:
    slow = bench.result(name="base-c16-r1", repeat=1, output_tokens_per_s=1000.0)
    board = bench.board(None, bench.result(), slow)
    told = [*board.solid, *(hole.claim for hole in board.not_solid)]
    assert told
    assert not any("times the throughput" in text for text in told)


def test_the_distance_to_the_floor_is_told_for_each_configuration(
    bench: Bench,
) -> None:
    def point(configuration: str, times: float) -> FloorPoint:
        return FloorPoint(
            configuration=configuration, concurrency=64, seqs_per_rank=64.0,
            coverage=None, bytes_per_rank=1e10, floor_ms=2.0, step_ms=2 * times,
            times_floor=times,
        )  # fmt: skip

    points = (point("base", 1.5), point("other", 3.0))
    told = [c for c in bench.board(None, floor=points).solid if "byte floor" in c]
    assert len(told) == 1
    assert told[0].startswith("base: the step is 1.50 times its byte floor")


class TestWarmUp:
    """A number over repeats says where the board leaves a cold server open."""

    def told(self, bench: Bench, *first: float) -> tuple[list[str], str]:
        cold = Finding(
            code="first-run-contaminated",
            severity="warning",
            message="the first of 4 repeats read low",
            cell="base-c16-cold",
        )
        names = ("base-c16-cold",) * bool(first)
        cells = (bench.cell(NAME), *(bench.cell(n) for n in names))
        results = (
            bench.result(),
            *(
                bench.result(name=n, output_tokens_per_s=v)
                for n, v in zip(names, first, strict=True)
            ),
        )
        board = bench.board(
            bench.run(cells=cells),
            *results,
            groups=GROUPS,
            findings=(cold,) if first else (),
        )
        (warm,) = [e for e in board.entries if e.hypothesis == "warm-up"]
        return [c for c in board.solid if "16" in c and "ratio" not in c], warm.status

    def test_a_mean_without_its_cold_repeat_names_the_hole(self, bench: Bench) -> None:
        solid, status = self.told(bench, 1500.0)
        assert status == "standing"
        assert len(solid) == 2
        for claim in solid:
            assert "base-c16-cold left out" in claim
            assert "warm-up is standing there (first-run-contaminated)" in claim

    def test_without_one_there_is_none_to_name(self, bench: Bench) -> None:
        solid, status = self.told(bench)
        assert status != "standing"
        assert solid
        assert not any("warm-up" in claim for claim in solid)


def test_the_recorded_mean_of_two_warm_repeats_names_the_cold_one() -> None:
    board = real("baseline")
    (claim,) = [c for c in board.solid if "output tokens/s at concurrency 256" in c]
    assert claim.startswith("baseline: 9,430 output tokens/s")
    assert "c256_0 left out" in claim
    assert "warm-up is standing there (stall, first-run-contaminated)" in claim
