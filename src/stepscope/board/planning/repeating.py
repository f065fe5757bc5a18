"""Offers that measure again: repeats, warm-up, sizes, starts, anchors."""

import math
import re
from collections.abc import Iterator, Sequence

from stepscope.analysis.predict.limits import batch_limit
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.offer import Facts, Offer, once
from stepscope.board.planning.opened import Open
from stepscope.board.planning.sizes import next_sizes

#: What a fresh launch with repeats mends, and what takes longer cells besides.
_MENDED = frozenset(
    {"repeat", "disagree", "warmup-not-converged", "warmup-unknown", "stall",
     "first-run-contaminated", "jit-during-measurement", "bimodal-ttft",
     "ttft-not-monotone"}
)  # fmt: skip
_LONGER = frozenset({"not-steady", "partial-waves"})
#: What the server or the workload must change: repeating alone does not mend it.
_UNMENDED = frozenset(
    {"prefix-cache-hits", "preemptions", "failed-requests", "early-stop",
     "outputs-differ", "little-violated", "token-count-mismatch", "clock-step",
     "client-bound", "void"}
)  # fmt: skip
#: What repeating mends though it was repeated: once more, and longer.
_AGAIN = frozenset(
    {"disagree", "stall", "first-run-contaminated", "jit-during-measurement",
     "warmup-not-converged", "bimodal-ttft", "ttft-not-monotone", *_LONGER}
)  # fmt: skip
_REPEATS = 3
#: A step with less than this share of what is in flight leaves requests waiting.
_FULL = 0.9
#: Starts of each side that nobody takes; and those that give a row its interval.
_MOST_STARTS = 20
_STARTS = 3
_PAIR = re.compile(r"^(\S+) against (\S+):")


def repeats(facts: Facts) -> Iterator[Offer]:
    """Three repeats where a claim rests on one, or where repeats disagree."""
    groups: dict[tuple[tuple[int, ...], bool], list[Open]] = {}
    for o in facts.lacking(*_MENDED, *_LONGER, *_UNMENDED):
        if o.codes & {"sizes", "runs", "unmeasured"}:
            continue
        sizes = o.sizes or facts.sizes((o,))
        # A claim that three repeats did not make solid wants something else.
        done = _repeated(facts, o, sizes) >= _REPEATS and not o.codes & _AGAIN
        if sizes and not done and (o.kind == "claim" or "disagree" in o.codes):
            groups.setdefault((sizes, bool(o.codes & _LONGER)), []).append(o)
    for (sizes, longer), mine in sorted(_merged(groups).items()):
        decides = tuple(o for o in mine if not o.codes & _UNMENDED)
        n = max(_REPEATS, *(_repeated(facts, o, sizes) + 2 for o in mine))
        waves = max(2 * facts.history.waves, 4) if longer else facts.history.waves
        at = ", ".join(map(str, sizes))
        long = f" and {waves} waves" if longer else ""
        yield Offer(
            id="repeats",
            title=f"{n} repeats{long} at concurrency {at}",
            reason=_why_repeat(min(_repeated(facts, o, sizes) for o in mine))
            + (", and longer cells have less ramp in them" if longer else ""),
            decides=decides,
            bears_on=tuple(o for o in mine if o not in decides),
            needs=Draft(
                repeats=dict.fromkeys(sizes, n),
                waves=waves,
                configurations=facts.others(mine),
            ),
        )


def _merged(
    groups: dict[tuple[tuple[int, ...], bool], list[Open]],
) -> dict[tuple[tuple[int, ...], bool], list[Open]]:
    """Put what is open at some sizes to what is open at these and others.

    A launch that measures all of them measures those too.
    """
    merged: dict[tuple[tuple[int, ...], bool], list[Open]] = {}
    for sizes, longer in sorted(groups, key=lambda key: -len(key[0])):
        holds = [k for k in merged if k[1] == longer and set(sizes) <= set(k[0])]
        key = min(holds, key=lambda k: len(k[0]), default=(sizes, longer))
        merged.setdefault(key, []).extend(groups[sizes, longer])
    return merged


def _why_repeat(n: int) -> str:
    """Return what so few repeats lack."""
    if n < 2:
        return "one run has no interval; three on one settled launch have"
    return f"{n} repeats leave it open; more on one settled launch narrow the interval"


def _repeated(facts: Facts, o: Open, sizes: Sequence[int]) -> int:
    """Return the fewest sound repeats that a thing's configuration has at any size."""
    base = facts.history.configurations[0]
    counts = (facts.history.repeats.get((o.configuration or base, c), 0) for c in sizes)
    return min(counts, default=0)


def warm_up(facts: Facts) -> Iterator[Offer]:
    """Blocks enough to tell whether it has settled, and repeats on one launch."""
    decides = facts.hypotheses("warm-up")
    sizes = facts.sizes(decides)
    if not sizes:
        return
    done = facts.history.blocks
    blocks = 2 * done if done >= 6 and facts.lacking("warmup-not-converged") else 6
    reason = (
        "whether a launch has settled shows in its warm-up and in its first repeat"
        " against the others"
    )
    mixed = _two_kinds_of_blocks(facts)
    if mixed:
        reason += (
            "; blocks whose ranks are not alike scatter however warm it is"
            " (uneven-ranks), so they may leave it open"
        )
    yield Offer(
        id="warm-up",
        title=f"{blocks} warm-up blocks and {_REPEATS} repeats at concurrency"
        f" {', '.join(map(str, sizes))}",
        reason=reason,
        decides=() if mixed else decides,
        bears_on=decides if mixed else (),
        needs=Draft(
            repeats=dict.fromkeys(sizes, _REPEATS),
            blocks=blocks,
            configurations=facts.others(decides),
        ),
    )


def _two_kinds_of_blocks(facts: Facts) -> bool:
    """Return whether some warm-up blocks took another step than others."""
    blocks = {c.name for c in facts.analysis.cells if c.warm_up and c.capture is None}
    odd = {f.cell for f in facts.analysis.findings if f.code == "uneven-ranks"}
    return bool(blocks & odd) and not blocks <= odd


def more_sizes(facts: Facts) -> Iterator[Offer]:
    """Concurrencies that pin the step model down."""
    decides = facts.lacking("sizes")
    dp = max(facts.run.layout.dp, 1)
    launches = facts.run.launches
    limit = batch_limit(facts.run, launches[0] if launches else None)
    most = min(math.inf if limit is None else limit.sequences, _held_back(facts))
    sizes = next_sizes(facts.analysis, facts.history.sizes, dp=dp, most=most)
    if decides and sizes:
        every = {**once(facts.history.sizes), **dict.fromkeys(sizes, 2)}
        yield Offer(
            id="sizes",
            title=f"the sweep with concurrency {', '.join(map(str, sizes))} twice",
            reason="a model's level, slope and knee are known as well as the sizes lie;"
            " one session, so that sizes are compared with one another",
            decides=decides,
            needs=Draft(repeats=every, configurations=facts.others(decides)),
        )


def _held_back(facts: Facts) -> float:
    """Return the sequences that a step was seen to hold at most; more would queue."""
    seen = (
        cell.sequences_per_step
        for cell in facts.analysis.cells
        if cell.sequences_per_step is not None
        and cell.mean_in_flight is not None
        and cell.sequences_per_step < _FULL * cell.mean_in_flight
    )
    return min(seen, default=math.inf)


def launches(facts: Facts) -> Iterator[Offer]:
    """More starts, there and back, for each row that is undetermined."""
    rows: dict[tuple[int, ...], list[Open]] = {}
    for o in facts.lacking("runs", "one-launch"):
        rows.setdefault(o.sizes or facts.history.sizes, []).append(o)
    for sizes, mine in sorted(rows.items()):
        decides = tuple(o for o in mine if _starts(o) <= _MOST_STARTS)
        n_launches = max((_starts(o) for o in decides), default=_STARTS)
        n_runs = max((o.n_runs or 2 * _STARTS for o in decides), default=n_launches)
        each = math.ceil(n_runs / n_launches)
        url = facts.history.engine == "url"
        at = ", ".join(map(str, sizes))
        yield Offer(
            id="launches",
            title=f"{n_launches} starts of each, A B B A, {each}"
            f" {'run' if each == 1 else 'repeats'} in each, at concurrency {at}",
            reason="starts, not requests, are what repeats: an interval from one start"
            " does not hold what differs between starts",
            decides=decides,
            bears_on=tuple(o for o in mine if o not in decides),
            needs=None
            if url
            else Draft(
                repeats=dict.fromkeys(sizes, each),
                n_launches=n_launches,
                configurations=_compared(facts, mine),
            ),
            not_in_recipe="the server is not started here" if url else None,
        )


def _starts(o: Open) -> int:
    """Return the starts of each side that a row takes."""
    return max(o.n_starts or _STARTS, 2)


def anchor(facts: Facts) -> Iterator[Offer]:
    """The baseline first and last, where sessions or configurations share a doubt."""
    mine = facts.lacking("cross-session", "shared-baseline")
    sizes = tuple(dict.fromkeys(c for o in mine for c in o.sizes)) or facts.sizes(mine)
    sizes = sizes or facts.history.sizes
    if not mine or not sizes:
        return
    url = facts.history.engine == "url"
    yield Offer(
        id="anchor",
        title="the baseline first and last beside what is compared with it",
        reason="what sessions or a bad baseline add is common to both arms only where"
        " the baseline is measured among them",
        decides=mine,
        needs=None
        if url
        else Draft(
            repeats=dict.fromkeys(sizes, _REPEATS),
            n_launches=2,
            configurations=frozenset(facts.history.configurations[1:]),
        ),
        not_in_recipe="the server is not started here" if url else None,
    )


def _compared(facts: Facts, mine: Sequence[Open]) -> frozenset[str]:
    named = [m for o in mine if (m := _PAIR.match(o.what))]
    names = {name for m in named for name in m.groups()}
    others = set(facts.history.configurations[1:])
    return frozenset(names & others) or frozenset(others)
