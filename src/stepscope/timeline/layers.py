"""Layers inside a step: the repeating part of its kernel sequence."""

import numpy as np

from stepscope.timeline.columns import I64, KERNEL, Trace
from stepscope.timeline.steps import Steps

_LEAST_LAYERS = 4


def find_layers(trace: Trace, steps: Steps) -> tuple[int, int] | None:
    """Find the kernel block that repeats most often inside one step.

    Returns:
        (number of layers, kernels a layer), or None where nothing repeats at least
        four times or the repeats cover less than half of the step.

    Assumes: a model's layers launch the same kernels in the same order. Layers of
        two kinds that alternate are found as one block of both.
    """
    if not len(steps):
        return None
    at = int(np.argmax(steps.period_ends > 0))
    end = int(steps.period_ends[at]) if steps.period_ends[at] > 0 else steps.end_ns
    inside = (trace.ops.start_ns >= steps.first_ns[at]) & (trace.ops.start_ns < end)
    names = trace.ops.name[inside & (trace.ops.kind == KERNEL)]
    n = len(names)
    for width in range(2, n // _LEAST_LAYERS + 1):
        repeats = _longest_run(names, width)
        if repeats >= _LEAST_LAYERS and repeats * width >= 0.5 * n:
            return repeats, width
    return None


def _longest_run(names: I64, width: int) -> int:
    """Return how often a block of ``width`` names stands in a row, at most."""
    same = names[width:] == names[:-width]
    breaks = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    longest = int(np.diff(breaks).max()) - 1
    return longest // width + 1
