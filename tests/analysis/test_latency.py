from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.cell.columns import columns
from stepscope.analysis.cell.latency import (
    NO_STATS,
    chunks_per_token,
    decode_efficiency,
    gap_stats,
    stats,
    summary_stats,
)
from stepscope.analysis.cell.little import mean_in_flight
from stepscope.analysis.cell.steady import steady, steady_tokens_per_s
from stepscope.analysis.cell.window import cell_span
from stepscope.run.requests import Request

Served = Callable[..., tuple[Request, ...]]


def test_percentiles_interpolate_linearly_and_scale_to_milliseconds() -> None:
    found = stats(np.array([1, 2, 3, 4], np.int64) * 1_000_000)
    assert (found.mean, found.median, found.max, found.n) == (2.5, 2.5, 4.0, 4)
    assert found.p90 == pytest.approx(3.7)


def test_no_values_have_no_figures_and_no_zeros() -> None:
    assert stats(np.empty(0, np.int64)) == NO_STATS
    assert summary_stats(None, 5) == NO_STATS
    assert summary_stats({"mean": 3.0, "p99": 9.0}, 5).median is None


def test_known_latencies_come_back(served: Served) -> None:
    rows = columns(served(32, 8, ttft_ms=40.0, tpot_ms=12.5, tokens=33))
    assert stats(rows.ttft_ns()).mean == pytest.approx(40.0)
    assert stats(rows.tpot_ns()).mean == pytest.approx(12.5)
    assert gap_stats(rows.chunks).mean == pytest.approx(12.5)
    assert gap_stats(rows.chunks).n == 32 * 32
    assert stats(rows.e2el_ns()).mean == pytest.approx(40 + 32 * 12.5)
    assert chunks_per_token(rows) == 1.0


def test_gaps_never_reach_from_one_request_into_the_next(served: Served) -> None:
    requests = served(6, 2, ttft_ms=[1, 500, 2, 400, 3, 300], tpot_ms=7.0)
    empty = msgspec.structs.replace(requests[0], index=99, chunk_offsets_ns=b"")
    failed = msgspec.structs.replace(requests[1], index=98, failure="stall")
    (piece,) = columns((empty, *requests, failed)).chunks.pieces()
    assert set(piece.gaps_ns.tolist()) == {7_000_000}
    assert piece.gaps_ns.size == 6 * 19
    assert piece.gap_ends_ns.size == piece.gaps_ns.size


def test_failed_requests_enter_no_latency(served: Served) -> None:
    good = served(8, 4)
    bad = tuple(
        msgspec.structs.replace(r, index=100 + r.index, failure="reset") for r in good
    )
    assert columns((*good, *bad)).ttft_ns().size == 8


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    slots=st.integers(1, 16),
    n=st.integers(1, 60),
    tokens=st.integers(2, 40),
)
def test_the_throughput_identity_closes(
    served: Served, seed: int, slots: int, n: int, tokens: int
) -> None:
    rng = np.random.default_rng(seed)
    requests = served(
        n,
        slots,
        tokens=tokens,
        ttft_ms=rng.uniform(1, 900, n),
        tpot_ms=rng.uniform(1, 90, n),
    )
    rows = columns(requests)
    span = cell_span(rows)
    assert span is not None
    found = decode_efficiency(rows, span, mean_in_flight(rows, span))
    assert found is not None
    assert abs(found.residual) < 1e-9
    assert 0 < found.value < 1


def test_full_slots_below_four_waves_come_from_littles_law(served: Served) -> None:
    rows = columns(served(100, 32, ttft_ms=0.0, tpot_ms=10.0, tokens=11))
    found = steady(rows, 32)
    assert found is not None
    assert not found.judged
    rate = steady_tokens_per_s(rows, 32, found)
    assert rate == pytest.approx(32 * 11 / 0.1)


def test_full_slots_from_four_waves_on_are_counted(served: Served) -> None:
    rng = np.random.default_rng(3)
    requests = served(640, 16, tpot_ms=rng.normal(10, 0.5, 640), ttft_ms=10.0)
    rows = columns(requests)
    found = steady(rows, 16)
    assert found is not None
    assert found.occupancy == pytest.approx(1.0, abs=0.01)
    rate = steady_tokens_per_s(rows, 16, found)
    assert rate == pytest.approx(16 * 20 / (0.01 + 19 * 0.01), rel=0.02)


def test_merged_chunks_show_as_chunks_per_token(served: Served) -> None:
    rows = columns(served(8, 4, tokens=20, chunk_every=2))
    assert chunks_per_token(rows) == 0.5
