"""The steady part of a cell: planted transients, drifts and waves."""

from collections.abc import Callable

import numpy as np
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.steady import (
    LEAST_STEPS,
    batch_means_error_pct,
    halves,
    held_window,
    mser5,
    steady,
    step_series,
)
from stepscope.analysis.records import Analysis
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Run

Served = Callable[..., tuple[Request, ...]]
MakeCell = Callable[..., Cell]
MakeRun = Callable[..., Run]
Codes = Callable[..., list[str]]
MS = 1_000_000


def test_a_planted_transient_is_cut_off() -> None:
    rng = np.random.default_rng(4)
    series = 1 + rng.normal(0, 0.02, 400)
    series[:60] += np.linspace(0.3, 0.0, 60)
    assert 40 <= mser5(series) <= 100
    assert mser5(series[:40]) == 0


def test_the_batch_error_of_known_noise_is_what_it_should_be() -> None:
    rng = np.random.default_rng(5)
    found = [
        batch_means_error_pct(1 + rng.normal(0, 0.02, 2000)) or 0.0 for _ in range(50)
    ]
    assert np.mean(found) == pytest.approx(100 * 2.093 * 0.02 / np.sqrt(2000), rel=0.1)
    assert batch_means_error_pct(np.ones(LEAST_STEPS - 1)) is None


def test_halves_tell_a_planted_change() -> None:
    rng = np.random.default_rng(6)
    series = np.concatenate((np.ones(500), 1.05 * np.ones(500)))
    change, error = halves(series + rng.normal(0, 0.01, 1000))
    assert change == pytest.approx(np.log(1.05), abs=0.003)
    assert error is not None
    assert error < 0.002


def test_places_count_from_zero_in_each_answer(served: Served) -> None:
    (piece,) = columns(served(8, 4, tokens=5)).chunks.pieces()
    assert piece.gap_places.tolist() == [0, 1, 2, 3] * 8
    assert piece.gaps_ns.size == piece.gap_places.size


def test_the_stretch_of_waves_in_step_holds_whole_waves(served: Served) -> None:
    rows = columns(served(40, 8, tokens=21, ttft_ms=50.0, tpot_ms=10.0))
    window = held_window(rows)
    assert window is not None
    start = int(rows.sent.min())
    assert window.from_ns - start == 250 * MS
    assert window.to_ns - start == 1250 * MS
    found = steady(rows, 8)
    assert found is not None
    assert found.occupancy == pytest.approx(1.0)
    assert found.tokens_per_s == pytest.approx(8 * 21 / 0.25)
    assert found.step_ms == pytest.approx(10.0)


def growing(served: Served, n: int, slots: int, noise: float = 0.0) -> list[Request]:
    """Waves in step whose steps lengthen with the context, by 30 % in an answer."""
    rng = np.random.default_rng(7)
    requests = []
    tokens = 61
    steps = 10.0 * np.linspace(1, 1.3, tokens - 1)
    start = 0
    for wave in range(n // slots):
        offsets = 40.0 + np.concatenate(
            ([0.0], np.cumsum(steps * (1 + rng.normal(0, noise, steps.size))))
        )
        stamps = np.round(offsets * MS).astype("<i8")
        requests += [
            Request(
                index=wave * slots + slot,
                sent_at_ns=start,
                first_content_at_ns=start + int(stamps[0]),
                last_content_at_ns=start + int(stamps[-1]),
                ended_at_ns=start + int(stamps[-1]),
                output_tokens=tokens,
                requested_output_tokens=tokens,
                n_chunks=tokens,
                chunk_offsets_ns=stamps.tobytes(),
            )
            for slot in range(slots)
        ]
        start += int(stamps[-1])
    return requests


def test_a_context_that_grows_within_each_wave_is_no_drift(
    served: Served, cell_of: MakeCell, run_of: MakeRun, codes: Codes
) -> None:
    rows = tuple(growing(served, 40, 8, noise=0.01))
    found = steady(columns(rows), 8)
    assert found is not None
    assert found.drift is not None
    assert abs(found.drift) < 0.01
    assert found.error_pct is not None
    assert found.error_pct < 0.6
    analysis = analyze(run_of(cell_of(rows, tokens=61)))
    assert "not-steady" not in codes(analysis)


def test_prefill_steps_are_no_transient(served: Served) -> None:
    rng = np.random.default_rng(8)
    ttft = rng.uniform(80, 200, 160)
    rows = columns(served(160, 8, tokens=41, ttft_ms=ttft, tpot_ms=10.0))
    window = held_window(rows)
    assert window is not None
    _, series = step_series(rows, window)
    assert series.max() < 1.2


def test_a_cell_that_slows_down_is_not_steady_and_says_by_how_much(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    rng = np.random.default_rng(2)
    tpot = 10 * rng.normal(1, 0.01, 640) * np.linspace(1, 1.1, 640)
    rows = served(640, 8, tpot_ms=tpot, tokens=40)
    analysis = analyze(run_of(cell_of(rows, tokens=40)))
    (finding,) = [f for f in analysis.findings if f.code == "not-steady"]
    assert "+4." in finding.message or "+5." in finding.message
    (cell,) = analysis.cells
    assert cell.drift_pct == pytest.approx(5, abs=1)


def test_the_figures_of_a_steady_cell_agree_with_each_other(
    served: Served, cell_of: MakeCell, run_of: MakeRun
) -> None:
    rows = served(160, 8, tpot_ms=10.0, ttft_ms=30.0, tokens=41)
    (cell,) = analyze(run_of(cell_of(rows, tokens=41))).cells
    assert cell.steady_step_ms == pytest.approx(10.0)
    assert cell.steady_from_s == pytest.approx(0.43)
    assert cell.steady_occupancy == pytest.approx(1.0)
    assert cell.steady_output_tokens_per_s == pytest.approx(8 * 41 / 0.43, rel=1e-3)
    assert cell.batch_means_error_pct == pytest.approx(0.0, abs=1e-6)


def test_two_waves_of_the_real_sweep_give_a_step_and_no_verdict(
    baseline: Analysis,
) -> None:
    cells = {c.name: c for c in baseline.cells}
    for name, step in (("c1_0", 4.15), ("c64_1", 18.40), ("c256_1", 24.93)):
        assert cells[name].steady_step_ms == pytest.approx(step, abs=0.01)
        assert cells[name].steady_occupancy is None
        assert cells[name].drift_pct is None
    error = cells["c64_1"].batch_means_error_pct
    assert error is not None
    # Three repeats there differ by 0.3 %: the error of one run is a lower bound.
    assert 0.05 < error < 0.3
    assert not [f for f in baseline.findings if f.code == "not-steady"]


def test_the_gap_between_chunks_is_close_to_the_engines_own_period(
    details: Analysis,
) -> None:
    for cell in details.cells:
        if cell.engine_step_ms is not None and not cell.warm_up:
            assert cell.steady_step_ms is not None
            ratio = cell.steady_step_ms / cell.engine_step_ms
            # The gap holds the prefill steps, which the period leaves out.
            assert 0.99 < ratio < 1.13
