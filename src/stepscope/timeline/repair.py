"""What a trace's records get wrong and can be put right without a guess."""

from dataclasses import replace

import numpy as np

from stepscope.timeline.columns import I64, Bool, Calls, Ops, Trace

#: A duration this many times its kernel's median, over the next start, is an error.
_FAR_ABOVE = 10
#: Fewer records of a kernel have no median to hold a duration against.
_LEAST_SEEN = 5


def repaired(trace: Trace) -> Trace:
    """Drop records that stand twice, and cut durations that overflow.

    Two records of one kernel on one stream with the same start, end and correlation
    are one record: a stream can not run an operation twice at once. A duration that
    reaches over the next operation of its stream and lies far above its kernel's
    median is cut at that operation's start.

    Returns:
        The trace, with the number of records dropped and cut.
    """
    ops, n_twice = _once(trace.ops)
    calls, _ = _once_called(trace.calls)
    ops, n_cut = _cut_long(ops)
    return replace(trace, ops=ops, calls=calls, n_duplicates=n_twice, n_clipped=n_cut)


def _first_of_equal(*columns: I64 | Bool) -> Bool:
    """Return which rows differ from every row before them."""
    order = np.lexsort(columns)
    same = np.ones(len(order) - 1, dtype=np.bool_)
    for column in columns:
        same &= column[order[1:]] == column[order[:-1]]
    first = np.ones(len(order), dtype=np.bool_)
    first[order[1:]] = ~same
    return first


def _once(ops: Ops) -> tuple[Ops, int]:
    if len(ops) < 2:
        return ops, 0
    first = _first_of_equal(
        ops.name, ops.kind, ops.correlation, ops.stream, ops.end_ns, ops.start_ns
    )
    # Operations of no length (memory marks) may well repeat.
    first |= ops.end_ns == ops.start_ns
    n_twice = int((~first).sum())
    return (ops.take(first) if n_twice else ops), n_twice


def _once_called(calls: Calls) -> tuple[Calls, int]:
    if len(calls) < 2:
        return calls, 0
    first = _first_of_equal(
        calls.name,
        calls.correlation,
        calls.thread,
        calls.process,
        calls.end_ns,
        calls.start_ns,
    )
    n_twice = int((~first).sum())
    return (calls.take(first) if n_twice else calls), n_twice


def _cut_long(ops: Ops) -> tuple[Ops, int]:
    end = ops.end_ns
    n_cut = 0
    for stream in np.unique(ops.stream).tolist():
        mine = np.flatnonzero(ops.stream == stream)
        over = np.flatnonzero(end[mine[:-1]] > ops.start_ns[mine[1:]])
        for i, following in zip(mine[over], mine[over + 1], strict=True):
            if _overflows(ops, int(i), int(following)):
                end = end.copy() if n_cut == 0 else end
                end[i] = max(int(ops.start_ns[following]), int(ops.start_ns[i]))
                n_cut += 1
    return (replace(ops, end_ns=end) if n_cut else ops), n_cut


def _overflows(ops: Ops, i: int, following: int) -> bool:
    """True when most of a duration lies over the next operation, and is far too long.

    Programmatic launches overlap by a little at the end of a kernel.
    """
    lasted = int(ops.end_ns[i] - ops.start_ns[i])
    over = int(ops.end_ns[i] - ops.start_ns[following])
    same = ops.name == ops.name[i]
    if 2 * over < lasted or int(same.sum()) < _LEAST_SEEN:
        return False
    usual = float(np.median((ops.end_ns - ops.start_ns)[same]))
    return lasted > _FAR_ABOVE * max(usual, 1.0)
