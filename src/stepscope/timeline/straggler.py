"""Collectives over ranks as records, and the rank that the others wait for."""

import numpy as np

from stepscope.timeline.device import Device
from stepscope.timeline.ranks import Matching
from stepscope.timeline.records import Collective, Rank
from stepscope.units import ms


def collectives(devices: list[Device], matching: Matching | None) -> list[Collective]:
    """Return the matched families, those that cost most waiting first."""
    if matching is None or matching.refused:
        return []
    n = max(min(len(d.steps) for d in devices), 1)
    found = []
    for match in matching.matches:
        last = match.start_ns.argmax(axis=1)
        found.append(
            Collective(
                name=match.name,
                per_step=len(match.step) / n,
                n_matched=len(match.step),
                transfer_ms=ms(int(match.transfer_ns.sum()) / n),
                wait_ms_by_rank=tuple(
                    ms(int(total) / n) for total in match.wait_ns.sum(axis=0)
                ),
                last_by_rank=tuple(int((last == r).sum()) for r in range(len(devices))),
            )
        )
    return sorted(found, key=lambda c: -sum(c.wait_ms_by_rank))


def straggler(
    ranks: tuple[Rank, ...], matching: Matching | None
) -> tuple[int | None, str | None]:
    """Name the rank for which the others wait, and whether by work or by start."""
    if matching is None or matching.refused or not matching.matches:
        return None, None
    n = sum(len(m.step) for m in matching.matches)
    last = sum(
        np.bincount(m.start_ns.argmax(axis=1), minlength=len(ranks))
        for m in matching.matches
    )
    wait = sum(m.wait_ns.sum(axis=0) for m in matching.matches)
    worst = int(np.argmax(last))
    others = np.delete(np.asarray(wait), worst)
    # Arriving last by chance alone happens in 1 of n ranks.
    if np.asarray(last)[worst] < max(0.6 * n, 1.5 * n / len(ranks)):
        return None, "no rank arrives last in most collectives"
    if int(np.asarray(wait)[worst]) > 0.5 * float(others.mean()):
        return None, "the rank that arrives last most often waits nearly as long"
    return worst, _why(ranks, worst)


def _why(ranks: tuple[Rank, ...], worst: int) -> str:
    mine = ranks[worst].budget_ms
    rest = [r.budget_ms for i, r in enumerate(ranks) if i != worst]
    others = [b for b in rest if b is not None]
    if mine is None or not others:
        return "arrives last; too few steps to say whether by work or by start"
    work = mine.compute - float(np.median([b.compute for b in others]))
    idles = [b.idle for b in others if b.idle is not None]
    if mine.idle is None or not idles:
        return f"arrives last; computes {work:+.3f} ms a step against the median rank"
    start = mine.idle - float(np.median(idles))
    if work > max(start, 0.0):
        return f"by work: computes {work:+.3f} ms a step more than the median rank"
    if start > max(work, 0.0):
        return f"by start: idles {start:+.3f} ms a step more than the median rank"
    return "arrives last, with neither more work nor more idle time than the others"
