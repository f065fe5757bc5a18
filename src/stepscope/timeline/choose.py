"""Which steps of a device, or of several, to show."""

from collections.abc import Sequence

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


def same_steps(devices: Sequence[Device], n: int, offsets_ns: I64) -> list[I64]:
    """Return for each rank the steps that the first one's chosen steps are there.

    Args:
        devices: The ranks.
        n: How many steps in a row.
        offsets_ns: What each rank's clock is ahead, int64[ranks].

    Raises:
        RefusedError: A trace has no whole step, or none at that time.
    """
    first = chosen_steps(devices[0], n)
    middle = (devices[0].start[first] + devices[0].end[first]) // 2 - offsets_ns[0]
    found = [first]
    for device, offset in zip(devices[1:], offsets_ns[1:].tolist(), strict=True):
        chosen_steps(device, n)
        at = np.searchsorted(device.start, middle + offset, side="right") - 1
        at = np.unique(at[(at >= 0) & (middle + offset < device.end[at])])
        if not len(at):
            raise RefusedError(
                device.trace.path,
                "no whole step while the first rank's median step ran",
                "expected ranks of one capture",
                "Export each alone",
            )
        found.append(at)
    return found
