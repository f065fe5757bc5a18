"""The real sweep of an H200: figures that must come out."""

from dataclasses import dataclass

import pytest

from stepscope.analysis.records import Analysis, CellResult


@dataclass(frozen=True)
class Golden:
    """One row: tokens/s, TTFT, TPOT, the server's TPOT; milliseconds."""

    rate: float
    ttft: float
    tpot: float
    server: float


GOLDEN = {
    "c1_0": Golden(236.6, 24, 4.15, 4.15),
    "c8_0": Golden(842.0, 102, 9.13, 9.13),
    "c16_0": Golden(959.8, 992, 12.83, 12.83),
    "c32_0": Golden(1925.3, 219, 15.81, 15.81),
    "recipe_c32": Golden(1765.3, 202, 15.48, 15.48),
    "c64_0": Golden(3291, 311, 18.24, 18.24),
    "c64_1": Golden(3300, 283, 18.31, 18.32),
    "c64_2": Golden(3293, 277, 18.38, 18.38),
    "c256_0": Golden(8837.8, 719, 26.08, 26.13),
    "c256_1": Golden(9423, 652, 24.52, 24.55),
    "c512_0": Golden(12424.5, 1466, 35.23, 30.87),
}


def cell(analysis: Analysis, name: str) -> CellResult:
    return next(c for c in analysis.cells if c.name == name)


@pytest.mark.parametrize("name", GOLDEN)
def test_rates_and_latencies_are_those_of_the_reference_client(
    baseline: Analysis, name: str
) -> None:
    found, want = cell(baseline, name), GOLDEN[name]
    assert found.output_tokens_per_s == pytest.approx(want.rate, rel=0.0006)
    assert found.ttft_ms.mean == pytest.approx(want.ttft, abs=0.6)
    assert found.tpot_ms.mean == pytest.approx(want.tpot, abs=0.006)
    assert found.server_tpot_ms == pytest.approx(want.server, abs=0.006)


def test_every_identity_closes(baseline: Analysis, details: Analysis) -> None:
    for found in (*baseline.cells, *details.cells):
        assert found.little_residual == pytest.approx(0.0, abs=1e-6)
        assert found.decode_efficiency_residual == pytest.approx(0.0, abs=1e-6)
        assert found.chunks_per_token is not None
        assert 0.99 < found.chunks_per_token <= 1.0


def test_only_the_widest_cell_is_void_and_it_convicts_its_client(
    baseline: Analysis,
) -> None:
    void = {c.name: c.void_reasons for c in baseline.cells if not c.valid}
    assert void == {"c512_0": ("client-bound",)}
    assert cell(baseline, "c512_0").client_tpot_error_pct == pytest.approx(
        14.1, abs=0.1
    )
    others = [c.client_tpot_error_pct for c in baseline.cells if c.valid]
    assert all(gap is not None and abs(gap) < 0.3 for gap in others)


#: code -> cells that must carry it, and no other.
FINDINGS = {
    "client-bound": ["c512_0"],
    "partial-waves": ["recipe_c32"],
    "jit-during-measurement": ["warm0"],
    "ttft-not-monotone": ["c16_0"],
    "stall": ["c16_0", "c256_0"],
    "first-run-contaminated": ["c256_0"],
    "little-violated": [],
    "token-count-mismatch": [],
    "clock-step": [],
    "early-stop": [],
    "failed-requests": [],
    "prefix-cache-hits": [],
    "preemptions": [],
    "frontend-bound": [],
    "other-traffic": [],
    "slots-empty": [],
    "telemetry-window-mismatch": [],
    "telemetry-too-sparse": [],
}


@pytest.mark.parametrize("code", FINDINGS)
def test_findings_name_the_right_cells(baseline: Analysis, code: str) -> None:
    assert [f.cell for f in baseline.findings if f.code == code] == FINDINGS[code]


def test_findings_carry_their_numbers(baseline: Analysis) -> None:
    said = {(f.code, f.cell): f.message for f in baseline.findings}
    stall = said["stall", "c16_0"]
    assert "1.83 s" in stall
    assert "first wave 1845 ms, of the others 138 ms" in stall
    assert "6.3 % low" in said["first-run-contaminated", "c256_0"]
    assert "992 ms" in said["ttft-not-monotone", "c16_0"]
    assert "3.125 waves" in said["partial-waves", "recipe_c32"]
    assert "1, 2, 4, 8, 16, 32, 128" in said["no-repeats", None]


def test_the_recipes_command_holds_nine_tenths_of_its_slots(baseline: Analysis) -> None:
    found = cell(baseline, "recipe_c32")
    assert found.occupancy == pytest.approx(0.894, abs=0.001)
    assert found.steady_output_tokens_per_s is not None
    assert found.steady_output_tokens_per_s > 1925
    assert found.occupancy_expected is not None
    assert 0.7 < found.occupancy_expected[0] < found.occupancy_expected[1] < 0.91


def test_utilization_is_of_the_span_with_what_the_clock_leaves(
    baseline: Analysis,
) -> None:
    for found in baseline.cells:
        telemetry = found.telemetry
        assert telemetry is not None
        inside, of = telemetry.n_samples_in_window, telemetry.n_samples_total
        assert inside is not None
        assert of is not None
        assert inside < of
        assert telemetry.util_pct is not None
        assert telemetry.util_pct_range is not None
        low, high = telemetry.util_pct_range
        assert low <= telemetry.util_pct <= high
        assert low < high
        if found.name == "c16_0":
            assert telemetry.util_pct == pytest.approx(76, abs=1)
        elif not found.warm_up:
            assert 87 < telemetry.util_pct <= 100


def test_repeats_have_an_interval_and_the_contaminated_read_is_out(
    baseline: Analysis,
) -> None:
    rates = {
        (g.concurrency, g.n_prompts): g
        for g in baseline.groups
        if g.metric == "output_tokens_per_s"
    }
    at_64 = rates[64, 128]
    assert at_64.ci95 is not None
    assert at_64.ci95[0] < min(at_64.values)
    assert at_64.ci95[1] > max(at_64.values)
    assert rates[256, 512].cells == ("c256_1", "c256_2")
    assert rates[32, 64].ci95 is None
    assert rates[32, 100].cells == ("recipe_c32",)
    assert (512, 1024) not in rates


def test_the_step_is_a_toll_and_bytes_over_a_bandwidth(baseline: Analysis) -> None:
    (model,) = baseline.step_model
    assert model.kind == "coverage"
    assert model.step_source == "server TPOT"
    assert model.n_points == 12
    # Repeats agree to 0.3 %, rows miss the law by 1.5 %: each of nine counts once.
    assert model.n_rows == 9
    assert model.level_ci95_ms == pytest.approx((2.55, 2.93), abs=0.01)
    assert model.level_ms == pytest.approx(2.76, abs=0.05)
    assert model.bandwidth_bytes_per_s == pytest.approx(4.31e12, rel=0.02)
    assert model.residual_pct == pytest.approx(1.45, abs=0.1)
    assert any(r.startswith("line: it leaves 3") for r in model.rejected)
    assert model.toll_share["1"] > 60
    assert model.toll_share["256"] < 13


def test_the_floor_lies_below_every_step(baseline: Analysis) -> None:
    assert [p.concurrency for p in baseline.floor] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for point in baseline.floor:
        assert point.times_floor is not None
        assert point.times_floor > 1.3
    last = baseline.floor[-1]
    assert last.step_ms == pytest.approx(24.51, abs=0.02)
    assert last.floor_ms == pytest.approx(14.6, abs=0.3)


@pytest.mark.parametrize(
    ("name", "period"), [("c16_0", 12.4), ("c64_0", 17.9), ("c256_0", 22.4)]
)
def test_the_engines_period_comes_from_the_lines_and_is_not_the_elapsed(
    details: Analysis, name: str, period: float
) -> None:
    found = cell(details, name)
    assert found.engine_step_ms == pytest.approx(period, rel=0.012)
    assert found.engine_step_source == "iteration lines"
    # What the lines call elapsed: 8.9, 12.1 and 11.0 ms.
    assert found.engine_step_ms is not None
    assert found.engine_step_ms > 12.2
    assert found.prefill_share_of_steps is not None
    assert 0 < found.prefill_share_of_steps < 0.05


def test_counters_are_clipped_to_the_cell(details: Analysis) -> None:
    telemetry = cell(details, "c64_0").telemetry
    assert telemetry is not None
    assert telemetry.dram_bw_pct_median == pytest.approx(72.8, abs=1)
    assert telemetry.sm_active_pct == pytest.approx(81, abs=3)


def test_three_sizes_measured_once_give_no_step_model(details: Analysis) -> None:
    assert details.step_model == ()
    assert "step-model-poor" in [f.code for f in details.findings]
