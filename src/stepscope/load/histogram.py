"""Delays by the million in 3 kB: logarithmic bins, merged over workers by adding."""

from array import array

import numpy as np

#: 1 us to 1,000 s in steps of 3.5 %; below and above in the end bins.
_EDGES = np.geomspace(1e3, 1e12, 602)
_FLUSH = 1 << 15


class DelayHistogram:
    """Counts of delays in nanoseconds; percentiles are good to 3.5 %."""

    def __init__(self) -> None:
        self._held = array("q")
        self._counts = np.zeros(len(_EDGES) + 1, dtype=np.int64)
        self.total_ns = 0
        self.max_ns = 0

    def add(self, delay_ns: int) -> None:
        """Count one delay."""
        self._held.append(delay_ns)
        if len(self._held) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Move what is held into the bins."""
        if not self._held:
            return
        values = np.frombuffer(self._held, dtype=np.int64)
        at = np.searchsorted(_EDGES, values)
        self._counts += np.bincount(at, minlength=len(self._counts))
        self.total_ns += int(values.sum())
        self.max_ns = max(self.max_ns, int(values.max()))
        self._held = array("q")

    def counts(self) -> list[int]:
        """Return the bins, for another process to add."""
        self.flush()
        return [int(n) for n in self._counts]


def percentile_ns(
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]", q: float
) -> float:
    """Return the upper edge of the bin that holds the q-th percentile, ns."""
    total = int(counts.sum())
    at = int(np.searchsorted(np.cumsum(counts), q / 100 * total))
    return float(_EDGES[min(at, len(_EDGES) - 1)])
