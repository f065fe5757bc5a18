"""Offers that change what a server may use: threads, processors, graphs, frontends."""

from collections.abc import Iterator

from stepscope.board.planning.draft import Draft, Patch
from stepscope.board.planning.history import EAGER, THREADS
from stepscope.board.planning.offer import Facts, Offer
from stepscope.board.view import core_pct
from stepscope.recipe.schema import cpu_set

#: An API server below half a core hardly holds up the larger part of a step.
_BUSY_PCT = 50.0


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


def _frontend_cpu(facts: Facts) -> list[float]:
    """Return the CPU of the API server in each cell; as good as busy where unknown."""
    told = [c.telemetry for c in facts.analysis.cells if not c.warm_up]
    found = [None if t is None else core_pct(t, "api-server") for t in told]
    return [100.0 if cpu is None else cpu for cpu in found]


def graphs(facts: Facts) -> Iterator[Offer]:
    """The same cells with graphs, where the baseline launches kernels one by one."""
    history = facts.history
    flag = EAGER.get(history.engine)
    decides = facts.hypotheses("launch", "scheduler")
    sizes = facts.sizes(decides)
    base = next((x.command for x in facts.run.launches), ())
    others = {f"--{flag}" in x.command for x in facts.run.launches if x.command}
    if history.gpu is False or flag is None or not sizes:
        return
    if f"--{flag}" not in base or len(others) > 1:
        return
    yield Offer(
        id="graphs",
        title=f"the same cells with graphs (without --{flag})",
        reason="what graphs take away is what launching one by one costs, with the host"
        " work that a compiled model saves; the loop between steps is left as it was",
        decides=decides,
        needs=Draft(
            repeats=dict.fromkeys((sizes[0], sizes[-1]), 2),
            patches=(Patch("graphs-next", {flag: False}),),
        ),
    )


def frontends(facts: Facts) -> Iterator[Offer]:
    """A second API server: does the first one hold tokens up?"""
    decides = facts.hypotheses("frontend")
    sizes = facts.sizes(decides)
    history = facts.history
    if history.engine != "vllm" or not sizes or history.frontends:
        return
    if history.n_frontends > 1:
        return
    if all(cpu < _BUSY_PCT for cpu in _frontend_cpu(facts)):
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
