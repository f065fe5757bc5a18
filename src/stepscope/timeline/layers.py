"""Layers inside a step: the repeating part of its kernel sequence."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, Bool, Ints, Trace
from stepscope.timeline.names import short_name
from stepscope.timeline.records import Layer, LayerKernel
from stepscope.units import ms

_LEAST_LAYERS = 4
#: Kernels of two streams that overlap for less, share of all, are the ends of a branch.
_FEW_OVERLAPS = 0.01
#: Branches hold at most this share of the kernels; the rest is the layers' sequence.
_MOST_BESIDE = 1 / 3

_Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]


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
        return _in_order(trace, index, self.beside)

    def stands_in(self, names: I64) -> bool:
        """Whether a step of these kernels has the run; what follows it may differ."""
        end = self.at + self.n_blocks * self.width
        return np.array_equal(names[:end], self.names[:end])


def _in_order(trace: Trace, index: I64, beside: tuple[int, ...]) -> Bool:
    return ~np.isin(trace.ops.stream[index], beside)


def find_layers(trace: Trace, lo: int, hi: int) -> LayerRun | None:
    """Find the kernel block that repeats most often inside the step [lo, hi).

    Returns:
        None where nothing repeats at least four times or the repeats cover less than
        half of the step.

    Assumes: a model's layers launch the same kernels in the same order. Layers of
        two kinds that alternate are found as one block of both. A first or last
        layer that differs by a fused kernel is not part of the run.
    """
    index = _kernels(trace, lo, hi)
    beside = _branches(
        trace.ops.stream[index], trace.ops.start_ns[index], trace.ops.end_ns[index]
    )
    names = trace.ops.name[index[_in_order(trace, index, beside)]]
    n = len(names)
    for width in _widths(names):
        first, length = _longest_run(names, width)
        repeats = length // width + 1
        if repeats >= _LEAST_LAYERS and repeats * width >= 0.5 * n:
            n_layers = _layers(names, names[first : first + width])
            return LayerRun(
                max(n_layers, repeats), repeats, width, first, names, beside
            )
    return None


def _widths(names: I64) -> list[int]:
    """Return how wide a block may be whose repeats cover half of the names.

    They cover one of the two in the middle, which then comes again that much before
    or after.
    """
    n = len(names)
    apart = [np.abs(np.flatnonzero(names == names[m]) - m)
             for m in {n // 2, (n - 1) // 2} if n]  # fmt: skip
    found = np.unique(np.concatenate(apart)) if apart else np.empty(0, dtype=np.int64)
    wide: list[int] = found[(found >= 2) & (found <= n // _LEAST_LAYERS)].tolist()
    return wide


def _branches(stream: Ints, start: I64, end: I64) -> tuple[int, ...]:
    """Return streams without which next to no kernels run side by side.

    First those whose kernels each meet most others: of a branch nearly every kernel
    meets one of the main sequence, of which only a few meet a branch. None where it
    takes many kernels: such a step has no one sequence.
    """
    each, of, size = np.unique(stream, return_inverse=True, return_counts=True)
    met = _meetings(of, len(each), start, end)
    left = np.ones(len(each), dtype=np.bool_)
    while met.sum() > 2 * _FEW_OVERLAPS * size[left].sum():
        worst = int(np.argmax(met.sum(axis=1) / size))
        left[worst] = False
        met[worst], met[:, worst] = 0, 0
        if size[~left].sum() > _MOST_BESIDE * len(stream):
            return ()
    return tuple(each[~left].tolist())


def _meetings(of: I64, n_streams: int, start: I64, end: I64) -> _Table:
    """Count how often kernels of each two streams overlap, int64[streams, streams].

    Args:
        of: Number of each kernel's stream.
        n_streams: How many streams there are.
        start: Ascending.
        end: Of each kernel.
    """
    met = np.zeros((n_streams, n_streams), dtype=np.int64)
    after = np.arange(1, len(start) + 1)
    until = np.maximum(np.searchsorted(start, end), after)
    for other in range(n_streams):
        at = np.flatnonzero(of == other)
        n = np.searchsorted(at, until) - np.searchsorted(at, after)
        np.add.at(met[:, other], of, n)
    met += met.T
    np.fill_diagonal(met, 0)
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
    reach = np.maximum.accumulate(trace.ops.end_ns)
    idle = np.maximum(trace.ops.start_ns[1:] - reach[:-1], 0)
    others: dict[int, list[int]] = defaultdict(list)
    for lo, hi in zip(starts.tolist(), ends.tolist(), strict=True):
        index = _kernels(trace, lo, hi)
        mine = run.in_order(trace, index)
        if not run.stands_in(trace.ops.name[index[mine]]):
            continue
        start, end = trace.ops.start_ns[index], trace.ops.end_ns[index]
        for name, ns in zip(
            trace.ops.name[index[~mine]].tolist(), (end - start)[~mine], strict=True
        ):
            others[name].append(int(ns))
        # Idle time before the first kernel is the step's, not a layer's.
        gap = np.concatenate([[0], idle[index[1:] - 1]])[mine]
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
        + _beside(trace, others, len(length)),
    )


def _beside(
    trace: Trace, others: dict[int, list[int]], n_seen: int
) -> tuple[LayerKernel, ...]:
    """Return the kernels of branches, each as often as a layer has it."""
    return tuple(
        LayerKernel(
            name=short_name(trace.names[i]),
            us_mean=float(np.mean(ns)) / 1e3,
            gap_before_us_mean=None,
            beside=True,
        )
        for i, ns in others.items()
        for _ in range(round(len(ns) / max(n_seen, 1)))
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
