"""Offers that look closer: timelines, iteration lines, counters, another client."""

from collections.abc import Iterator, Sequence

from stepscope.board.planning.draft import Draft, Patch
from stepscope.board.planning.history import DETAILS, EAGER, TRACES
from stepscope.board.planning.offer import Facts, Offer, once
from stepscope.board.planning.opened import Open

#: What only a timeline prices, and what it can show of others.
_TIMELINE = (
    "launch", "graph-launch", "kernel-gaps", "rank-wait", "imbalance", "communication",
    "scheduler",
)  # fmt: skip
_SAMPLED = ("power", "host-memory")
_COUNTED = ("bandwidth", "compute")
_LEAST_CPUS = 4


def trace(facts: Facts) -> Iterator[Offer]:
    """Timelines of what is open, where the run holds none."""
    found = facts.hypotheses(*_TIMELINE)
    sizes = facts.sizes(found)
    wanted = _to_trace(facts, found, sizes)
    if not wanted or facts.history.gpu is False:
        return
    there = [o for o in found if any(o.covers(c) for c in wanted)]
    why = None
    if facts.history.engine not in TRACES:
        why = (
            f"only {' and '.join(TRACES)} servers started here can be told to take one"
        )
    at = ", ".join(map(str, wanted))
    yield Offer(
        id="trace",
        title=f"kernel timeline of decode steps at concurrency {at}",
        reason="it prices launches, gaps, waits and the engine's own work in one"
        " picture; between two sizes it decides only where both agree",
        decides=tuple(there),
        bears_on=tuple(
            o
            for o in facts.hypotheses("bandwidth", "compute")
            if any(o.covers(c) for c in wanted)
        ),
        needs=None
        if why
        else Draft(
            repeats=once(wanted),
            traces=frozenset(wanted),
            configurations=facts.others(there),
        ),
        not_in_recipe=why,
        command="nsys profile, switched on in mid-cell; stepscope trace FILE"
        if why
        else None,
    )


def _to_trace(
    facts: Facts, found: Sequence[Open], sizes: Sequence[int]
) -> tuple[int, ...]:
    """Return the ends of what is open, and one size of each range without an end.

    What was traced is not traced again: the board has read it.
    """
    wanted = dict.fromkeys((*sizes[:1], *sizes[-1:]))
    for o in found:
        mine = facts.sizes((o,))
        if mine and not any(o.covers(c) for c in wanted):
            wanted[mine[-1]] = None
    return tuple(sorted(c for c in wanted if c not in facts.history.traced))


_Opened = tuple[Open, ...]


def _by_step_lines(facts: Facts) -> tuple[_Opened, _Opened, tuple[int, ...]]:
    """Return what lines of single steps decide, what they bear on, and the sizes."""
    decides = facts.hypotheses("frontend", "prefill")
    bears_on = facts.hypotheses("scheduler")
    return decides, bears_on, facts.sizes((*decides, *bears_on))


def details(facts: Facts) -> Iterator[Offer]:
    """Iteration lines in the log: each step's period and its tokens."""
    history = facts.history
    if history.details or history.engine not in DETAILS or history.n_frontends > 1:
        return
    decides, bears_on, sizes = _by_step_lines(facts)
    if sizes:
        yield Offer(
            id="iteration-details",
            title="the engine's own step period and each step's tokens in the log",
            reason="the frontend's work beside the engine's, and steps with prefill"
            " apart from pure decode steps",
            decides=decides,
            bears_on=bears_on,
            needs=Draft(
                repeats=once(sizes),
                details=True,
                configurations=facts.others((*decides, *bears_on)),
            ),
        )


def one_frontend(facts: Facts) -> Iterator[Offer]:
    """The same cells with one API server, for several of them log no step."""
    history = facts.history
    if history.engine not in DETAILS or history.n_frontends < 2 or history.step_lines:
        return
    decides, bears_on, sizes = _by_step_lines(facts)
    if sizes:
        yield Offer(
            id="one-frontend",
            title="the same cells with one API server (--api-server-count 1), and each"
            " step's tokens in the log",
            reason=f"{history.n_frontends} API servers log no steps; one does, and what"
            " it takes longer than them shows beside it",
            decides=decides,
            bears_on=bears_on,
            needs=Draft(
                repeats=once(sizes),
                details=True,
                patches=(Patch("one-frontend", {"api-server-count": 1}),),
            ),
        )


def own_run(facts: Facts) -> Iterator[Offer]:
    """The same cells under this tool, where another took them."""
    if facts.history.ours:
        return
    void = tuple(o for o in facts.lacking("void", "client-bound") if o.kind == "claim")
    gpu = facts.history.gpu is not False
    names = ["client", "kv-capacity", *(_SAMPLED if gpu else ())]
    if gpu and not facts.history.counters:
        names += _COUNTED
    decides = tuple(dict.fromkeys((*facts.hypotheses(*names), *void)))
    sizes = facts.sizes(decides)
    if sizes:
        yield Offer(
            id="own-run",
            title="the same cells under stepscope run",
            reason="a client whose health is known, and throttle reasons, host memory,"
            " the server's metrics and (Hopper and later) SM, tensor and DRAM counters"
            " sampled on one clock",
            decides=decides,
            bears_on=facts.hypotheses("frontend"),
            needs=Draft(repeats=once(sizes), configurations=facts.others(decides)),
        )


def counters(facts: Facts) -> Iterator[Offer]:
    """Counters that this host does not offer are named and never ordered."""
    if not facts.history.ours or facts.history.counters:
        return
    if facts.history.gpu is False:
        found = facts.hypotheses("bandwidth", "compute", "power", "scheduler")
        title, how = "the processor's counters", "perf stat and perf record in mid-cell"
        why = "stepscope samples no counters of a CPU"
    else:
        found = facts.hypotheses("bandwidth", "compute")
        title, how = "GPM counters of the GPU", "stepscope doctor says what it needs"
        why = "the driver did not offer them to this run (Hopper and later have them)"
    if found:
        yield Offer(
            id="counters",
            title=title,
            reason="what the memory and the arithmetic units did, not what they had to",
            decides=found,
            not_in_recipe=why,
            command=how,
        )


def eager(facts: Facts) -> Iterator[Offer]:
    """The same cells without graphs."""
    flag = EAGER.get(facts.history.engine)
    decides = facts.hypotheses("launch")
    sizes = facts.sizes(decides)
    if not decides or not sizes or facts.history.eager or flag is None:
        return
    if facts.history.gpu is False:
        return
    ends = tuple(dict.fromkeys((sizes[0], sizes[-1])))
    at = " and ".join(map(str, ends))
    yield Offer(
        id="eager",
        title=f"the same cells without graphs (--{flag}) at {at}",
        reason="what graphs save is what launching one by one would cost; two starts"
        " each, so that a start is not taken for the flag",
        decides=decides,
        bears_on=facts.hypotheses("graph-launch"),
        needs=Draft(
            repeats=dict.fromkeys(ends, 2),
            patches=(Patch("eager-next", {flag: True}),),
            n_launches=2,
        ),
    )


def cpus(facts: Facts) -> Iterator[Offer]:
    """Half of the processors: does the host matter?"""
    bears_on = facts.hypotheses("scheduler", "frontend", "launch")
    n = facts.history.n_cpus
    sizes = facts.sizes(bears_on)
    if not sizes or facts.history.gpu is False or facts.history.pinned:
        return
    why = None
    if n is None:
        why = "the run does not say how many processors the machine has"
    elif n < _LEAST_CPUS:
        why = f"{n} processors leave nothing to take away"
    elif facts.history.engine == "url":
        why = "the server is not started here"
    ends = (sizes[0], sizes[-1])
    yield Offer(
        id="cpu-sweep",
        title="the server on half of its processors",
        reason="a step that does not change acquits the host's share of it; one that"
        " does needs a timeline to say which part",
        bears_on=bears_on,
        needs=None
        if why or n is None
        else Draft(
            repeats=dict.fromkeys(ends, 2),
            patches=(Patch("half-cpus", cpus=f"0-{n // 2 - 1}"),),
            n_launches=2,
        ),
        not_in_recipe=why,
        command='[[patch]] with cpus = "0-..."' if why else None,
    )


def short_prompts(facts: Facts) -> Iterator[Offer]:
    """The same cells with prompts of a few tokens, where no step tells its tokens."""
    decides = facts.hypotheses("prefill")
    if decides and (facts.history.engine not in DETAILS):
        yield Offer(
            id="short-prompts",
            title="the same cells with prompts of a few tokens",
            reason="what remains of the step is decoding",
            decides=decides,
            not_in_recipe="it is a recipe of its own: one recipe has one prompt length",
            command="workload.input_tokens = 8 in a copy of the recipe; stepscope"
            " compare",
        )


def boot_first(facts: Facts) -> Iterator[Offer]:
    """A configuration that never booted."""
    found = facts.lacking("unmeasured")
    for name in dict.fromkeys(o.configuration for o in found):
        yield Offer(
            id="boot",
            title=f"boot {name}",
            reason="nothing of it was measured; the boot verdict names the flag",
            bears_on=tuple(o for o in found if o.configuration == name),
            not_in_recipe="its flags must be mended first",
            command="stepscope log LOG",
        )
