"""Replays of graphs against each other: which of them lost records.

A graph runs the same nodes at each replay, so replays that differ either are of
different graphs or lost records. Graphs of another batch size swap whole kernels for
others; a loss takes some of a kernel's records and adds nothing.
"""

from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, Bool, Trace
from stepscope.timeline.graphs import call_of_ops
from stepscope.timeline.turns import launches_per_step

_Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
#: A node count that occurs this often belongs to a graph of its own.
_OWN_GRAPH = 3
_LEAST_NODES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Graph replays in order of launch.

    Attributes:
        launch: Index of the call of each.
        n_nodes: Device operations recorded of each, int64[n].
        kinds: Distinct counts by name, int64[m, names].
        kind_of: Row of ``kinds`` for each replay, int64[n].
        order: For each row of ``kinds`` the names in order of start, of one replay.
    """

    launch: I64
    n_nodes: I64
    kinds: _Table
    kind_of: I64
    order: tuple[I64, ...]


def replays(trace: Trace) -> Replays:
    """Count the nodes of every graph replay by name."""
    call = call_of_ops(trace)
    graph = np.flatnonzero(trace.calls.is_graph)
    row = np.full(len(trace.calls) + 1, -1, dtype=np.int64)
    row[graph] = np.arange(len(graph))
    owner = row[call]
    mine = np.flatnonzero(owner >= 0)
    if len(trace.marked_steps):
        # The operation that closes an export is of a replay that is not in it.
        closed = trace.marked_steps.end_ns.max()
        mine = mine[trace.ops.start_ns[mine] < closed]
    used, name = np.unique(trace.ops.name[mine], return_inverse=True)
    table = np.zeros((len(graph), max(len(used), 1)), dtype=np.int64)
    np.add.at(table, (owner[mine], name), 1)
    kinds, first, kind_of = np.unique(
        table, axis=0, return_index=True, return_inverse=True
    )
    return Replays(
        launch=graph,
        n_nodes=table.sum(axis=1),
        kinds=kinds,
        kind_of=kind_of.reshape(-1),
        order=tuple(name[owner[mine] == i] for i in first.tolist()),
    )


def lost_nodes(found: Replays) -> str | None:
    """Say which replays lost records; None if none did.

    The first and the last replay may be cut by the window and prove nothing.
    """
    n = len(found.launch)
    if n < 3:
        return None
    full = found.n_nodes > 0
    inner = _inner(full)
    empty = inner & ~full
    if empty.any():
        return f"{int(empty.sum())} of {n} graph launches in mid-trace have no kernels"
    repeats = np.bincount(found.kind_of, minlength=len(found.kinds))
    own = repeats >= _OWN_GRAPH
    everywhere = _all_differ(found, inner)
    if everywhere or not own.any():
        return everywhere
    short = np.array(
        [
            not own[i] and any(_is_part(kind, v) for v in found.kinds[own])
            for i, kind in enumerate(found.kinds)
        ],
        dtype=np.bool_,
    )
    hit = inner & short[found.kind_of] & full
    if not hit.any():
        return None
    sizes = found.n_nodes[hit]
    modal = int(found.kinds[int(np.argmax(repeats))].sum())
    return (
        f"{int(hit.sum())} replays hold {int(sizes.min())} to {int(sizes.max())} nodes"
        f" where the mode is {modal}"
    )


def late_flushed(found: Replays) -> str | None:
    """Say which replays hold only the beginning or the end of their graph.

    Unlike records lost here and there, a late flush leaves the same few nodes of
    every step; a graph of its own that happens to be a part of another is rare, and
    is launched in turn with it.
    """
    if launches_per_step(found.n_nodes) > 1:
        return None
    repeats = np.bincount(found.kind_of, minlength=len(found.kinds))
    for i, part in enumerate(found.order):
        if repeats[i] < 2 or not len(part):
            continue
        for whole in found.order:
            if len(part) < 0.5 * len(whole) and len(whole) >= _LEAST_NODES:
                head, tail = whole[: len(part)], whole[-len(part) :]
                if np.array_equal(part, head) or np.array_equal(part, tail):
                    return (
                        f"{int(repeats[i])} of {len(found.launch)} graph replays hold"
                        f" only {len(part)} of the {len(whole)} nodes that others hold"
                    )
    return None


def cut_edges(found: Replays) -> dict[str, int]:
    """Return which of the first and the last replay are a part of the others.

    Returns:
        ``first`` and ``last`` to the index of the launch, where it was cut.
    """
    n = len(found.launch)
    if n < 3:
        return {}
    repeats = np.bincount(found.kind_of, minlength=len(found.kinds))
    whole = found.kinds[repeats >= _OWN_GRAPH]
    return {
        word: int(found.launch[i])
        for word, i in (("first", 0), ("last", n - 1))
        if repeats[found.kind_of[i]] < _OWN_GRAPH
        and found.n_nodes[i] > 0
        and any(_is_part(found.kinds[found.kind_of[i]], v) for v in whole)
    }


def _inner(full: Bool) -> Bool:
    at = np.flatnonzero(full)
    inner = np.zeros(len(full), dtype=np.bool_)
    if len(at):
        inner[at[0] + 1 : at[-1]] = True
    return inner


def _is_part(small: I64, whole: I64) -> bool:
    """True when some of a kernel's records are missing and none was added."""
    contained = bool((small <= whole).all())
    return contained and bool(((small > 0) & (small < whole)).any())


def _all_differ(found: Replays, inner: Bool) -> str | None:
    """Say that replays of one graph hardly repeat: losses everywhere."""
    big = np.flatnonzero(inner & (found.n_nodes >= _LEAST_NODES))
    total = found.n_nodes[big]
    partial: list[int] = []
    for i, n in zip(big.tolist(), total.tolist(), strict=True):
        peers = found.kinds[found.kind_of[big[abs(total - n) <= 0.1 * n]]]
        fullest = peers.max(axis=0)
        row = found.kinds[found.kind_of[i]]
        if n >= 0.9 * fullest.sum() and _is_part(row, fullest):
            partial.append(i)
    n_different = len(np.unique(found.kind_of[partial]))
    if n_different < 3 or 2 * n_different < len(partial):
        return None
    sizes = found.n_nodes[partial]
    return (
        f"{len(partial)} replays hold {int(sizes.min())} to {int(sizes.max())} nodes in"
        f" {n_different} different ways"
    )
