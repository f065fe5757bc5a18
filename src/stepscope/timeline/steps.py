"""Where a step begins and ends.

In order of trust: graph launches, annotations, the period of the kernel sequence.
A step runs from its first device operation to the first of the next step, so that the
periods tile the trace and nothing between them is lost.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, STEP_MARK, Trace
from stepscope.timeline.turns import heads, launches_per_step

#: A decode graph has at least this many nodes, and is replayed at least this often.
_LEAST_NODES = 20
_LEAST_REPLAYS = 3
#: Smaller graphs may be pieces of a step, such as what lies between two attentions.
_WHOLE_NODES = 100

#: Annotations of one engine step: vLLM (old and new form), SGLang, and generic.
_STEP_NAMES = (
    re.compile(r"^execute_context_(?P<c>\d+)\(\d+\)_generation_(?P<g>\d+)"),
    re.compile(r"^execute_\d+_context_(?P<c>\d+)\S*_generation_(?P<g>\d+)"),
    re.compile(r"^step\[(?P<word>EXTEND|DECODE|MIXED)"),
    re.compile(r"^(?P<word>prefill|decode|mixed)\["),
    re.compile(r"^ProfilerStep#"),
)
_WORDS = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of one rank.

    Attributes:
        first_ns: First device operation of each step, int64[n], ascending.
        end_ns: Last device end of the last step.
        kinds: ``decode``, ``mixed``, ``prefill`` or ``step`` (the trace does not say).
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
    annotated = _from_annotations(trace)
    graphs, n_launches = _from_graphs(trace)
    # More than one launch an annotated step: the graphs are pieces, not steps.
    whole = graphs is not None and (
        annotated is None
        or (len(annotated) <= len(graphs) and n_launches < 1.5 * len(annotated))
    )
    if graphs is not None and whole:
        return graphs if annotated is None else replace(graphs, doubt=None)
    if annotated is not None:
        return annotated
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


def _label(name: str) -> str | None:
    for pattern in _STEP_NAMES:
        found = pattern.match(name)
        if not found:
            continue
        groups = found.groupdict()
        if "c" in groups:
            context, generation = int(groups["c"]), int(groups["g"])
            if context and generation:
                return "mixed"
            return "prefill" if context else "decode"
        if "word" in groups:
            return _WORDS.get(groups["word"], groups["word"])
        return "step"
    return None


def _step_spans(trace: Trace) -> tuple[I64, I64, list[str]]:
    """Return start, end and label of each step annotation on the host."""
    labels = [_label(n) for n in trace.names]
    at = [
        i
        for i, name in enumerate(trace.spans.name)
        if trace.spans.is_annotation[i] and labels[name] is not None
    ]
    index = np.array(at, dtype=np.int64)
    words = [labels[trace.spans.name[i]] or "step" for i in at]
    return trace.spans.start_ns[index], trace.spans.end_ns[index], words


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


def _from_graphs(trace: Trace) -> tuple[Steps | None, int]:
    """Return steps by graph launches, and how many launches of graphs there are."""
    call = call_of_ops(trace)
    owned = call >= 0
    if not owned.any():
        return None, 0
    counts = np.bincount(call[owned], minlength=len(trace.calls))
    every = np.flatnonzero(trace.calls.is_graph & (counts > 0))
    big = every[counts[every] >= _LEAST_NODES]
    if not len(big):
        return None, 0
    sizes, repeats = np.unique(counts[big], return_counts=True)
    best = int(np.argmax(repeats))
    if repeats[best] < _LEAST_REPLAYS:
        return None, len(every)
    own = counts[big] == sizes[best]
    chosen, others, doubt = big[own], big[~own], None
    period = launches_per_step(counts[every])
    if period > 1:
        begun = heads(counts[every], period)
        if begun is None:
            doubt = (
                f"{period} graphs are launched in turn, and none tells which is the"
                " first of a step"
            )
        else:
            chosen, others = every[begun], others[:0]
    elif sizes[best] < _WHOLE_NODES:
        doubt = f"a graph of {sizes[best]} nodes is small for a whole step"
    first = np.full(len(trace.calls), np.iinfo(np.int64).max)
    np.minimum.at(first, call[owned], trace.ops.start_ns[owned])
    steps = _assemble(
        trace,
        first[chosen],
        other_first=first[others],
        kinds=_kinds_at(trace, trace.calls.start_ns[chosen]),
        n_ops=counts[chosen],
        source="graph-launches",
    )
    return replace(steps, doubt=doubt), len(every)


def _kinds_at(trace: Trace, launched_ns: I64) -> list[str]:
    start, end, words = _step_spans(trace)
    at = np.searchsorted(start, launched_ns, side="right") - 1
    return [
        words[i] if i >= 0 and t < end[i] else "decode"
        for i, t in zip(at.tolist(), launched_ns.tolist(), strict=True)
    ]


def _from_annotations(trace: Trace) -> Steps | None:
    start, end, words = _step_spans(trace)
    if not len(start):
        return None
    launched, _ = _owner(trace)
    at = np.searchsorted(start, launched, side="right") - 1
    inside = (launched >= 0) & (at >= 0)
    inside &= launched < end[np.maximum(at, 0)]
    counts = np.bincount(at[inside], minlength=len(start))
    first = np.full(len(start), np.iinfo(np.int64).max)
    np.minimum.at(first, at[inside], trace.ops.start_ns[inside])
    some = counts > 0
    if not some.any():
        return None
    return _assemble(
        trace,
        first[some],
        other_first=np.empty(0, dtype=np.int64),
        kinds=[w for w, s in zip(words, some, strict=True) if s],
        n_ops=counts[some],
        source="annotations",
    )


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
