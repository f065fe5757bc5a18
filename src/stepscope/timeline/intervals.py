"""Arithmetic on half-open intervals of integer nanoseconds. Exact; nothing rounds."""

import numpy as np

from stepscope.timeline.columns import I64, Bool

Intervals = tuple[I64, I64]


def union(start: I64, end: I64) -> Intervals:
    """Merge overlapping or touching intervals.

    Args:
        start: int64[n], any order.
        end: int64[n], each at least its start.

    Returns:
        Starts and ends of the merged intervals, ascending and disjoint. Empty
        intervals vanish.
    """
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), dtype=np.bool_)
    first[1:] = start[1:] > reach[:-1]
    at = np.flatnonzero(first)
    return start[at], np.concatenate([reach[at[1:] - 1], reach[-1:]])


def length(intervals: Intervals) -> int:
    """Return the total length of disjoint intervals, nanoseconds."""
    return int((intervals[1] - intervals[0]).sum())


def clip(intervals: Intervals, lo: int, hi: int) -> Intervals:
    """Cut disjoint ascending intervals to [lo, hi)."""
    start, end = intervals
    a = int(np.searchsorted(end, lo, side="right"))
    b = int(np.searchsorted(start, hi, side="left"))
    return np.maximum(start[a:b], lo), np.minimum(end[a:b], hi)


def covered(intervals: Intervals, at: I64) -> I64:
    """Return how much of disjoint ascending intervals lies before each instant."""
    start, end = intervals
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(end - start)])
    k = np.searchsorted(start, at, side="right")
    beyond = np.maximum(np.append(end, 0)[k - 1] - at, 0)
    within: I64 = before[k] - np.where(k > 0, beyond, 0)
    return within


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Return the part of ``a`` that no interval of ``b`` covers; both disjoint."""
    if not len(a[0]) or not len(b[0]):
        return a
    lo, hi = int(a[0][0]), int(a[1][-1])
    gaps = complement(b, lo, hi)
    return intersect(a, gaps)


def complement(a: Intervals, lo: int, hi: int) -> Intervals:
    """Return [lo, hi) without ``a``."""
    start, end = clip(a, lo, hi)
    left = np.concatenate([np.array([lo], dtype=np.int64), end])
    right = np.concatenate([start, np.array([hi], dtype=np.int64)])
    keep = right > left
    return left[keep], right[keep]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return what disjoint ascending ``a`` and ``b`` have in common."""
    if not len(a[0]) or not len(b[0]):
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    first = np.searchsorted(b[1], a[0], side="right")
    last = np.searchsorted(b[0], a[1], side="left")
    count = np.maximum(last - first, 0)
    index_a = np.repeat(np.arange(len(a[0])), count)
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    index_b = np.repeat(first, count) + offset
    start = np.maximum(a[0][index_a], b[0][index_b])
    end = np.minimum(a[1][index_a], b[1][index_b])
    keep = end > start
    return start[keep], end[keep]


def within(start: I64, end: I64, at: I64) -> tuple[I64, Bool]:
    """Return which span each instant lies in, and whether it does.

    Args:
        start: int64[n], ascending; at least one.
        end: int64[n].
        at: Instants, int64[m].
    """
    k = np.searchsorted(start, at, side="right") - 1
    of = np.maximum(k, 0)
    inside: Bool = (k >= 0) & (at < end[of])
    return of, inside
