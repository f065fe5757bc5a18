"""Clocks of several machines."""

import random
from typing import Any

from hypothesis import given, settings, strategies as st

from stepscope.clock import ManualClock
from stepscope.load.aligned import error_over, moved, offset_of
from stepscope.run.requests import Request

AHEAD_NS = 7_000_000_000


def request(index: int = 0, **fields: Any) -> Request:
    times: dict[str, Any] = {
        "sent_at_ns": AHEAD_NS + 100,
        "ended_at_ns": AHEAD_NS + 900,
    }
    return Request(index=index, **(times | fields))


@given(st.integers(0, 2**32), st.integers(-(10**15), 10**15))
@settings(max_examples=80)
def test_the_truth_lies_within_the_error_whatever_each_way_takes(
    seed: int, ahead_ns: int
) -> None:
    rng, clock = random.Random(seed), ManualClock(5_000)

    def ask() -> int:
        clock.advance(rng.randrange(1_000_000))
        there = clock.now_ns() + ahead_ns
        clock.advance(rng.randrange(1_000_000))
        return there

    found = offset_of(ask, clock.now_ns)
    assert abs(found.offset_ns - ahead_ns) <= found.error_ns <= 1_000_000


def test_the_shortest_round_trip_is_what_counts() -> None:
    clock, ways = ManualClock(), iter([900, 100, 700])

    def ask() -> int:
        clock.advance(next(ways))
        return clock.now_ns()

    assert offset_of(ask, clock.now_ns, n=3).error_ns == 50


def test_a_drift_between_two_readings_is_part_of_the_error() -> None:
    clock = ManualClock()
    before, after = (
        offset_of(lambda at=at: clock.now_ns() + at, clock.now_ns)  # type: ignore[misc]
        for at in (1_000, 1_400)
    )
    assert error_over(before, after) == 400
    assert error_over(before, before) == 0


def test_all_instants_of_a_request_move_and_no_duration_does() -> None:
    there = request(
        intended_at_ns=AHEAD_NS + 50,
        first_content_at_ns=AHEAD_NS + 300,
        last_content_at_ns=AHEAD_NS + 800,
        output_tokens=3,
    )
    here = moved(there, AHEAD_NS)
    assert (here.sent_at_ns, here.ended_at_ns, here.intended_at_ns) == (100, 900, 50)
    assert here.first_byte_at_ns is None
    for name in ("ttft_ns", "e2el_ns", "tpot_ns"):
        assert getattr(here, name) == getattr(there, name)
