"""Clocks of several machines: how far apart they are, and records moved between them.

Latencies are differences on one clock and need none of this. What compares requests of
two machines does: peaks by second, the order of sends, the steady stretch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stepscope.run.requests import Request

_ROUND_TRIPS = 20


@dataclass(frozen=True, slots=True)
class Offset:
    """A clock against ours at one time.

    Attributes:
        offset_ns: That clock minus ours.
        error_ns: The truth lies within so much of it, whatever the way there and back
            took each.
    """

    offset_ns: int
    error_ns: int


def offset_of(
    ask: Callable[[], int], now: Callable[[], int], n: int = _ROUND_TRIPS
) -> Offset:
    """Ask another clock ``n`` times and return what the shortest round trip says.

    Source: Cristian's algorithm: their answer was read between our two readings, so
        that it errs by at most half of their distance from the middle.
    """
    best: Offset | None = None
    for _ in range(n):
        before = now()
        theirs = ask()
        after = now()
        error = (after - before + 1) // 2
        if best is None or error < best.error_ns:
            best = Offset(theirs - (before + after) // 2, error)
    assert best is not None
    return best


def error_over(before: Offset, after: Offset) -> int:
    """Return how wrong ``before`` can be at any time between the two, nanoseconds.

    Assumes: between them the clocks part or meet steadily, as quartz does.
    """
    drift = abs(after.offset_ns - before.offset_ns)
    return max(before.error_ns, drift + after.error_ns)


def moved(request: Request, offset_ns: int) -> Request:
    """Return a request of a clock that is ahead by ``offset_ns``, on ours."""
    changes = {
        name: value - offset_ns
        for name in Request.__struct_fields__
        if name.endswith("_at_ns") and (value := getattr(request, name)) is not None
    }
    return msgspec.structs.replace(request, **changes)
