"""Graph launches: which calls launched which operations, and which begin a step."""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Bool, Trace
from stepscope.timeline.turns import (
    MOST_DRAFTS,
    WHOLE_NODES,
    heads,
    launches_per_step,
    leaders,
    pieces_of_others,
)

#: A decode graph has at least this many nodes, and is replayed at least this often.
LEAST_NODES = 20
LEAST_REPLAYS = 3
#: A model in pieces, without what runs between them, has this share of its nodes.
_SAME_MODEL = 0.4
_MAY_BE_PARTS = (
    "a step may be several of them (a draft, pieces), and each was taken for a step of"
    " its own"
)


def callers(trace: Trace) -> tuple[I64, I64]:
    """Return for each operation start and index of the call that launched it, or -1."""
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
    return callers(trace)[1]


@dataclass(frozen=True, slots=True)
class Launched:
    """Graph launches that have nodes, in order of launch.

    ``call`` is the index of each, ``first_ns`` its first node, ``n`` how many nodes;
    ``begins`` says which begin a decode step as far as the graphs tell, ``others``
    which begin a step of another kind, and ``own`` which may be a decode step's.
    """

    call: I64
    first_ns: I64
    n: I64
    begins: Bool
    others: Bool
    own: Bool
    doubt: str | None


def graph_launches(trace: Trace) -> Launched:
    """Return the graph launches of a trace that have nodes."""
    call = call_of_ops(trace)
    owned = call >= 0
    counts = np.bincount(call[owned], minlength=len(trace.calls))
    every = np.flatnonzero(trace.calls.is_graph & (counts > 0))
    first = np.full(len(trace.calls), np.iinfo(np.int64).max)
    np.minimum.at(first, call[owned], trace.ops.start_ns[owned])
    n = counts[every]
    pieces, first_piece = pieces_of_others(n)
    begins, others = np.zeros_like(pieces), first_piece
    begins[~pieces], alone, doubt = _begin(n[~pieces])
    if alone:
        others = others | (~begins & ~pieces & (n >= LEAST_NODES))
    # Small graphs are pieces: of these steps, or of a prompt.
    own = ~pieces & ((n >= LEAST_NODES) | (not alone))
    return Launched(every, first[every], n, begins, others, own, doubt)


def _begin(n: I64) -> tuple[Bool, bool, str | None]:
    """Return which graph launches begin a step, and what is in doubt of it.

    The second is whether other large graphs are steps of their own, not parts.
    """
    sizes, repeats = np.unique(n[n >= LEAST_NODES], return_counts=True)
    if not len(sizes) or repeats.max() < LEAST_REPLAYS:
        return np.zeros(len(n), dtype=np.bool_), True, None
    modal = int(sizes[np.argmax(repeats)])
    period = launches_per_step(n)
    if period > 1:
        begun = heads(n, period)
        if begun is not None:
            return begun, False, _two_steps(n, period)
    led = leaders(n, modal)
    if led is not None:
        text = f"graphs of {modal} nodes follow larger ones, now more and now fewer"
        return led, False, f"{text}: they were taken for a draft, and may be steps"
    if period > 1:
        text = f"{period} graphs are launched in turn, and none tells which is first"
        return n == modal, True, f"{text} in a step: {_MAY_BE_PARTS}"
    if modal < WHOLE_NODES:
        text = f"a graph of {modal} nodes is small for a whole step: {_MAY_BE_PARTS}"
        return n == modal, True, text
    return n == modal, True, None


def _two_steps(n: I64, period: int) -> str | None:
    """Say of a graph and pieces in turn that they may be two steps of one model."""
    pattern = n[-period:]
    small = pattern[pattern < WHOLE_NODES]
    whole, rest = int(pattern.max()), int(small.sum())
    if len(small) != period - 1 or len(small) <= MOST_DRAFTS or whole < WHOLE_NODES:
        return None
    if not _SAME_MODEL * whole <= rest <= whole / _SAME_MODEL:
        return None
    return (
        f"a graph of {whole} nodes and {len(small)} of {rest} in all are launched in"
        " turn: they were taken for one step, and may be a decode step and a mixed one"
    )
