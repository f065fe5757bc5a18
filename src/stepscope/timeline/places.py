"""Where the operations of an nsys export ran: processes, devices, ranks."""

from dataclasses import dataclass, field

import numpy as np

from stepscope.parse.nsysranks import NsysRank, Pair, nsys_ranks
from stepscope.timeline.columns import I64, Ints
from stepscope.timeline.exported import Export


@dataclass(slots=True)
class Places:
    """Pairs of a process and a device, numbered as they come and counted."""

    numbers: dict[Pair, int] = field(default_factory=dict)
    counts: dict[Pair, int] = field(default_factory=dict)

    def of(self, process: I64, device: I64) -> Ints:
        """Return the number of each row's pair."""
        processes, p = _distinct(process)
        devices, d = _distinct(device)
        each, at = _distinct(p * len(devices) + d)
        found = []
        for key, count in zip(each.tolist(), np.bincount(at).tolist(), strict=True):
            i, j = divmod(key, len(devices))
            pair = int(processes[i]), int(devices[j])
            found.append(self.numbers.setdefault(pair, len(self.numbers)))
            self.counts[pair] = self.counts.get(pair, 0) + count
        return np.array(found, dtype=np.int32)[at]

    def ranks(self, export: Export) -> tuple[NsysRank, ...]:
        """Return the ranks of all pairs so far."""
        devices = export.dicts("TARGET_INFO_CUDA_DEVICE")
        return nsys_ranks(self.counts, devices, export.dicts("TARGET_INFO_GPU"))

    def rank_of(self, ranks: tuple[NsysRank, ...]) -> Ints:
        """Return for each number so far which rank it is, -1 for none."""
        found = np.full(len(self.numbers), -1, dtype=np.int32)
        for i, rank in enumerate(ranks):
            found[[self.numbers[pair] for pair in rank.pairs]] = i
        return found


def _distinct(values: I64) -> tuple[I64, I64]:
    """Return distinct values and which one each is; quick where all agree."""
    if len(values) and values.min() == values.max():
        return values[:1], np.zeros(len(values), dtype=np.int64)
    return np.unique(values, return_inverse=True)
