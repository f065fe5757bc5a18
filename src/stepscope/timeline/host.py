"""What the host was doing in a gap: annotation, API call, operator, collective."""

import numpy as np

from stepscope.timeline.columns import Trace


def host_activity(trace: Trace, lo: int, hi: int) -> str | None:
    """Name what covered most of [lo, hi) on the host.

    An API call or an operator is preferred to the annotation around it, because it
    is more specific; synchronising calls and CPU collectives are found this way.

    Returns:
        ``name (share %)``, or None where the host left no record.
    """
    best: tuple[int, str] | None = None
    for start, end, name in (
        (trace.calls.start_ns, trace.calls.end_ns, trace.calls.name),
        (trace.spans.start_ns, trace.spans.end_ns, trace.spans.name),
    ):
        overlap = np.minimum(end, hi) - np.maximum(start, lo)
        hit = overlap > 0
        if not hit.any():
            continue
        # Among those that cover about as much, the shortest is the most specific.
        covering = np.flatnonzero(hit & (overlap >= 0.8 * overlap.max()))
        pick = covering[np.argmin((end - start)[covering])]
        found = (int(overlap[pick]), trace.names[name[pick]])
        if best is None or found[0] > 1.25 * best[0]:
            best = found
    if best is None:
        return None
    return f"{best[1][:60]} ({100 * best[0] / (hi - lo):.0f} %)"
