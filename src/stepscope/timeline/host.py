"""What the host was doing in a gap: annotation, API call, operator, collective."""

import numpy as np

from stepscope.timeline.columns import Trace
from stepscope.timeline.names import is_host_communication

#: What took less of a gap is not named; a collective between ranks is, sooner.
_LEAST_SHARE = 0.1
_LEAST_COLLECTIVE = 0.01
_MOST_NAMED = 2


def host_activity(trace: Trace, lo: int, hi: int) -> str | None:
    """Name what the host did in [lo, hi), most of it first.

    At each instant that is the shortest of the records that cover it, of whatever
    thread: a call within an operator within an annotation. A collective between
    processors comes before all, since it is what other ranks can lengthen.

    Returns:
        ``name (share %)``, of two and of collectives; None where the host left no
        record.
    """
    records: list[tuple[int, int, int, int]] = []
    for table in (trace.calls, trace.spans):
        hit = np.flatnonzero((table.start_ns < hi) & (table.end_ns > lo))
        start, end = table.start_ns[hit], table.end_ns[hit]
        rows = zip(
            (end - start).tolist(),
            np.maximum(start, lo).tolist(),
            np.minimum(end, hi).tolist(),
            table.name[hit].tolist(),
            strict=True,
        )
        records += rows
    if not records:
        return None
    talk = {i for i, name in enumerate(trace.names) if is_host_communication(name)}
    # The longest first, so that shorter ones are painted over them.
    records.sort(key=lambda record: (record[3] in talk, -record[0]))
    edges = np.unique([at for record in records for at in record[1:3]])
    painted = np.full(len(edges) - 1, -1)
    for _, since, until, name in records:
        a, b = np.searchsorted(edges, [since, until])
        painted[a:b] = name
    took = np.bincount(
        painted[painted >= 0], np.diff(edges)[painted >= 0], len(trace.names)
    )
    order = np.argsort(-took, kind="stable")[:_MOST_NAMED]
    named = [i for i in order.tolist() if took[i] >= _LEAST_SHARE * (hi - lo)]
    named += [
        i
        for i in sorted(talk.difference(named))
        if took[i] >= _LEAST_COLLECTIVE * (hi - lo)
    ]
    named = named or [i for i in order[:1].tolist() if took[i] > 0]
    said = [f"{trace.names[i][:60]} ({100 * took[i] / (hi - lo):.0f} %)" for i in named]
    return ", ".join(said) or None
