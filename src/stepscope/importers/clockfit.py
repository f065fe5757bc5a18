"""Puts results on the Unix clock whose requests carry a monotonic one.

The client's command began before its first request and ended after its last token, so
each command bounds what must be added to the monotonic instants. Commands of one boot
of one host share that number.

Assumes: the wall clock was not stepped between the commands; then the bounds of all
commands overlap. Where they do not, each command stands alone.
"""

from dataclasses import dataclass

from stepscope.findings import Finding
from stepscope.run.requests import Request
from stepscope.units import NS_PER_S, seconds


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one command allows: offsets from ``low_ns`` to ``high_ns``."""

    cell: str
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class Fit:
    """An offset, the latest that is allowed, and how much less it may be."""

    offset_ns: int
    slack_ns: int


def bounds(
    cell: str, requests: tuple[Request, ...], started_ns: int, ended_ns: int
) -> Bounds:
    """Return what a command allows.

    Args:
        cell: Its cell.
        requests: At least one, on the monotonic clock.
        started_ns: When the command began, Unix.
        ended_ns: When it ended, Unix.
    """
    first = min(request.sent_at_ns for request in requests)
    last = max(request.last_content_at_ns or request.sent_at_ns for request in requests)
    return Bounds(cell, started_ns - first, ended_ns - last)


def fit(all_bounds: list[Bounds]) -> tuple[dict[str, Fit], list[Finding]]:
    """Return an offset for each cell: one for all where the bounds overlap."""
    if not all_bounds:
        return {}, []
    low = max(b.low_ns for b in all_bounds)
    high = min(b.high_ns for b in all_bounds)
    if low <= high:
        shared = Fit(high, high - low)
        return {b.cell: shared for b in all_bounds}, []
    alone = {b.cell: Fit(b.high_ns, max(0, b.high_ns - b.low_ns)) for b in all_bounds}
    findings = [
        Finding(
            code="clock-step",
            severity="warning",
            message="No single clock offset suits all client commands: the bounds miss"
            f" each other by {seconds(low - high):.3f} s. The wall clock was stepped,"
            " or the clients ran on different hosts or boots. Each cell was placed by"
            " its own command.",
            hint="Trust the telemetry of a cell no further than its clock slack.",
        )
    ]
    findings += [
        Finding(
            code="clock-step",
            severity="warning",
            message="Its requests span"
            f" {seconds(b.low_ns - b.high_ns):.3f} s more than its command ran.",
            hint="Check command_started_at and command_ended_at.",
            cell=b.cell,
        )
        for b in all_bounds
        if b.low_ns > b.high_ns + NS_PER_S // 1000
    ]
    return alone, findings
