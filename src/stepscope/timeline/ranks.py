"""Who waits for whom: collectives matched over ranks, waiting from arrival times."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Trace
from stepscope.timeline.names import communication_mask, short_name
from stepscope.timeline.steps import Steps

#: An end that precedes the last arrival by more than this did not belong to the
#: same collective. Source: end skew on one host was 1 to 22 us in real traces.
_TOLERANCE_NS = 50_000
#: Share of collectives that may violate it before the match is refused.
_MOST_INVALID = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Collectives of one family: rows are occurrences, columns ranks; nanoseconds.

    ``step`` is the step of each occurrence, -1 where there are no steps.
    """

    name: str
    start_ns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    end_ns: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    step: I64

    @property
    def wait_ns(self) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
        """Last arrival minus own arrival."""
        last: np.ndarray[tuple[int, int], np.dtype[np.int64]] = self.start_ns.max(
            axis=1, keepdims=True
        )
        return last - self.start_ns

    @property
    def transfer_ns(self) -> I64:
        """Median end minus last arrival, at least 0."""
        end = np.median(self.end_ns, axis=1).astype(np.int64)
        took: I64 = np.maximum(end - self.start_ns.max(axis=1), 0)
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """All matched families, or why nothing could be matched."""

    matches: tuple[Match, ...]
    offsets_ns: tuple[int, ...]
    refused: str | None


def match_ranks(traces: list[Trace], steps: list[Steps]) -> Matching:
    """Match collectives by step, kernel family and order within the step.

    Clocks are aligned first: a rank's offset is the median difference of its ends
    to the median end over ranks, since a collective ends everywhere at once.

    Returns:
        The matches; ``refused`` says why there are none when the ranks' counts
        differ or when ends precede the last arrival.
    """
    found = [_keys(t, s) for t, s in zip(traces, steps, strict=True)]
    aligned = _align(found)
    if isinstance(aligned, str):
        return Matching(matches=(), offsets_ns=(), refused=aligned)
    matches = _families(aligned)
    if not matches:
        return Matching(matches=(), offsets_ns=(), refused="no collectives in common")
    ends = np.concatenate([m.end_ns for m in matches])
    offset = np.median(ends - np.median(ends, axis=1, keepdims=True), axis=0)
    offsets = offset.astype(np.int64)
    small = bool(np.abs(offsets).max() < _TOLERANCE_NS)
    shifted = matches if small else tuple(_shifted(m, offsets) for m in matches)
    invalid = _invalid(shifted)
    if invalid > _MOST_INVALID:
        why = (
            f"{100 * invalid:.0f} % of collectives ended on some rank before the last"
            " rank arrived: they are not the same collectives"
        )
        return Matching(matches=(), offsets_ns=(), refused=why)
    used = tuple(0 for _ in offsets) if small else tuple(offsets.tolist())
    return Matching(matches=shifted, offsets_ns=used, refused=None)


_Key = tuple[int, str]


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
        found[(k, names[name])].append((int(lo), int(hi)))
    return found


def _align(
    found: list[dict[_Key, list[tuple[int, int]]]],
) -> list[dict[_Key, list[tuple[int, int]]]] | str:
    """Shift the step numbers of ranks that began to trace at different steps.

    Ranks are lined up by the first end of their steps: the shift that brings the
    ends of the first collective of each step closest.
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
        shift = _best_shift(firsts, mine)
        out.append({(k + shift, name): v for (k, name), v in other.items()})
    return out


def _first_ends(found: dict[_Key, list[tuple[int, int]]]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for (k, _), pairs in found.items():
        if k >= 0:
            ends[k] = min(ends.get(k, pairs[0][1]), pairs[0][1])
    return ends


def _best_shift(base: dict[int, int], other: dict[int, int]) -> int:
    best, least = 0, float("inf")
    for shift in range(-max(other), max(base) + 1):
        common = [k for k in other if k + shift in base]
        if len(common) < max(1, min(len(base), len(other)) // 2):
            continue
        apart = float(np.median([abs(other[k] - base[k + shift]) for k in common]))
        if apart < least:
            best, least = shift, apart
    return best


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


def _shifted(match: Match, offsets: I64) -> Match:
    return Match(
        name=match.name,
        start_ns=match.start_ns - offsets,
        end_ns=match.end_ns - offsets,
        step=match.step,
    )


def _invalid(matches: tuple[Match, ...]) -> float:
    """Return the share of occurrences whose earliest end precedes the last start."""
    bad = sum(
        int((m.end_ns.min(axis=1) < m.start_ns.max(axis=1) - _TOLERANCE_NS).sum())
        for m in matches
    )
    return bad / sum(len(m.step) for m in matches)
