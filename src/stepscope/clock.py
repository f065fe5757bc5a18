"""The only reader of clocks.

Intervals come from the monotonic clock. Wall time is read once, beside a monotonic
instant, so that people and log files can be placed on the timeline.
"""

import time
from typing import Protocol

import msgspec


class WallAnchor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One instant on both clocks.

    Attributes:
        monotonic_ns: CLOCK_MONOTONIC, nanoseconds.
        unix_ns: Nanoseconds since the Unix epoch at the same instant.
        error_ns: Half the time between the two reads that enclose the wall read.
    """

    monotonic_ns: int
    unix_ns: int
    error_ns: int


class Clock(Protocol):
    """What measuring code may know of time."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds."""
        ...

    def wall_anchor(self) -> WallAnchor:
        """Return one instant on the monotonic and on the wall clock."""
        ...

    def sleep_until(self, at_ns: int) -> None:
        """Sleep until the monotonic instant ``at_ns``; return at once if past."""
        ...


class SystemClock:
    """The machine's clocks.

    ``now_ns`` is CLOCK_MONOTONIC's own reader: the load client calls it several times
    for each token.
    """

    now_ns = staticmethod(time.monotonic_ns)

    def wall_anchor(self) -> WallAnchor:
        """Return the tightest of five paired reads of both clocks."""
        best: WallAnchor | None = None
        for _ in range(5):
            before = time.monotonic_ns()
            unix = time.time_ns()
            after = time.monotonic_ns()
            anchor = WallAnchor(
                monotonic_ns=(before + after) // 2,
                unix_ns=unix,
                error_ns=(after - before + 1) // 2,
            )
            if best is None or anchor.error_ns < best.error_ns:
                best = anchor
        assert best is not None
        return best

    def sleep_until(self, at_ns: int) -> None:
        """Sleep until the monotonic instant ``at_ns``."""
        left = at_ns - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)


class ManualClock:
    """A clock that moves only when it is told to, for tests: nothing sleeps."""

    def __init__(
        self, at_ns: int = 0, unix_ns: int = 1_800_000_000_000_000_000
    ) -> None:
        self._at_ns = at_ns
        self._unix_offset_ns = unix_ns - at_ns

    def now_ns(self) -> int:
        """Return the instant it was set to."""
        return self._at_ns

    def wall_anchor(self) -> WallAnchor:
        """Return an exact anchor."""
        return WallAnchor(
            monotonic_ns=self._at_ns,
            unix_ns=self._at_ns + self._unix_offset_ns,
            error_ns=0,
        )

    def sleep_until(self, at_ns: int) -> None:
        """Jump to ``at_ns`` if it lies ahead."""
        self._at_ns = max(self._at_ns, at_ns)

    def advance(self, by_ns: int) -> None:
        """Move ahead by ``by_ns``."""
        self._at_ns += by_ns
