"""Whether one step launches several graphs: a model and its draft, or its pieces."""

import numpy as np

from stepscope.timeline.columns import I64, Bool

_MOST_LAUNCHES = 256
_LEAST_STEPS = 3
#: Share of launches that must repeat, since a window cuts and a step may be odd.
_STEADY = 0.95
#: Graphs of one model at two batch sizes hold about as many nodes; those of a model
#: and its draft do not.
_APART = 1.5
#: Batch sizes do not come in turn this many at a time: these are pieces of one step,
#: unless each is large enough for one.
_PIECES = 5
#: Smaller graphs may be pieces of a step, such as what lies between two attentions.
WHOLE_NODES = 100
#: A draft runs at most about so many times before its model does.
MOST_DRAFTS = 8
#: Where pieces follow so many of the whole graphs, they are of one step with them.
_MOSTLY = 0.8


def launches_per_step(sizes: I64) -> int:
    """Return after how many launches the same graphs come again; 1 where they do not.

    Args:
        sizes: Nodes of each graph launch, in order of launch.
    """
    n = len(sizes)
    for period in range(1, min(_MOST_LAUNCHES, n // _LEAST_STEPS) + 1):
        if float((sizes[period:] == sizes[:-period]).mean()) >= _STEADY:
            return period
    return 1


def heads(sizes: I64, period: int) -> Bool | None:
    """Return which launches begin a step of ``period`` launches.

    The largest graph is taken as the first: the model, and what follows its draft. Of
    many pieces it is the largest that occurs once.

    Returns:
        None where the graphs are so alike that each may be a step of its own, or
        where no graph tells where a step begins.
    """
    pattern = sizes[-period - period // 2 :][:period]
    alike = pattern.max() < _APART * pattern.min()
    if alike and (period < _PIECES or pattern.min() >= WHOLE_NODES):
        return None
    kinds, n = np.unique(pattern, return_counts=True)
    if period >= _PIECES:
        kinds = kinds[n == 1]
    if not len(kinds):
        return None
    mine = sizes == kinds.max()
    first: Bool = mine & (np.concatenate([[0], sizes[:-1]]) != sizes)
    return first


def leaders(sizes: I64, modal: int) -> Bool | None:
    """Return which launches begin a step where others follow in no steady number.

    Returns:
        None where the graph that is launched most often, of ``modal`` nodes, does not
        follow far larger ones again and again, as a draft follows its model, or
        follows so many times that it is a step, and the larger one a prompt.
    """
    large = sizes >= _APART * modal
    followed = large[:-1] & ~large[1:]
    if followed.sum() < max(_LEAST_STEPS, 0.5 * large.sum()):
        return None
    first: Bool = large & ~np.concatenate([[False], large[:-1]])
    return first if (~large).sum() <= MOST_DRAFTS * first.sum() else None


def pieces_of_others(sizes: I64) -> tuple[Bool, Bool]:
    """Return which launches are pieces of steps between whole graphs, and their first.

    An engine that replays one graph a decode step runs mixed steps in pieces, one a
    layer: more in a row than a draft runs, and not after most of the whole graphs.
    """
    small = sizes < WHOLE_NODES
    edges = np.diff(np.concatenate([[0], small.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    long = ends - starts > MOST_DRAFTS
    pieces, first = np.zeros_like(small), np.zeros_like(small)
    n_whole = int((~small).sum())
    if n_whole < _LEAST_STEPS or long.sum() > _MOSTLY * n_whole:
        return pieces, first
    for lo, hi in zip(starts[long].tolist(), ends[long].tolist(), strict=True):
        pieces[lo:hi], first[lo] = True, True
    return pieces, first
