"""For whom ranks wait in the steps that were left out as stalled."""

import numpy as np

from stepscope.findings import Finding
from stepscope.timeline.device import Device
from stepscope.timeline.matches import Matching
from stepscope.timeline.records import Rank
from stepscope.units import ms

#: Share of the stalled time that ranks wait for each other, and of that for one rank.
_LEAST_WAITED, _MOST = 0.5, 0.6


def who_stalled(
    devices: list[Device],
    ranks: tuple[Rank, ...],
    every: Matching | None,
    kept: Matching | None,
) -> list[Finding]:
    """Say which rank the others wait for where steps stall; nothing where none stalled.

    Args:
        devices: The ranks' traces.
        ranks: Their records, in the same order.
        every: Collectives of all steps.
        kept: Those of the steps that were not left out.
    """
    stalled = [d.left_out for d in devices if d.has("stalled-steps")]
    if every is None or kept is None or every.refused or not stalled:
        return []
    caused = _caused(every, len(ranks)) - _caused(kept, len(ranks))
    lasted = max(int((spans[:, 1] - spans[:, 0]).sum()) for spans in stalled)
    total, worst = float(caused.sum()), int(np.argmax(caused))
    if total < _LEAST_WAITED * lasted:
        text = (
            f"of {ms(lasted):.4g} ms in stalled steps ranks wait {ms(total):.4g} ms for"
            " each other: what held them up held up all, or is in no collective"
        )
    elif caused[worst] < _MOST * total:
        text = f"in stalled steps ranks wait {ms(total):.4g} ms, for no one rank"
    else:
        text = (
            f"in stalled steps the others wait {ms(float(caused[worst])):.4g} ms for"
            f" rank {ranks[worst].rank}, of {ms(lasted):.4g} ms"
        )
    return [Finding(code="stalled-by", severity="info", message=text, hint="")]


def _caused(
    matching: Matching, n_ranks: int
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return what others wait for each rank, mean over them, nanoseconds."""
    found = np.zeros(n_ranks)
    for match in matching.matches:
        mean = match.wait_ns.sum(axis=1) / (n_ranks - 1)
        found += np.bincount(match.start_ns.argmax(axis=1), mean, n_ranks)
    return found
