"""How a source reads a server log, and whether the log bears it.

One place to add a reading: a function and its line in ``READINGS``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stepscope.run.serverlog import ServerLog


@dataclass(frozen=True, slots=True)
class Borne:
    """Whether a log bears a reading, and why."""

    holds: bool
    why: str


def _estimate_left_out(log: ServerLog) -> Borne | None:
    ledger = log.ledger
    if ledger.peak_contains_estimate is not True or ledger.peak_logged_gib is None:
        return None
    return Borne(
        False,
        f"this version's printed peak ({ledger.peak_logged_gib:g} GiB) contains the"
        " graph estimate where one was applied, so a sum that closes without a term"
        " for it is what both cases print",
    )


def _breaks_in_full(log: ServerLog) -> Borne | None:
    mode = str(log.resolved.get("cudagraph_mode", ""))
    full = any(
        "FULL" in entry.modes for entry in log.capture_passes if entry.purpose == "real"
    )
    if not log.resolved.get("breakable_cudagraph") or not (full or "FULL" in mode):
        return None
    return Borne(
        False,
        "the real capture pass took FULL graphs for decode, and breaks are inserted in"
        " PIECEWISE graphs only (the break is a plain call where the runtime mode is"
        " FULL): they can cost mixed steps something and pure decode steps nothing",
    )


READINGS: dict[str, Callable[[ServerLog], Borne | None]] = {
    "graph-estimate-not-subtracted": _estimate_left_out,
    "attention-breaks-in-full-graph": _breaks_in_full,
}
