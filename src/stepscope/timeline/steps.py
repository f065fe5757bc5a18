"""Where a step begins and ends.

In order of trust: graph launches, annotations, the period of the kernel sequence.
A step runs from its first device operation to the first of the next step, so that the
periods tile the trace and nothing between them is lost.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from stepscope.timeline.annotated import step_spans
from stepscope.timeline.columns import I64, KERNEL, STEP_MARK, Bool, Trace
from stepscope.timeline.turns import heads, launches_per_step

#: A decode graph has at least this many nodes, and is replayed at least this often.
_LEAST_NODES = 20
_LEAST_REPLAYS = 3
#: Smaller graphs may be pieces of a step, such as what lies between two attentions.
_WHOLE_NODES = 100
#: A decode step may sample in another way than the usual one, by so many operations
#: more. With more than that it holds a step of another kind, run without a graph.
_FOREIGN_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of one rank.

    Attributes:
        first_ns: First device operation of each step, int64[n], ascending.
        end_ns: Last device end of the last step.
        kinds: ``decode``, ``mixed``, ``prefill`` or ``step`` (the trace does not say).
            Without annotations ``mixed`` is a period that holds far more operations
            than a decode graph's usual one, such as a prompt that ran without a graph.
        n_ops: Device operations owned by each step (launched by its graph, or in
            its annotation), int64[n].
        source: ``graph-launches``, ``annotations``, ``period``, ``export`` (marked by
            our own export) or ``none``.
        period_ends: int64[n]; where each step's period ends: the first operation of
            whatever step comes next. For the last step of a run it is -1.
        doubt: What else a step may be, where that can not be told; else None.
    """

    first_ns: I64
    end_ns: int
    kinds: tuple[str, ...]
    n_ops: I64
    source: str
    period_ends: I64
    doubt: str | None = None

    def __len__(self) -> int:
        return len(self.first_ns)


def find_steps(trace: Trace) -> Steps:
    """Segment a trace into steps.

    Returns:
        The steps; with ``source`` ``none`` and no steps where nothing repeats.
    """
    if len(trace.marked_steps):
        return _from_marks(trace)
    launched = _launched(trace)
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


def _owner(trace: Trace) -> tuple[I64, I64]:
    """Return for each operation the start of the call that launched it, or -1."""
    order = np.argsort(trace.calls.correlation, kind="stable")
    known = trace.calls.correlation[order]
    at = np.searchsorted(known, trace.ops.correlation)
    at = np.minimum(at, max(len(known) - 1, 0))
    if not len(known):
        none = np.full(len(trace.ops), -1, dtype=np.int64)
        return none, none
    hit = (known[at] == trace.ops.correlation) & (trace.ops.correlation >= 0)
    call = np.where(hit, order[at], -1)
    return np.where(hit, trace.calls.start_ns[call], -1), call


def call_of_ops(trace: Trace) -> I64:
    """Return for each operation the index of the call that launched it, or -1."""
    return _owner(trace)[1]


@dataclass(frozen=True, slots=True)
class _Launched:
    """Graph launches that have nodes, in order of launch.

    ``call`` is the index of each, ``first_ns`` its first node, ``n`` how many nodes;
    ``begins`` says which begin a step as far as the graphs tell.
    """

    call: I64
    first_ns: I64
    n: I64
    begins: Bool
    doubt: str | None


def _launched(trace: Trace) -> _Launched:
    call = call_of_ops(trace)
    owned = call >= 0
    counts = np.bincount(call[owned], minlength=len(trace.calls))
    every = np.flatnonzero(trace.calls.is_graph & (counts > 0))
    first = np.full(len(trace.calls), np.iinfo(np.int64).max)
    np.minimum.at(first, call[owned], trace.ops.start_ns[owned])
    begins, doubt = _begin(counts[every])
    return _Launched(every, first[every], counts[every], begins, doubt)


def _begin(n: I64) -> tuple[Bool, str | None]:
    """Return which graph launches begin a step, and what is in doubt of it."""
    sizes, repeats = np.unique(n[n >= _LEAST_NODES], return_counts=True)
    if not len(sizes) or repeats.max() < _LEAST_REPLAYS:
        return np.zeros(len(n), dtype=np.bool_), None
    modal = int(sizes[np.argmax(repeats)])
    period = launches_per_step(n)
    if period > 1:
        begun = heads(n, period)
        if begun is not None:
            return begun, None
        return n == modal, (
            f"{period} graphs are launched in turn, and none tells which is the first"
            " of a step"
        )
    if modal < _WHOLE_NODES:
        return n == modal, f"a graph of {modal} nodes is small for a whole step"
    return n == modal, None


def _from_graphs(trace: Trace, launched: _Launched) -> Steps | None:
    if not launched.begins.any():
        return None
    mine = launched.begins
    # A large graph of another size is a step of another kind, unless it is a part.
    parts = launches_per_step(launched.n) > 1 and launched.doubt is None
    others = ~mine & (launched.n >= _LEAST_NODES) & (not parts)
    steps = _assemble(
        trace,
        launched.first_ns[mine],
        other_first=launched.first_ns[others],
        kinds=["decode"] * int(mine.sum()),
        n_ops=launched.n[mine],
        source="graph-launches",
    )
    return replace(steps, kinds=_told_apart(trace, steps), doubt=launched.doubt)


def _told_apart(trace: Trace, steps: Steps) -> tuple[str, ...]:
    """Return the kinds of periods that begin with decode graphs."""
    starts = trace.ops.start_ns
    n = np.searchsorted(starts, steps.period_ends)
    n -= np.searchsorted(starts, steps.first_ns)
    whole = steps.period_ends > 0
    if not whole.any():
        return steps.kinds
    foreign = whole & (n > (1 + _FOREIGN_SHARE) * np.median(n[whole]))
    return tuple("mixed" if f else k for f, k in zip(foreign, steps.kinds, strict=True))


def _from_annotations(trace: Trace, launched: _Launched) -> Steps | None:
    """Return annotated steps, and those that graphs show between them.

    An annotated step that launches one large graph begins with its first node; any
    other with the first operation that it launched. A rank that runs along without
    requests of its own annotates nothing, but replays the graph.
    """
    start, end, words = step_spans(trace)
    if not len(start):
        return None
    at, inside = _within(start, end, _owner(trace)[0])
    counts = np.bincount(at[inside], minlength=len(start))
    first = np.full(len(start), np.iinfo(np.int64).max)
    np.minimum.at(first, at[inside], trace.ops.start_ns[inside])
    holder, held = _within(start, end, trace.calls.start_ns[launched.call])
    n_graphs = np.bincount(holder[held], minlength=len(start))
    alone = held & (n_graphs[holder] == 1) & (launched.n >= _LEAST_NODES)
    first[holder[alone]] = launched.first_ns[alone]
    counts[holder[alone]] = launched.n[alone]
    some = counts > 0
    if not some.any():
        return None
    free = launched.begins & ~held
    by_graph = int(alone.sum() + free.sum())
    n = int(some.sum() + free.sum())
    return _assemble(
        trace,
        np.concatenate([first[some], launched.first_ns[free]]),
        other_first=np.empty(0, dtype=np.int64),
        kinds=[w for w, s in zip(words, some, strict=True) if s]
        + ["decode"] * int(free.sum()),
        n_ops=np.concatenate([counts[some], launched.n[free]]),
        source="graph-launches" if 2 * by_graph > n else "annotations",
    )


def _within(start: I64, end: I64, at_ns: I64) -> tuple[I64, Bool]:
    """Return which of the ascending spans each instant lies in, and whether it does."""
    at = np.searchsorted(start, at_ns, side="right") - 1
    inside: Bool = (at_ns >= 0) & (at >= 0)
    inside &= at_ns < end[np.maximum(at, 0)]
    return np.maximum(at, 0), inside


def _from_period(trace: Trace) -> Steps | None:
    """Find the longest kernel that occurs often and at a steady count apart."""
    kernels = np.flatnonzero(trace.ops.kind == KERNEL)
    if len(kernels) < _LEAST_NODES * _LEAST_REPLAYS:
        return None
    names = trace.ops.name[kernels]
    for name, n in sorted(Counter(names.tolist()).items(), key=lambda kv: kv[1]):
        if n < _LEAST_REPLAYS:
            continue
        at = np.flatnonzero(names == name)
        apart = np.diff(at)
        if apart.min() >= _LEAST_NODES and apart.max() == apart.min():
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
