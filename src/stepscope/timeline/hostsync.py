"""Collectives on the processor, such as gloo's, matched over ranks by annotations."""

import numpy as np

from stepscope.timeline.columns import I64, Trace
from stepscope.timeline.matches import (
    MOST_INVALID,
    TOLERANCE_NS,
    Match,
    best_shift,
    invalid_share,
)
from stepscope.timeline.names import is_host_communication
from stepscope.timeline.steps import Steps


def match_host(traces: list[Trace], steps: Steps, offsets: I64) -> tuple[Match, ...]:
    """Match the collectives that the ranks' hosts annotate, in order of time.

    Args:
        traces: One a rank.
        steps: Of the first rank; a collective belongs to the step that begins next.
        offsets: What each rank's clock is ahead, nanoseconds.

    Returns:
        One match a name; none for a name whose occurrences are not the same ones.
    """
    each = [_host_spans(t, int(o)) for t, o in zip(traces, offsets, strict=True)]
    found = []
    for name in sorted(set.intersection(*(set(spans) for spans in each))):
        base = each[0][name]
        ends = dict(enumerate(base[1].tolist()))
        shifts = [
            best_shift(ends, dict(enumerate(spans[name][1].tolist())), steady=False)
            for spans in each
        ]
        lo = max(0, *shifts)
        hi = min(len(s[name][0]) + by for s, by in zip(each, shifts, strict=True))
        if hi <= lo:
            continue
        rows = [
            (s[name][0][lo - by : hi - by], s[name][1][lo - by : hi - by])
            for s, by in zip(each, shifts, strict=True)
        ]
        own = rows[0][0] + int(offsets[0])
        match = Match(
            name=name,
            start_ns=np.stack([start for start, _ in rows], axis=1),
            end_ns=np.stack([end for _, end in rows], axis=1),
            step=np.searchsorted(steps.first_ns, own),
            on_host=True,
        )
        if invalid_share((match,), TOLERANCE_NS) <= MOST_INVALID:
            found.append(match)
    return tuple(found)


def _host_spans(trace: Trace, offset: int) -> dict[str, tuple[I64, I64]]:
    spans, found = trace.spans, {}
    for i, name in enumerate(trace.names):
        if is_host_communication(name):
            mine = np.flatnonzero(spans.name == i)
            noted = spans.is_annotation[mine]
            # Torch has had the same work under both categories.
            mine = mine[noted] if noted.any() else mine
            if len(mine):
                found[name] = spans.start_ns[mine] - offset, spans.end_ns[mine] - offset
    return found
