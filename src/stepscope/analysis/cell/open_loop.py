"""Does a server keep up with the rate that it is offered?

An open loop sends whatever happens. Where more comes than is served, the number in the
system grows without end, and every latency is that of a queue: it says how long the
cell lasted, and nothing of the server.
"""

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.cell.chunks import Ints
from stepscope.analysis.cell.columns import Columns
from stepscope.analysis.cell.window import Window, open_window
from stepscope.units import seconds

#: Growth that is told from noise, in standard errors.
_ERRORS = 3.0
#: And in shares of what arrived.
_LEAST_SHARE = 0.05
#: Arrivals below which nothing is judged.
_LEAST_ARRIVALS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """An open loop as it was seen.

    Attributes:
        window: After it has filled, to the last arrival; None: too short for one.
        n_arrived: Requests that were due in the window, or in all.
        n_left: Requests that left in the same time.
        n_system: Requests due and not yet answered at its begin and at its end.
        offered_per_s: Arrivals a second over the whole schedule.
        completed_per_s: Requests that left a second, in the window.
        wait_growth_s: By how much the median TTFT grew from the first to the last
            quarter of arrivals, seconds.
        overloaded: It can not keep up; None: too short or too few to tell.
    """

    window: Window | None
    n_arrived: int
    n_left: int
    n_system: tuple[int, int]
    offered_per_s: float | None
    completed_per_s: float | None
    wait_growth_s: float | None
    overloaded: bool | None


def open_loop(columns: Columns) -> OpenLoop | None:
    """Return how an open loop went; None without two arrivals.

    Overloaded is what grows beyond noise: the number in the system over the window,
    or the wait from quarter to quarter of the arrivals.

    Source: a queue at its limit wanders by the square root of what arrived times one
        plus the squared coefficient of variation of the gaps (heavy traffic, with
        services as even as a Poisson process); three times that, and a twentieth of
        the arrivals, is no wandering.
    Assumes: the rate does not change. It is not called for a rate that rises.
    """
    due, left = np.sort(columns.due_at), np.sort(columns.left)
    length = int(due[-1] - due[0]) if columns.n > 1 else 0
    if length <= 0:
        return None
    window = open_window(columns)
    from_ns, to_ns = (int(due[0]), int(due[-1]))
    if window is not None:
        from_ns, to_ns = window.from_ns, window.to_ns
    before, after = _in_system(due, left, from_ns), _in_system(due, left, to_ns)
    n_arrived = int(((due > from_ns) & (due <= to_ns)).sum())
    n_left = int(((left > from_ns) & (left <= to_ns)).sum())
    rate = (columns.n - 1) / seconds(length)
    spread = 1 + _variation(due)
    wait = _wait_growth(columns)
    growing = window is not None and _grows(due, left, window, spread)
    waiting = wait is not None and wait * rate > max(
        _ERRORS * np.sqrt(0.75 * columns.n * spread), _LEAST_SHARE * columns.n
    )
    overloaded: bool | None = bool(growing or waiting)
    if not overloaded and (window is None or columns.n < _LEAST_ARRIVALS):
        overloaded = None
    took = seconds(to_ns - from_ns)
    return OpenLoop(
        window=window,
        n_arrived=n_arrived,
        n_left=n_left,
        n_system=(before, after),
        offered_per_s=rate,
        completed_per_s=n_left / took if window is not None and took else None,
        wait_growth_s=wait,
        overloaded=overloaded,
    )


def _in_system(due: Ints, left: Ints, at_ns: int) -> int:
    return int(np.searchsorted(due, at_ns, "right")) - int(
        np.searchsorted(left, at_ns, "right")
    )


def _variation(due: Ints) -> float:
    """Return the squared coefficient of variation of the gaps between arrivals."""
    gaps = np.diff(due).astype(float)
    mean = gaps.mean()
    return float(gaps.var() / mean**2) if mean > 0 else 0.0


def _grows(due: Ints, left: Ints, window: Window, spread: float) -> bool:
    """Return whether the number in the system grew all the time, beyond noise."""
    at = np.linspace(window.from_ns, window.to_ns, 4).astype(np.int64)
    held = [_in_system(due, left, int(t)) for t in at]
    arrived = int(((due > at[0]) & (due <= at[-1])).sum())
    growth = held[-1] - held[0]
    limit = max(_ERRORS * float(np.sqrt(arrived * spread)), _LEAST_SHARE * arrived)
    return growth > limit and all(np.diff(held) > 0)


def _wait_growth(columns: Columns) -> float | None:
    """Return how much the median TTFT grew over the quarters, where it always did."""
    timed = columns.timed
    if int(timed.sum()) < _LEAST_ARRIVALS:
        return None
    due, first = columns.due_at[timed], columns.first[timed]
    order = np.argsort(due)
    parts = np.array_split((first - due)[order], 4)
    medians = [float(np.median(part)) for part in parts]
    growing = all(np.diff(medians) > 0)
    return seconds(round(medians[-1] - medians[0])) if growing else None
