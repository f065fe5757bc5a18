"""Collectives that were matched over ranks, and when a match does not hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepscope.timeline.columns import I64, Bool
from stepscope.timeline.intervals import within

#: An end that precedes the last arrival by more than this did not belong to the
#: same collective. Source: end skew on one host was 1 to 22 us in real traces.
TOLERANCE_NS = 50_000
#: Share of collectives that may violate it before the match is refused.
MOST_INVALID = 0.05
#: Fewer steps in common do not show how steadily their ends keep apart.
_LEAST_COMMON = 5


_Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Collectives of one family: rows are occurrences, columns ranks; nanoseconds.

    ``step`` is the step of each occurrence, -1 where there are no steps; ``on_host``
    marks collectives of the processor, such as gloo.
    """

    name: str
    start_ns: _Table
    end_ns: _Table
    step: I64
    on_host: bool = False

    @property
    def wait_ns(self) -> _Table:
        """Last arrival minus own arrival."""
        last: _Table = self.start_ns.max(axis=1, keepdims=True)
        return last - self.start_ns

    @property
    def transfer_ns(self) -> I64:
        """Median end minus last arrival, at least 0."""
        end = np.median(self.end_ns, axis=1).astype(np.int64)
        took: I64 = np.maximum(end - self.start_ns.max(axis=1), 0)
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """All matched families, or why nothing could be matched.

    Stamps of ``matches`` are a rank's own less its ``offsets_ns``. ``left_out`` names
    families in which a rank leaves without waiting for the others.
    """

    matches: tuple[Match, ...]
    offsets_ns: tuple[int, ...]
    refused: str | None
    left_out: tuple[str, ...] = ()

    @property
    def n_steps(self) -> int:
        """How many steps have matches; 1 where there are no steps."""
        on_device = [m.step for m in self.matches if not m.on_host]
        return max(len(np.unique(np.concatenate(on_device))), 1) if on_device else 1


def shifted_by(match: Match, offsets: I64) -> Match:
    """Return the match with each rank's offset taken from its stamps."""
    start, end = match.start_ns - offsets, match.end_ns - offsets
    return replace(match, start_ns=start, end_ns=end)


def without_spans(matching: Matching, spans: Sequence[I64]) -> Matching:
    """Leave out what lies in spans of some rank: steps, and waiting of hosts.

    A step is left out on the device of every rank when a collective of it begins in
    such a span on one. On the host the collective itself is: it stands before the
    launch of a step, in the span of the one before.

    Args:
        matching: Where nothing was refused.
        spans: For each rank int64[n, 2], ascending, on its own clock.
    """
    if matching.refused or not any(len(mine) for mine in spans):
        return matching
    hits = [_begins_in(m, spans, matching.offsets_ns) for m in matching.matches]
    gone = {
        step
        for m, hit in zip(matching.matches, hits, strict=True)
        if not m.on_host
        for step in m.step[hit].tolist()
    }
    kept = []
    for m, hit in zip(matching.matches, hits, strict=True):
        stay = ~(hit if m.on_host else np.isin(m.step, list(gone)))
        start, end, step = m.start_ns[stay], m.end_ns[stay], m.step[stay]
        kept.append(replace(m, start_ns=start, end_ns=end, step=step))
    if not any(len(m.step) for m in kept if not m.on_host):
        why = "all steps that they have in common are left out"
        return Matching(matches=(), offsets_ns=(), refused=why)
    return replace(matching, matches=tuple(m for m in kept if len(m.step)))


def _begins_in(match: Match, spans: Sequence[I64], offsets_ns: Sequence[int]) -> Bool:
    """Return which occurrences begin in a span of some rank."""
    found = np.zeros(len(match.step), dtype=np.bool_)
    for r, mine in enumerate(spans):
        if len(mine):
            at = match.start_ns[:, r] + offsets_ns[r]
            found |= within(mine[:, 0], mine[:, 1], at)[1]
    return found


def best_shift(
    base: dict[int, int], other: dict[int, int], *, steady: bool = True
) -> int:
    """Return what to add to the other's numbers so that they mean the same steps.

    The same steps end at one instant on two clocks, so their ends keep one distance;
    ends of different steps do not, since no two steps last equally long. Where that
    does not tell them apart, clocks are taken to agree.
    """
    found = []
    for shift in range(-max(other), max(base) + 1):
        common = [k for k in other if k + shift in base]
        if len(common) < max(1, min(len(base), len(other)) // 2):
            continue
        apart = np.array([other[k] - base[k + shift] for k in common])
        centre = float(np.median(apart))
        spread = float(np.median(np.abs(apart - centre)))
        found.append((abs(centre), spread, shift, len(common)))
    if not found:
        return 0
    nearest = min(found)
    long = [f for f in found if f[3] >= _LEAST_COMMON]
    if steady and long:
        steadiest = min(long, key=lambda f: (f[1], f[0]))
        if 4 * steadiest[1] < nearest[1]:
            return steadiest[2]
    return nearest[2]


def invalid_share(matches: tuple[Match, ...], tolerance_ns: int) -> float:
    """Return the share of occurrences whose earliest end precedes the last start."""
    bad = sum(
        int((m.end_ns.min(axis=1) < m.start_ns.max(axis=1) - tolerance_ns).sum())
        for m in matches
    )
    return bad / sum(len(m.step) for m in matches)
