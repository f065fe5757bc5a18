"""Which concurrencies a step model lacks."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stepscope.analysis.across.next_points import next_points
from stepscope.analysis.records import Analysis

#: A gap of less than this factor between two sizes needs nothing in it.
_LEAST_GAP = 1.5
_HOW_MANY = 2
#: Below so many sizes there is no model that could say where it is weak.
_LEAST_SIZES = 3


def next_sizes(
    analysis: Analysis,
    sizes: Sequence[int],
    *,
    dp: int = 1,
    most: float = math.inf,
) -> tuple[int, ...]:
    """Return up to two concurrencies that would teach the step models most.

    Where a model was fitted, those that narrow its weakest number; otherwise the
    middle of the widest gaps on a log scale, and where fewer than three were measured
    beyond the largest size, else below the smallest. None above ``most``, where
    requests would queue.
    """
    if not sizes:
        return ()
    taught = next_points(analysis.step_model, dp)
    found = [p.concurrency for p in taught if p.concurrency <= most]
    if not found:
        gaps = sorted(((b / a, a, b) for a, b in pairwise(sizes)), reverse=True)
        middles = [(gap, float(np.sqrt(a * b))) for gap, a, b in gaps]
        found = [round(middle) for gap, middle in middles if gap >= _LEAST_GAP]
        if len(sizes) < _LEAST_SIZES:
            found += [2 * sizes[-1], 4 * sizes[-1], sizes[0] // 2, sizes[0] // 4]
        found = [c for c in found if c not in sizes and 1 <= c <= most]
    return tuple(sorted(dict.fromkeys(found[:_HOW_MANY])))
