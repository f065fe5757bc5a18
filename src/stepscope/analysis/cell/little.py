"""Little's law on the records of a cell, and the occupancy that it explains."""

import heapq
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.cell.columns import Columns, Floats
from stepscope.analysis.cell.window import Window

#: Above this the records contradict themselves: it is an identity.
RESIDUAL_LIMIT = 1e-6
#: Mean in flight over the client's slots; more can not be, but stamps are coarse.
OCCUPANCY_LIMIT = 1.005
_REPLAYS = 200
_REPLAY_BUDGET = 2_000_000


@dataclass(frozen=True, slots=True)
class Little:
    """Little's law over a window.

    Attributes:
        mean_in_flight: Time average of requests in flight, from the order of sends
            and departures.
        residual: (throughput x mean time in flight - mean in flight) / mean in
            flight. Zero unless requests are lost, doubled or mis-stamped.
        n_expected: Requests that the throughput was taken from.
        n_doubled: Requests whose index occurs before.
    """

    mean_in_flight: float
    residual: float
    n_expected: int
    n_doubled: int


def mean_in_flight(columns: Columns, window: Window) -> float:
    """Return the time average of requests in flight over ``window``.

    Counted from the sorted instants of sending and leaving, not from latencies, so
    that it can contradict them.
    """
    starts = np.sort(np.clip(columns.sent, window.from_ns, window.to_ns))
    ends = np.sort(np.clip(columns.left, window.from_ns, window.to_ns))
    at = np.unique(np.concatenate((starts, ends)))
    n_in = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")
    area = float(np.sum(n_in[:-1] * np.diff(at)))
    return area / window.length_ns


def little(columns: Columns, window: Window, n_expected: int | None) -> Little:
    """Return Little's law on per-request records: X W = L.

    Source: J. D. C. Little, "A Proof for the Queuing Formula: L = lambda W",
        Operations Research 9 (1961).
    Assumes: nothing; over a window that holds each request's whole stay (clipped to
        it) the two sides are the same sum. A residual is therefore no noise but a
        contradiction: a lost or doubled request, or stamps of two clocks.

    Args:
        columns: The cell's requests.
        window: The cell span.
        n_expected: Requests that the cell set out to send, where it ran to its end;
            None to take what is recorded.
    """
    expected = columns.n if n_expected is None else n_expected
    inside = np.clip(columns.left, window.from_ns, window.to_ns) - np.clip(
        columns.sent, window.from_ns, window.to_ns
    )
    average = mean_in_flight(columns, window)
    offered = expected / window.length_ns * float(np.mean(inside))
    doubled = columns.n - int(np.unique(columns.index).size)
    return Little(
        mean_in_flight=average,
        residual=(offered - average) / average if average > 0 else 1.0,
        n_expected=expected,
        n_doubled=doubled,
    )


def replayed_occupancy(
    latencies: Floats, n_requests: int, concurrency: int, seed: int = 0
) -> tuple[float, float] | None:
    """Return the central 99 % of the occupancy that a closed loop would show.

    Replays ``n_requests`` through ``concurrency`` slots, each request with a latency
    drawn from those observed, and divides the time in flight by slots x duration.

    Assumes: latencies are exchangeable and do not depend on how many are in flight.
        Real waves run in step, so a real occupancy may lie above the interval; below
        it, slots stood empty.

    Args:
        latencies: Observed latencies, any unit; those of zero are no stay.
        n_requests: Requests to replay.
        concurrency: Slots.
        seed: Of the draws.
    """
    latencies = latencies[latencies > 0]
    if latencies.size == 0 or n_requests < 1:
        return None
    n_replays = max(20, min(_REPLAYS, _REPLAY_BUDGET // n_requests))
    rng = np.random.default_rng(seed)
    values = np.empty(n_replays)
    for replay in range(n_replays):
        drawn = rng.choice(latencies, n_requests)
        values[replay] = drawn.sum() / (concurrency * _duration(drawn, concurrency))
    low, high = np.percentile(values, [0.5, 99.5])
    return float(low), float(high)


def _duration(latencies: Floats, concurrency: int) -> float:
    """Return when the last request ends if each takes the first free slot."""
    drawn = latencies.tolist()
    slots = drawn[:concurrency]
    heapq.heapify(slots)
    for latency in drawn[concurrency:]:
        heapq.heapreplace(slots, slots[0] + latency)
    return float(max(slots))
