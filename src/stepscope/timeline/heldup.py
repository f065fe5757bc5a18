"""Decode steps of a rank that last while another rank runs a prompt."""

import numpy as np

from stepscope.findings import Finding
from stepscope.timeline.columns import I64, Bool
from stepscope.timeline.device import Device
from stepscope.timeline.intervals import covered, union
from stepscope.timeline.matches import Matching
from stepscope.timeline.records import Rank
from stepscope.units import ms

_PROMPTS = ("mixed", "prefill")
#: Fewer of the steps change no mean by much.
_FEW = 0.05


def held_up_by_prompts(
    devices: list[Device], ranks: tuple[Rank, ...], matching: Matching | None
) -> list[Finding]:
    """Say whose decode steps wait for prompts of others, and what the rest last.

    Ranks that share experts step together, so that a prompt on one lengthens the steps
    of all, and each rank's trace tells only of its own.
    """
    if matching is None or matching.refused:
        return []
    found = []
    for r, (device, rank) in enumerate(zip(devices, ranks, strict=True)):
        hit = _beside_prompts(devices, matching.offsets_ns, r)
        if device.kind != "decode" or hit.sum() <= _FEW * len(hit):
            continue
        lasted = (device.end - device.start)[~hit]
        rest = (
            f"without these the mean is {ms(float(lasted.mean())):.3g} ms"
            if len(lasted)
            else "no others are here"
        )
        found.append(
            Finding(
                code="held-up-by-prompts",
                severity="warning",
                message=f"rank {rank.rank}: {int(hit.sum())} of {len(hit)} decode steps"
                f" last while another rank runs a prompt, and may wait for it: {rest}",
                hint="Capture while no request begins.",
            )
        )
    return found


def _beside_prompts(devices: list[Device], offsets_ns: tuple[int, ...], r: int) -> Bool:
    """Return which periods of a rank lie mostly in others' steps that hold prompts."""
    starts, ends = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for other, device in enumerate(devices):
        steps, by = device.steps, offsets_ns[r] - offsets_ns[other]
        prompt = np.array([kind in _PROMPTS for kind in steps.kinds], dtype=np.bool_)
        prompt &= steps.period_ends > 0
        if other != r:
            starts.append(steps.first_ns[prompt] + by)
            ends.append(steps.period_ends[prompt] + by)
    spans = union(np.concatenate(starts), np.concatenate(ends))
    mine = devices[r]
    inside: I64 = covered(spans, mine.end) - covered(spans, mine.start)
    hit: Bool = 2 * inside > mine.end - mine.start
    return hit
