from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.analysis.cell.columns import Columns, columns
from stepscope.analysis.cell.little import (
    RESIDUAL_LIMIT,
    little,
    mean_in_flight,
    replayed_occupancy,
)
from stepscope.analysis.cell.window import Window, cell_span, telemetry_window
from stepscope.run.requests import Request

MS = 1_000_000


def plain(index: int, sent: int, length: int, **over: int | str | None) -> Request:
    fields: dict[str, int | str | None] = {
        "first_content_at_ns": sent + length // 2,
        "last_content_at_ns": sent + length,
    }
    return Request(
        index=index,
        sent_at_ns=sent,
        ended_at_ns=sent + length,
        **{**fields, **over},  # type: ignore[arg-type]  # a test's shorthand
    )


def test_the_cell_span_runs_from_first_send_to_last_content() -> None:
    rows = columns((plain(0, 100, 50), plain(1, 120, 90), plain(2, 110, 10)))
    assert cell_span(rows) == Window(100, 210)


def test_a_hung_request_does_not_stretch_the_span_but_counts_as_in_flight() -> None:
    hung = plain(
        1, 100, 9_000, failure="stall", first_content_at_ns=None,
        last_content_at_ns=None,
    )  # fmt: skip
    rows = columns((plain(0, 100, 100), hung))
    span = cell_span(rows)
    assert span == Window(100, 200)
    assert mean_in_flight(rows, span) == 2.0


def test_nothing_answered_has_no_span() -> None:
    lost = plain(0, 5, 5, failure="reset", first_content_at_ns=None,
                 last_content_at_ns=None)  # fmt: skip
    assert cell_span(columns((lost,))) is None


def test_telemetry_leaves_out_first_wave_and_drain_from_four_waves_on(
    served: Callable[..., tuple[Request, ...]],
) -> None:
    for n_waves, inner in ((3, False), (4, True)):
        rows = columns(served(n_waves * 4, 4))
        span = cell_span(rows)
        assert span is not None
        window = telemetry_window(rows, span, 4)
        if inner:
            assert window == Window(int(rows.sent[4]), int(rows.sent[-1]))
        else:
            assert window == span


def test_an_open_loop_has_no_waves_so_its_window_is_the_span() -> None:
    rows = columns(tuple(plain(i, i * 10, 30) for i in range(50)))
    span = cell_span(rows)
    assert span is not None
    assert telemetry_window(rows, span, None) == span


def some(draw_seed: int, n: int) -> Columns:
    rng = np.random.default_rng(draw_seed)
    sent = rng.integers(1, 10_000, n)
    length = rng.integers(2, 5_000, n)
    return columns(
        tuple(
            plain(i, int(s), int(d))
            for i, (s, d) in enumerate(zip(sent, length, strict=True))
        )
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 200))
def test_littles_law_is_an_identity_on_any_records(seed: int, n: int) -> None:
    rows = some(seed, n)
    span = cell_span(rows)
    assert span is not None
    law = little(rows, span, None)
    assert abs(law.residual) < RESIDUAL_LIMIT
    lengths = rows.left - rows.sent
    assert law.mean_in_flight == pytest.approx(lengths.sum() / span.length_ns)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 100))
def test_a_lost_request_breaks_it_by_its_share(seed: int, n: int) -> None:
    rows = some(seed, n)
    span = cell_span(rows)
    assert span is not None
    law = little(rows, span, n + 1)
    assert law.residual == pytest.approx(1 / n)


def test_a_request_recorded_twice_is_counted() -> None:
    rows = columns((plain(0, 0, 10), plain(1, 5, 10), plain(1, 5, 10)))
    assert little(rows, Window(0, 15), None).n_doubled == 1


def test_replay_of_100_prompts_on_32_equal_slots_gives_0_78() -> None:
    found = replayed_occupancy(np.full(50, 7.0), 100, 32)
    assert found is not None
    assert found[0] == pytest.approx(100 / (4 * 32))
    assert found[1] == pytest.approx(100 / (4 * 32))


def test_replay_with_lengths_that_vary_by_five_percent_is_below_one() -> None:
    drawn = np.random.default_rng(1).normal(1.0, 0.05, 400)
    low, high = replayed_occupancy(drawn, 640, 64) or (0.0, 0.0)
    # 10 waves at 64: 0.976 where it was simulated before.
    assert low < 0.976 < high
    assert replayed_occupancy(drawn, 640, 64) == (low, high)
