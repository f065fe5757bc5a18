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
        processes, p = np.unique(process, return_inverse=True)
        devices, d = np.unique(device, return_inverse=True)
        each, at, n = np.unique(
            p * len(devices) + d, return_inverse=True, return_counts=True
        )
        found = []
        for key, count in zip(each.tolist(), n.tolist(), strict=True):
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
