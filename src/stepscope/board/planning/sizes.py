"""Which concurrencies a step model lacks."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stepscope.analysis.records import Analysis

#: A gap of less than this factor between two sizes needs nothing in it.
_LEAST_GAP = 1.5


def next_sizes(analysis: Analysis, sizes: Sequence[int], n: int = 2) -> tuple[int, ...]:
    """Return up to ``n`` concurrencies that were not measured.

    Inside the interval of a knee where there is one; otherwise in the middle of the
    widest gaps on a log scale.
    """
    if not sizes:
        return ()
    spans = [m.knee_ci95 for m in analysis.step_model if m.knee_ci95 is not None]
    found: list[int] = []
    for low, high in spans:
        found += [round(v) for v in np.geomspace(low, high, n + 2)[1:-1]]
    gaps = sorted(((b / a, a, b) for a, b in pairwise(sizes)), reverse=True)
    found += [round(float(np.sqrt(a * b))) for gap, a, b in gaps if gap >= _LEAST_GAP]
    if len(sizes) < 3:
        found += [2 * sizes[-1], 4 * sizes[-1]]
    fresh = [c for c in dict.fromkeys(found) if c >= 1 and c not in sizes]
    return tuple(sorted(fresh[:n]))
