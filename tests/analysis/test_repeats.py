from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from stepscope.analysis.across.anomalies import ttft_findings
from stepscope.analysis.across.groups import interval, repeat_findings, repeat_groups
from stepscope.analysis.across.warmup import warm_up_findings
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Cell, Run

Make = Callable[..., CellResult]


def point(
    make: Make, concurrency: int, values: list[float], configuration: str = "base"
) -> list[CellResult]:
    return [
        make(
            name=f"{configuration}-c{concurrency}-r{i}",
            configuration=configuration,
            concurrency=concurrency,
            repeat=i,
            output_tokens_per_s=value,
        )
        for i, value in enumerate(values)
    ]


def coded(findings: list[Finding], code: str) -> list[Finding]:
    return [f for f in findings if f.code == code]


def test_the_interval_is_students_on_logs() -> None:
    values = (3291.0, 3300.0, 3293.0)
    ci, cv = interval(values)
    assert ci is not None
    logs = np.log(values)
    half = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / np.sqrt(3)
    assert ci == pytest.approx(
        (float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half)))
    )
    assert cv == pytest.approx(100 * logs.std(ddof=1))


def test_one_run_has_no_interval_and_says_so(result_of: Make) -> None:
    cells = [*point(result_of, 8, [100.0]), *point(result_of, 16, [200.0, 201.0])]
    groups = repeat_groups(cells)
    assert [g.ci95 is None for g in groups] == [True, False]
    (finding,) = coded(repeat_findings(cells), "no-repeats")
    assert finding.message.endswith("at concurrency 8")


def test_void_warm_up_failed_and_other_workloads_are_no_repeats(
    result_of: Make,
) -> None:
    cells = [
        *point(result_of, 8, [100.0, 101.0]),
        result_of(name="v", output_tokens_per_s=500.0, valid=False),
        result_of(name="w", output_tokens_per_s=500.0, warm_up=True),
        result_of(name="f", output_tokens_per_s=500.0, n_failed=20),
        result_of(name="n", output_tokens_per_s=500.0, n_prompts=99),
        result_of(name="i", output_tokens_per_s=500.0, asked_input_tokens=9),
        result_of(name="s", output_tokens_per_s=500.0, session="s1"),
    ]
    sizes = sorted(len(g.values) for g in repeat_groups(cells))
    assert sizes == [1, 1, 1, 2]


def test_a_first_run_six_percent_low_is_told_and_left_out(result_of: Make) -> None:
    cells = [
        *point(result_of, 64, [3291.0, 3300.0, 3293.0]),
        *point(result_of, 256, [8838.0, 9423.0, 9439.0]),
    ]
    (finding,) = coded(repeat_findings(cells), "first-run-contaminated")
    assert finding.cell == "base-c256-r0"
    assert "6.3 % low (8838, 9423, 9439" in finding.message
    groups = repeat_groups(cells, frozenset({"base-c256-r0"}))
    assert groups[-1].values == (9423.0, 9439.0)


def test_a_point_whose_cells_are_all_left_out_keeps_them(result_of: Make) -> None:
    cells = point(result_of, 8, [100.0])
    (group,) = repeat_groups(cells, frozenset({"base-c8-r0"}))
    assert group.values == (100.0,)


def test_equal_runs_are_seldom_called_contaminated(result_of: Make) -> None:
    rng = np.random.default_rng(11)
    flagged = 0
    for _ in range(200):
        cells = [
            cell
            for concurrency in (8, 16, 32)
            for cell in point(
                result_of, concurrency, list(np.exp(rng.normal(7, 0.01, 3)))
            )
        ]
        flagged += len(coded(repeat_findings(cells), "first-run-contaminated"))
    # 600 first runs at 5 %, less those below 2 %.
    assert flagged < 35


def row(
    make: Make, concurrency: int, ttft: float, name: str | None = None
) -> CellResult:
    return make(name=name or f"c{concurrency}", concurrency=concurrency, ttft_ms=ttft)


def test_a_row_above_both_neighbours_is_flagged(result_of: Make) -> None:
    seed = [row(result_of, c, t) for c, t in ((32, 250), (64, 1008), (128, 679))]
    (finding,) = ttft_findings(seed)
    assert finding.cell == "c64"
    assert "1008 ms at concurrency 64, with 250 ms at 32 and 679 ms at 128" in (
        finding.message
    )


def test_two_bad_rows_beside_each_other_are_both_flagged(result_of: Make) -> None:
    rows = ((4, 90), (8, 100), (16, 900), (32, 950), (64, 200), (128, 300))
    found = ttft_findings([row(result_of, c, t) for c, t in rows])
    assert [f.cell for f in found] == ["c16", "c32"]


def test_a_rising_ttft_is_not_flagged(result_of: Make) -> None:
    rows = ((1, 24), (2, 38), (4, 99), (8, 102), (16, 110), (64, 108), (128, 436))
    assert ttft_findings([row(result_of, c, t) for c, t in rows]) == []


def test_only_the_bad_repeat_of_a_row_is_flagged(result_of: Make) -> None:
    cells = [row(result_of, 8, 100), row(result_of, 64, 300)]
    cells += [row(result_of, 16, t, f"c16-r{i}") for i, t in enumerate((120, 900, 125))]
    assert [f.cell for f in ttft_findings(cells)] == ["c16-r1"]


def test_with_repeats_a_smaller_excess_stands_out(result_of: Make) -> None:
    def sweep(middle: float) -> list[CellResult]:
        cells = [
            row(result_of, c, t * k, f"c{c}-r{i}")
            for c, t in ((4, 90.0), (8, 100.0), (32, 120.0), (64, 130.0))
            for i, k in enumerate((0.99, 1.0, 1.01))
        ]
        return [*cells, row(result_of, 16, middle)]

    assert [f.cell for f in ttft_findings(sweep(140.0))] == ["c16"]
    assert ttft_findings(sweep(128.0)) == []
    alone = [row(result_of, c, t) for c, t in ((8, 100), (16, 140), (32, 120))]
    assert ttft_findings(alone) == []


def test_void_cells_and_other_sessions_are_no_neighbours(result_of: Make) -> None:
    cells = [
        row(result_of, 8, 100),
        row(result_of, 16, 1000),
        result_of(name="v", concurrency=32, ttft_ms=200.0, valid=False),
        result_of(name="s", concurrency=32, ttft_ms=200.0, session="s1"),
    ]
    assert ttft_findings(cells) == []


@pytest.mark.parametrize(
    ("rates", "code"),
    [
        ([90.0, 95.0], "warmup-unknown"),
        ([500.0, 700.0, 800.0, 870.0, 920.0, 960.0], "warmup-not-converged"),
        ([700.0, 900.0, 1000.0, 1001.0, 999.0, 1000.0, 1002.0, 1000.0], None),
    ],
)
def test_warm_up_is_judged_by_its_last_six_blocks(
    result_of: Make,
    cell_of: Callable[..., Cell],
    run_of: Callable[..., Run],
    rates: list[float],
    code: str | None,
) -> None:
    blocks = [
        result_of(name=f"w{i}", warm_up=True, output_tokens_per_s=rate)
        for i, rate in enumerate(rates)
    ]
    run = run_of(cell_of())
    found = warm_up_findings(run, [*blocks, result_of()])
    assert [f.code for f in found] == ([] if code is None else [code])
    assert all(f.launch == "base-l0" for f in found)


def test_a_copy_is_no_repeat(result_of: Make) -> None:
    cells = [
        result_of(name=f"r{i}", output_tokens_per_s=rate, tpot_ms=10.0)
        for i, rate in enumerate((711.1111, 711.1111, 712.2222, 700.0, 700.0))
    ]
    (rates, _) = repeat_groups(cells)
    # Two round figures may agree by chance.
    assert rates.cells == ("r0", "r2", "r3", "r4")
    (note,) = [f for f in repeat_findings(cells) if f.code == "copied-results"]
    assert note.cell == "r1"
    assert "that of r0" in note.message
