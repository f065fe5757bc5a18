"""Which of a device's steps to show."""

import numpy as np

from stepscope.errors import RefusedError
from stepscope.timeline.columns import I64
from stepscope.timeline.device import Device


def chosen_steps(device: Device, n: int = 1) -> I64:
    """Return ``n`` steps in a row around the one of median length.

    Args:
        device: One rank.
        n: How many; fewer come back where there are fewer.

    Returns:
        Indices into ``device.start``, ascending.

    Raises:
        RefusedError: The trace has no whole step.
    """
    lasted = device.end - device.start
    if not len(lasted):
        raise RefusedError(
            device.trace.path,
            "no whole step in it",
            "expected two steps one after the other",
            "Capture 20 to 60 steps",
        )
    middle = int(np.argsort(lasted, kind="stable")[len(lasted) // 2])
    n = min(n, len(lasted))
    first = min(max(middle - n // 2, 0), len(lasted) - n)
    return np.arange(first, first + n)
