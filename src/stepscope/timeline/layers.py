"""Layers inside a step: the repeating part of its kernel sequence."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, Bool, Ints, Trace
from stepscope.timeline.names import short_name
from stepscope.timeline.records import Layer, LayerKernel
from stepscope.timeline.steps import Steps
from stepscope.units import ms

_LEAST_LAYERS = 4
#: Kernels of two streams that overlap for less, share of all, are the ends of a branch.
_FEW_OVERLAPS = 0.01
_MOST_BRANCHES = 4


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Where a block of kernels stands ``n_blocks`` times in a row inside a step.

    ``at`` is the index of the first kernel of the run among the kernels of the step,
    those on streams ``beside`` left out: branches that run while others do, so that
    their kernels come now before and now after a neighbour.
    ``n_layers`` counts the model's layers: the first or the last often lacks a kernel
    that was fused with its neighbour's, and so is no whole block.
    """

    n_layers: int
    n_blocks: int
    width: int
    at: int
    names: I64
    beside: tuple[int, ...] = ()

    def in_order(self, trace: Trace, index: I64) -> Bool:
        """Return which of a step's kernels are on none of the branches."""
        return ~np.isin(trace.ops.stream[index], self.beside)

    def stands_in(self, names: I64) -> bool:
        """Whether a step of these kernels has the run; what follows it may differ."""
        end = self.at + self.n_blocks * self.width
        return np.array_equal(names[:end], self.names[:end])


def find_layers(trace: Trace, steps: Steps) -> LayerRun | None:
    """Find the kernel block that repeats most often inside one step.

    Returns:
        None where nothing repeats at least four times or the repeats cover less than
        half of the step.

    Assumes: a model's layers launch the same kernels in the same order. Layers of
        two kinds that alternate are found as one block of both. A first or last
        layer that differs by a fused kernel is not part of the run.
    """
    if not len(steps):
        return None
    at = int(np.argmax(steps.period_ends > 0))
    end = int(steps.period_ends[at]) if steps.period_ends[at] > 0 else steps.end_ns
    index = _kernels(trace, int(steps.first_ns[at]), end)
    beside = _branches(
        trace.ops.stream[index], trace.ops.start_ns[index], trace.ops.end_ns[index]
    )
    names = trace.ops.name[index[~np.isin(trace.ops.stream[index], beside)]]
    n = len(names)
    for width in range(2, n // _LEAST_LAYERS + 1):
        first, length = _longest_run(names, width)
        repeats = length // width + 1
        if repeats >= _LEAST_LAYERS and repeats * width >= 0.5 * n:
            n_layers = _layers(names, names[first : first + width])
            return LayerRun(
                max(n_layers, repeats), repeats, width, first, names, beside
            )
    return None


def _branches(stream: Ints, start: I64, end: I64) -> tuple[int, ...]:
    """Return streams without which next to no kernels run side by side, worst first.

    None of them where that takes more than a few: such a step has no one sequence.
    """
    found: list[int] = []
    while len(found) <= _MOST_BRANCHES:
        kept = np.flatnonzero(~np.isin(stream, found))
        each = _meetings(stream[kept], start[kept], end[kept])
        if sum(each.values()) <= 2 * _FEW_OVERLAPS * len(kept):
            return tuple(found)
        # Of two that meet as often, the one with fewer kernels is the branch.
        found.append(min(each, key=lambda s: (-each[s], int((stream == s).sum()))))
    return ()


def _meetings(stream: Ints, start: I64, end: I64) -> Counter[int]:
    """Count for each stream how often its kernels overlap with another stream's."""
    met: Counter[int] = Counter()
    after = np.arange(1, len(start) + 1)
    until = np.maximum(np.searchsorted(start, end), after)
    for other in np.unique(stream).tolist():
        at = np.flatnonzero(stream == other)
        n = np.searchsorted(at, until) - np.searchsorted(at, after)
        n[at] = 0
        met[other] += int(n.sum())
        for mine in np.unique(stream[n > 0]).tolist():
            met[mine] += int(n[stream == mine].sum())
    return met


def layer_record(
    trace: Trace, run: LayerRun, starts: I64, ends: I64, *, gaps_known: bool
) -> Layer:
    """Return the mean layer over all given periods that run the same kernels.

    Args:
        trace: One device.
        run: Where its layers are.
        starts: int64[n] period starts.
        ends: int64[n] period ends.
        gaps_known: False where the trace's gaps can not be trusted.
    """
    lasted, before, spans = [], [], []
    others: dict[int, list[int]] = defaultdict(list)
    for lo, hi in zip(starts.tolist(), ends.tolist(), strict=True):
        index = _kernels(trace, lo, hi)
        mine = run.in_order(trace, index)
        if not run.stands_in(trace.ops.name[index[mine]]):
            continue
        start, end = trace.ops.start_ns[index], trace.ops.end_ns[index]
        reach = np.maximum.accumulate(end)
        gap = np.maximum(start - np.concatenate([start[:1], reach[:-1]]), 0)[mine]
        for name, ns in zip(
            trace.ops.name[index[~mine]].tolist(), (end - start)[~mine], strict=True
        ):
            others[name].append(int(ns))
        start, end = start[mine], end[mine]
        block = slice(run.at, run.at + run.n_blocks * run.width)
        lasted.append((end - start)[block].reshape(-1, run.width))
        before.append(gap[block].reshape(-1, run.width))
        heads = start[run.at : run.at + run.n_blocks * run.width : run.width]
        spans.append(np.diff(heads))
    names = [short_name(trace.names[i]) for i in run.names[run.at :][: run.width]]
    length = np.concatenate(lasted) if lasted else np.zeros((0, run.width))
    gaps = np.concatenate(before) if before else np.zeros((0, run.width))
    known = len(length) > 0
    often = {n: ns for n, ns in others.items() if len(ns) >= run.n_blocks * len(lasted)}
    return Layer(
        n_layers=run.n_layers,
        kernels_per_layer=run.width,
        n_seen=len(length),
        ms_per_layer=ms(float(np.concatenate(spans).mean())) if known else None,
        gap_us_per_layer=float(gaps.sum(axis=1).mean()) / 1e3
        if known and gaps_known
        else None,
        kernels=tuple(
            LayerKernel(
                name=name,
                us_mean=float(length[:, i].mean()) / 1e3 if known else None,
                gap_before_us_mean=float(gaps[:, i].mean()) / 1e3
                if known and gaps_known
                else None,
            )
            for i, name in enumerate(names)
        )
        + tuple(
            LayerKernel(
                name=short_name(trace.names[i]),
                us_mean=float(np.mean(ns)) / 1e3,
                gap_before_us_mean=None,
                beside=True,
            )
            for i, ns in often.items()
        ),
    )


def _kernels(trace: Trace, lo: int, hi: int) -> I64:
    a, b = np.searchsorted(trace.ops.start_ns, [lo, hi])
    index: I64 = a + np.flatnonzero(trace.ops.kind[a:b] == KERNEL)
    return index


def _layers(names: I64, block: I64) -> int:
    """Return how often most kernels occur that a block holds once."""
    once, count = np.unique(block, return_counts=True)
    totals = [int((names == name).sum()) for name in once[count == 1].tolist()]
    return int(np.bincount(totals).argmax()) if totals else 0


def _longest_run(names: I64, width: int) -> tuple[int, int]:
    """Return where names equal those ``width`` later for longest, and how long."""
    same = names[width:] == names[:-width]
    breaks = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    apart = np.diff(breaks)
    longest = int(np.argmax(apart))
    return int(breaks[longest]), int(apart[longest]) - 1
