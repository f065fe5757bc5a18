"""Collectives over ranks as records, and the rank that the others wait for."""

import numpy as np

from stepscope.timeline.arrivals import Arrivals, delays
from stepscope.timeline.device import Device
from stepscope.timeline.matches import Match, Matching
from stepscope.timeline.records import Collective, Rank
from stepscope.units import ms

#: Waiting below this share of a step is not worth a name.
_LEAST_SHARE = 0.01
#: Share of all waiting, and of the steps, for which one rank must be the cause.
_MOST = 0.6
#: Stages of a pipeline hand over so often a step; an exchange of tokens between
#: experts has two such operations a layer.
_HANDED_OVER = 4


def collectives(matching: Matching | None) -> list[Collective]:
    """Return the matched families, those that cost most waiting first."""
    if matching is None or matching.refused:
        return []
    found = [_record(match, matching.n_steps) for match in matching.matches]
    return sorted(found, key=lambda c: -sum(c.wait_ms_by_rank))


def _record(match: Match, n: int) -> Collective:
    last = match.start_ns.argmax(axis=1)
    return Collective(
        name=match.name,
        on_host=match.on_host,
        per_step=len(match.step) / n,
        n_matched=len(match.step),
        transfer_ms=ms(int(match.transfer_ns.sum()) / n),
        wait_ms_by_rank=tuple(
            ms(int(total) / n) for total in match.wait_ns.sum(axis=0)
        ),
        last_by_rank=tuple(
            int((last == r).sum()) for r in range(match.start_ns.shape[1])
        ),
    )


def straggler(
    devices: list[Device],
    ranks: tuple[Rank, ...],
    matching: Matching | None,
    found: Arrivals | None,
) -> tuple[int | None, str | None]:
    """Name the rank for which the others wait, and whether by work or by start.

    A rank causes what the others wait where it comes last. It is the straggler if it
    causes most of all waiting and does so in most steps, in each of them by more than
    what is worth a name: else a few events are blamed on a rank that is hardly late
    otherwise. A collective whose arrivals lie closer together than its ends proves
    nothing about anybody.

    Returns:
        Index of the rank, None where there is no one rank; and why.
    """
    if matching is None or found is None or not len(found.step):
        return None, None
    n_ranks, n = len(ranks), matching.n_steps
    caused = np.bincount(
        found.last[found.told], found.cost[found.told], minlength=n_ranks
    )
    total, per = float(found.cost.sum()), _per(devices)
    if total < _LEAST_SHARE * _step_ns(devices) * n:
        text = f"ranks wait {ms(total / n):.3f} {per} for each other"
        return None, f"{text}, below 1 % of the time"
    if caused.sum() < 0.5 * total:
        return None, (
            f"ranks wait {ms(total / n):.3f} {per} for each other, but mostly where"
            " their arrivals lie closer together than the ends of one collective"
        )
    worst = int(np.argmax(caused))
    many, of = _times(found, worst, n_ranks, _LEAST_SHARE * _step_ns(devices))
    if caused[worst] < _MOST * total:
        each = ", ".join(f"rank {ranks[r].rank} {ms(c / n):.3f}"
                         for r, c in enumerate(caused))  # fmt: skip
        near = ms((total - float(caused.sum())) / n)
        return None, (
            f"no rank causes most of the waiting; {per} by who is late: {each}, and"
            f" {near:.3f} where arrivals lie too close to tell"
        )
    if of > 1 and many < _MOST * of:
        return None, (
            f"{ms(caused[worst] / n):.3f} {per} are waited for rank"
            f" {ranks[worst].rank}, but 1 % of a step or more in {many} of {of} steps"
        )
    why = _why(found, devices, worst, float(caused[worst]), n)
    return _named(devices, ranks, worst, why, stages=_are_stages(matching))


def _are_stages(matching: Matching) -> bool:
    """Whether ranks hand over from one to the next, as stages of a pipeline do."""
    return any(
        "SendRecv" in m.name and len(m.step) <= _HANDED_OVER * matching.n_steps
        for m in matching.matches
    )


def _named(
    devices: list[Device],
    ranks: tuple[Rank, ...],
    worst: int,
    why: str,
    *,
    stages: bool,
) -> tuple[int | None, str]:
    """Return the rank that is last, unless it must be or ranks are missing."""
    world = ranks_of_job(devices)
    last = f"of these rank {ranks[worst].rank} is last, {why}"
    if stages:
        return None, (
            "ranks that send and receive a few times a step may be stages of a"
            f" pipeline, which wait for each other as a rule; {last}"
        )
    if world <= len(ranks):
        return worst, why
    return None, (
        f"{len(ranks)} of {world} ranks are here, and all may wait for one that is not;"
        f" {last}"
    )


def ranks_of_job(devices: list[Device]) -> int:
    """Return how many ranks the job had, as far as its traces say."""
    return max(d.trace.world_size or 0 for d in devices)


def _per(devices: list[Device]) -> str:
    return "ms a step" if any(len(d.steps) for d in devices) else "ms in all"


def _step_ns(devices: list[Device]) -> float:
    """Return a step's mean length, or the span where there are no whole steps."""
    every = [d.end - d.start for d in devices if len(d.start)]
    if every:
        return float(np.concatenate(every).mean())
    return max(float(d.trace.ops.end_ns.max() - d.trace.ops.start_ns[0])
               for d in devices)  # fmt: skip


def _times(
    found: Arrivals, worst: int, n_ranks: int, least_ns: float
) -> tuple[int, int]:
    """Return in how many steps one rank causes most and enough, and of how many."""
    step, unit = np.unique(found.step, return_inverse=True)
    table = np.zeros((len(step), n_ranks))
    np.add.at(table, (unit[found.told], found.last[found.told]), found.cost[found.told])
    mine = (table.argmax(axis=1) == worst) & (table[:, worst] >= least_ns)
    return int(mine.sum()), int((table.max(axis=1) > 0).sum())


def _why(
    found: Arrivals, devices: list[Device], worst: int, caused: float, n: int
) -> str:
    per = _per(devices)
    text = f"the others wait {ms(caused / n):.3f} {per} for it"
    kept = delays(found, devices, worst)
    parts = {"work": kept.work, "start": kept.idle, "transfer": kept.left}
    grown = {word: ns for word, ns in parts.items() if ns > 0}
    whole = sum(grown.values())
    # A host that runs ahead meets others while its device is in another step.
    if not whole or 2 * kept.cost < caused:
        return f"arrives last: {text}; by work or by start is not known"
    words = [w for w, ns in sorted(grown.items(), key=lambda kv: -kv[1])
             if ns >= 0.25 * whole]  # fmt: skip
    said = (
        f"computes {ms(kept.work / n):+.3f}",
        f"idles {ms(kept.idle / n):+.3f}",
        f"leaves the one before {ms(kept.left / n):+.3f}",
    )
    late = found.told & (found.last == worst) & (found.cost > 0)
    part = "" if kept.n == late.sum() else f" (in {kept.n} of {int(late.sum())})"
    return (
        f"by {' and '.join(words)}: {text}; between collectives{part} it"
        f" {', '.join(said)} {per} against the median rank"
    )
