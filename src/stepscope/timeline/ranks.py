"""Who waits for whom: collectives matched over ranks, waiting from arrival times."""

from collections import defaultdict

import numpy as np

from stepscope.timeline.columns import I64, Trace
from stepscope.timeline.hostsync import match_host
from stepscope.timeline.matches import (
    MOST_INVALID,
    TOLERANCE_NS,
    Match,
    Matching,
    best_shift,
    invalid_share,
    shifted_by,
)
from stepscope.timeline.names import communication_mask, short_name
from stepscope.timeline.steps import Steps

#: Stamps of two devices on one clock order a cause and its effect to this.
_AGREE_NS = 1_000
#: So many collectives do not meet by chance. Fewer must be half of all.
_ENOUGH = 20


def match_ranks(traces: list[Trace], steps: list[Steps]) -> Matching:
    """Match collectives by step, kernel family and order within the step.

    A collective ends everywhere at once, so the median difference of a rank's ends to
    the median end over ranks is what its clock is ahead. Clocks are aligned by it where
    they must differ: where a rank would have left a collective before the last one
    came, or the difference exceeds what ends differ by on one host. Elsewhere a
    difference of some microseconds may as well be the collective's own.

    Returns:
        The matches; ``refused`` says why there are none when the ranks' counts
        differ or when ends precede the last arrival.
    """
    if _same_records(traces):
        return Matching(matches=(), offsets_ns=(), refused="two hold the same records")
    found = [_keys(t, s) for t, s in zip(traces, steps, strict=True)]
    aligned = _align(found)
    if isinstance(aligned, str):
        return Matching(matches=(), offsets_ns=(), refused=aligned)
    matches = _families(aligned)
    if not matches:
        return Matching(matches=(), offsets_ns=(), refused="no collectives in common")
    held = tuple(m for m in matches if _meets(m))
    n, n_held = (sum(len(m.step) for m in each) for each in (matches, held))
    if 2 * n_held < n and (n_held < _ENOUGH or 10 * n_held < n):
        held = matches
    offsets = _offsets(held)
    shifted = tuple(shifted_by(m, offsets) for m in held)
    invalid = invalid_share(shifted, TOLERANCE_NS)
    if invalid > MOST_INVALID:
        why = (
            f"{100 * invalid:.0f} % of collectives ended on some rank before the last"
            " rank arrived: they are not the same collectives"
        )
        return Matching(matches=(), offsets_ns=(), refused=why)
    host = match_host(traces, steps[0], offsets)
    kept = {m.name for m in shifted}
    return Matching(
        matches=shifted + host,
        offsets_ns=tuple(offsets.tolist()),
        refused=None,
        left_out=tuple(m.name for m in matches if m.name not in kept),
    )


def _meets(match: Match) -> bool:
    """True when all ranks meet in a family: none leaves before the last arrives.

    The root of a broadcast hands its data over and leaves.
    """
    alone = shifted_by(match, _median_offsets((match,)))
    return invalid_share((alone,), TOLERANCE_NS) <= MOST_INVALID


def _median_offsets(matches: tuple[Match, ...]) -> I64:
    ends = np.concatenate([m.end_ns for m in matches])
    offset = np.median(ends - np.median(ends, axis=1, keepdims=True), axis=0)
    rounded: I64 = offset.astype(np.int64)
    return rounded


def _offsets(matches: tuple[Match, ...]) -> I64:
    """Return what clocks are ahead; 0 where collectives do not show that they are."""
    offsets = _median_offsets(matches)
    near = int(np.abs(offsets).max()) < TOLERANCE_NS
    if near and invalid_share(matches, _AGREE_NS) <= MOST_INVALID:
        return np.zeros_like(offsets)
    return offsets


_Key = tuple[int, str]


def _same_records(traces: list[Trace]) -> bool:
    """True when a trace was given twice."""
    seen = [t.ops.start_ns for t in traces if len(t.ops)]
    return any(np.array_equal(a, b) for i, a in enumerate(seen) for b in seen[i + 1 :])


def _keys(trace: Trace, steps: Steps) -> dict[_Key, list[tuple[int, int]]]:
    """Return (step, family) -> [(start, end)] in order of start."""
    mask = communication_mask(trace, trace.ops)
    names = [short_name(n) for n in trace.names]
    start, end = trace.ops.start_ns[mask], trace.ops.end_ns[mask]
    step = np.searchsorted(steps.first_ns, start, side="right") - 1
    if not len(steps):
        step = np.zeros(len(start), dtype=np.int64)
    found: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    rows = zip(step.tolist(), trace.ops.name[mask].tolist(), start, end, strict=True)
    for k, name, lo, hi in rows:
        # What comes before the first step is the end of one that the window cut.
        if k < 0 and len(steps):
            continue
        found[(k, names[name])].append((int(lo), int(hi)))
    return found


def _align(
    found: list[dict[_Key, list[tuple[int, int]]]],
) -> list[dict[_Key, list[tuple[int, int]]]] | str:
    """Shift the step numbers of ranks that began to trace at different steps.

    Ranks are lined up by the ends of the first collective of each step.
    """
    base = found[0]
    firsts = _first_ends(base)
    if not firsts:
        return "no collectives on the first rank"
    out = [base]
    for other in found[1:]:
        mine = _first_ends(other)
        if not mine:
            return "a rank has no collectives"
        shift = best_shift(firsts, mine)
        out.append({(k + shift, name): v for (k, name), v in other.items()})
    return out


def _first_ends(found: dict[_Key, list[tuple[int, int]]]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for (k, _), pairs in found.items():
        if k >= 0:
            ends[k] = min(ends.get(k, pairs[0][1]), pairs[0][1])
    return ends


def _families(
    found: list[dict[_Key, list[tuple[int, int]]]],
) -> tuple[Match, ...]:
    rows: dict[str, list[list[tuple[int, int]]]] = defaultdict(list)
    step_of: dict[str, list[int]] = defaultdict(list)
    for key in sorted(found[0]):
        k, name = key
        lists = [other.get(key, []) for other in found]
        # A step in which the counts differ was cut on some rank: it proves nothing.
        if len({len(pairs) for pairs in lists}) != 1:
            continue
        for occurrence in zip(*lists, strict=True):
            rows[name].append(list(occurrence))
            step_of[name].append(k)
    return tuple(
        Match(
            name=name,
            start_ns=np.array([[s for s, _ in row] for row in table], dtype=np.int64),
            end_ns=np.array([[e for _, e in row] for row in table], dtype=np.int64),
            step=np.array(step_of[name], dtype=np.int64),
        )
        for name, table in rows.items()
    )
