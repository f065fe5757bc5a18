"""Offers that change what a server may use, where no GPU takes part."""

from collections.abc import Iterator

from stepscope.board.planning.draft import Draft, Patch
from stepscope.board.planning.history import THREADS
from stepscope.board.planning.offer import Facts, Offer
from stepscope.recipe.schema import cpu_set


def threads(facts: Facts) -> Iterator[Offer]:
    """Half of the compute threads: is it their work, or do they wait for each other?"""
    history = facts.history
    decides = facts.hypotheses("compute")
    sizes = facts.sizes(decides)
    n = history.n_threads
    if history.gpu is not False or history.engine not in THREADS or not sizes:
        return
    if n is None or n < 2 or history.fewer_threads:
        return
    ends = dict.fromkeys((sizes[0], sizes[-1]), 2)
    yield Offer(
        id="threads",
        title=f"the server with {n // 2} of its {n} compute threads",
        reason="threads that spin at a barrier read as busy; work that they share takes"
        " longer with fewer of them",
        decides=decides,
        needs=Draft(
            repeats=ends, patches=(Patch("half-threads", {"threads": n // 2}),)
        ),
    )


def processors(facts: Facts) -> Iterator[Offer]:
    """Half of the processors, for servers that take as many threads as they have."""
    history = facts.history
    decides = facts.hypotheses("compute")
    sizes = facts.sizes(decides)
    if history.gpu is not False or history.engine in (*THREADS, "url") or not sizes:
        return
    base = next((x.cpus for x in facts.run.launches), None)
    known = range(history.n_cpus or 0) if base is None else cpu_set(base) or ()
    n = len(known)
    if n < 2 or history.pinned:
        return
    half = ",".join(str(cpu) for cpu in sorted(known)[: n // 2])
    yield Offer(
        id="cpus",
        title=f"the server on {n // 2} of its {n} processors",
        reason="its threads follow its processors: work that they share takes longer"
        " on fewer",
        decides=decides,
        needs=Draft(
            repeats=dict.fromkeys((sizes[0], sizes[-1]), 2),
            patches=(Patch("half-cpus", cpus=half),),
        ),
    )


def frontends(facts: Facts) -> Iterator[Offer]:
    """A second API server: does the first one hold tokens up?"""
    decides = facts.hypotheses("frontend")
    sizes = facts.sizes(decides)
    if facts.history.engine != "vllm" or not sizes or facts.history.frontends:
        return
    yield Offer(
        id="api-servers",
        title="the same cells with two API servers (--api-server-count 2)",
        reason="what an API server takes is divided between two",
        decides=decides,
        needs=Draft(
            repeats=dict.fromkeys((sizes[0], sizes[-1]), 2),
            patches=(Patch("two-frontends", {"api-server-count": 2}),),
        ),
    )
