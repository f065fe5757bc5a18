"""Fewer points for a picture, with nothing that stood out left out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Bin:
    """Samples that fall on one place of the horizontal axis: time, s, and values."""

    at_s: float
    low: float
    mean: float
    high: float


def bins(points: Sequence[tuple[float, float]], n_bins: int) -> tuple[Bin, ...]:
    """Return at most ``n_bins`` bins with the least, mean and greatest value of each.

    Args:
        points: (time in seconds, value), in any order.
        n_bins: Most bins that the picture can tell apart.
    """
    clean = [(t, v) for t, v in points if math.isfinite(v)]
    if not clean:
        return ()
    times = np.array([t for t, _ in clean])
    values = np.array([v for _, v in clean])
    n = max(1, min(n_bins, len(np.unique(times))))
    start, stop = float(times.min()), float(times.max())
    width = (stop - start) / n or 1.0
    place = np.minimum(((times - start) / width).astype(int), n - 1)
    out = []
    for i in np.unique(place):
        here = values[place == i]
        out.append(
            Bin(
                at_s=float(times[place == i].mean()),
                low=float(here.min()),
                mean=float(here.mean()),
                high=float(here.max()),
            )
        )
    return tuple(out)
