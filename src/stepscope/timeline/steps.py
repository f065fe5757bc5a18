"""Where a step begins and ends.

In order of trust: graph launches, annotations, the period of the kernel sequence.
A step runs from its first device operation to the first of the next step, so that the
periods tile the trace and nothing between them is lost.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from stepscope.timeline.annotated import step_spans
from stepscope.timeline.columns import I64, KERNEL, STEP_MARK, Trace
from stepscope.timeline.graphs import (
    LEAST_NODES,
    LEAST_REPLAYS,
    Launched,
    callers,
    graph_launches,
)
from stepscope.timeline.intervals import within

#: A decode step may sample in another way than others, by some operations more. A
#: prompt runs every layer, as the graph does: by more than this share of the graph's
#: nodes, it is a step of another kind that ran without one.
_FOREIGN_SHARE = 0.5
#: So few of the steps may lack what all others run without a graph, such as a draft.
_FEW = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of one rank.

    Attributes:
        first_ns: First device operation of each step, int64[n], ascending.
        end_ns: Last device end of the last step.
        kinds: ``decode``, ``mixed``, ``prefill`` or ``step`` (the trace does not say).
            Without annotations ``mixed`` is a period in which far more operations
            than in others ran without a graph, such as a prompt.
        n_ops: Device operations owned by each step (launched by its graph, or in
            its annotation), int64[n].
        source: ``graph-launches``, ``annotations``, ``period``, ``export`` (marked by
            our own export) or ``none``.
        period_ends: int64[n]; where each step's period ends: the first operation of
            whatever step comes next. For the last step of a run it is -1.
        doubt: What else a step may be, where that can not be told; else None.
        n_other_graphs: Replays of large graphs that begin no step of these kinds.
    """

    first_ns: I64
    end_ns: int
    kinds: tuple[str, ...]
    n_ops: I64
    source: str
    period_ends: I64
    doubt: str | None = None
    n_other_graphs: int = 0

    def __len__(self) -> int:
        return len(self.first_ns)


def find_steps(trace: Trace) -> Steps:
    """Segment a trace into steps.

    Returns:
        The steps; with ``source`` ``none`` and no steps where nothing repeats.
    """
    if len(trace.marked_steps):
        return _from_marks(trace)
    launched = graph_launches(trace)
    said = _from_annotations(trace, launched)
    if said is not None:
        return said
    graphs = _from_graphs(trace, launched)
    if graphs is not None:
        return graphs
    periodic = _from_period(trace)
    if periodic is not None:
        return periodic
    empty = np.empty(0, dtype=np.int64)
    return Steps(
        first_ns=empty, end_ns=0, kinds=(), n_ops=empty, source="none",
        period_ends=empty,
    )  # fmt: skip


def _from_marks(trace: Trace) -> Steps:
    """Take the steps that our own export marked, whole periods as they were."""
    marks, starts = trace.marked_steps, trace.ops.start_ns
    n_ops = np.searchsorted(starts, marks.end_ns) - np.searchsorted(
        starts, marks.start_ns
    )
    return Steps(
        first_ns=marks.start_ns,
        end_ns=int(trace.ops.end_ns.max()) if len(trace.ops) else 0,
        kinds=tuple(trace.names[i].removeprefix(STEP_MARK) for i in marks.name),
        n_ops=n_ops,
        source="export",
        period_ends=marks.end_ns,
    )


def _from_graphs(trace: Trace, launched: Launched) -> Steps | None:
    if not launched.begins.any():
        return None
    mine = launched.begins
    steps = _assemble(
        trace,
        launched.first_ns[mine],
        other_first=launched.first_ns[launched.others],
        kinds=["decode"] * int(mine.sum()),
        n_ops=launched.n[mine],
        source="graph-launches",
    )
    kinds, doubt = _told_apart(trace, steps, launched)
    return replace(
        steps, kinds=kinds, doubt=launched.doubt or doubt,
        n_other_graphs=int(launched.others.sum()),
    )  # fmt: skip


def _told_apart(
    trace: Trace, steps: Steps, launched: Launched
) -> tuple[tuple[str, ...], str | None]:
    """Return the kinds of periods that begin with decode graphs, and what is in doubt.

    Assumes: next to none of the steps run less without a graph than is usual.
    """
    whole = steps.period_ends > 0
    if not whole.any():
        return steps.kinds, None
    own = np.flatnonzero(launched.own)
    own = own[np.argsort(launched.first_ns[own])]
    replayed = launched.first_ns[own]
    n_before = np.concatenate([[0], np.cumsum(launched.n[own])])
    starts = trace.ops.start_ns

    def between(at: I64, of: I64) -> I64:
        return (
            of[np.searchsorted(at, steps.period_ends)]
            - of[np.searchsorted(at, steps.first_ns)]
        )

    nodes = between(replayed, n_before)
    apart = between(starts, np.arange(len(starts) + 1)) - nodes
    most = _FOREIGN_SHARE * float(np.median(nodes[whole]))
    usual = float(np.quantile(apart[whole], _FEW, method="lower"))
    foreign = whole & (apart > usual + most)
    doubt = None
    if usual > most:
        doubt = (
            f"in every step {usual:.0f} operations or more ran without a graph, and"
            f" {np.median(nodes[whole]):.0f} of graphs: a draft, or prompts that make"
            " all of these steps mixed ones"
        )
    kinds = zip(foreign, steps.kinds, strict=True)
    return tuple("mixed" if f else k for f, k in kinds), doubt


def _from_annotations(trace: Trace, launched: Launched) -> Steps | None:
    """Return annotated steps, and those that graphs show between them.

    An annotated step that launches one large graph begins with its first node; any
    other with the first operation that it launched. A rank that runs along without
    requests of its own annotates nothing, but replays the graph.
    """
    start, end, words = step_spans(trace)
    if not len(start):
        return None
    called_ns = callers(trace)[0]
    at, inside = within(start, end, called_ns)
    inside &= called_ns >= 0
    counts = np.bincount(at[inside], minlength=len(start))
    first = np.full(len(start), np.iinfo(np.int64).max)
    np.minimum.at(first, at[inside], trace.ops.start_ns[inside])
    holder, held = within(start, end, trace.calls.start_ns[launched.call])
    n_graphs = np.bincount(holder[held], minlength=len(start))
    alone = held & (n_graphs[holder] == 1) & (launched.n >= LEAST_NODES)
    first[holder[alone]] = launched.first_ns[alone]
    counts[holder[alone]] = launched.n[alone]
    some = counts > 0
    if not some.any():
        return None
    free, others = launched.begins & ~held, launched.others & ~held
    by_graph = int(alone.sum() + free.sum())
    n = int(some.sum() + free.sum())
    steps = _assemble(
        trace,
        np.concatenate([first[some], launched.first_ns[free]]),
        other_first=launched.first_ns[others],
        kinds=[w for w, s in zip(words, some, strict=True) if s]
        + ["decode"] * int(free.sum()),
        n_ops=np.concatenate([counts[some], launched.n[free]]),
        source="graph-launches" if 2 * by_graph > n else "annotations",
    )
    return replace(steps, n_other_graphs=int(others.sum()))


def _from_period(trace: Trace) -> Steps | None:
    """Find the longest kernel that occurs often and at a steady count apart."""
    kernels = np.flatnonzero(trace.ops.kind == KERNEL)
    if len(kernels) < LEAST_NODES * LEAST_REPLAYS:
        return None
    names = trace.ops.name[kernels]
    for name, n in sorted(Counter(names.tolist()).items(), key=lambda kv: kv[1]):
        if n < LEAST_REPLAYS:
            continue
        at = np.flatnonzero(names == name)
        apart = np.diff(at)
        if apart.min() >= LEAST_NODES and apart.max() == apart.min():
            return _assemble(
                trace,
                trace.ops.start_ns[kernels[at]],
                other_first=np.empty(0, dtype=np.int64),
                kinds=["step"] * len(at),
                n_ops=np.full(len(at), int(apart[0]), dtype=np.int64),
                source="period",
            )
    return None


def _assemble(
    trace: Trace,
    first: I64,
    *,
    other_first: I64,
    kinds: list[str],
    n_ops: I64,
    source: str,
) -> Steps:
    order = np.argsort(first, kind="stable")
    first, n_ops = first[order], n_ops[order]
    starts = np.sort(np.concatenate([first, other_first]))
    after = np.searchsorted(starts, first, side="right")
    ends = np.append(starts, -1)[after]
    return Steps(
        first_ns=first,
        end_ns=int(trace.ops.end_ns.max()),
        kinds=tuple(kinds[i] for i in order),
        n_ops=n_ops,
        source=source,
        period_ends=ends,
    )
