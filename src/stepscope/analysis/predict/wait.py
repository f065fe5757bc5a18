"""The wait for the first token between and beyond measured sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.fits import Floats
from stepscope.analysis.records import CellResult

#: A wait repeats no better than this: it hangs on when requests arrive together.
_LEAST_SD = 0.05
#: What a doubling outside the measured sizes adds, at least.
_PER_DOUBLING = 0.25


@dataclass(frozen=True, slots=True)
class Waits:
    """Mean TTFT over concurrency, straight between points on log scales."""

    sizes: Floats
    ttft_ms: Floats
    sd: float

    def at(self, concurrency: float) -> tuple[float, float]:
        """Return the mean TTFT, milliseconds, and the SD of its log.

        Beyond the ends it goes on as between the last two sizes.
        """
        x, y = np.log(self.sizes), np.log(self.ttft_ms)
        at = float(np.log(concurrency))
        i = int(np.clip(np.searchsorted(x, at) - 1, 0, x.size - 2))
        slope = (y[i + 1] - y[i]) / (x[i + 1] - x[i])
        far = max(x[0] - at, at - x[-1], 0.0) / np.log(2)
        value = float(np.exp(y[i] + slope * (at - x[i])))
        return value, float(np.hypot(self.sd, far * max(self.sd, _PER_DOUBLING)))


def waits(cells: Sequence[CellResult], odd: frozenset[str]) -> Waits | None:
    """Return mean TTFT over concurrency; None below two sizes.

    Source: the SD is what each inner size misses the line of its neighbours by.

    Args:
        cells: The cells behind a step model.
        odd: Names of cells whose TTFT a finding calls anomalous; left out where
            two sizes remain without them.
    """
    known = [c for c in cells if c.ttft_ms.mean and c.concurrency]
    calm = [c for c in known if c.name not in odd]
    if len({c.concurrency for c in calm}) >= 2:
        known = calm
    sizes = sorted({c.concurrency for c in known if c.concurrency})
    if len(sizes) < 2:
        return None
    means = [
        float(
            np.exp(
                np.mean(
                    [
                        np.log(c.ttft_ms.mean)
                        for c in known
                        if c.concurrency == n and c.ttft_ms.mean
                    ]
                )
            )
        )
        for n in sizes
    ]
    x, y = np.log(np.array(sizes, np.float64)), np.log(np.array(means))
    misses = [
        y[i] - np.interp(x[i], [x[i - 1], x[i + 1]], [y[i - 1], y[i + 1]])
        for i in range(1, x.size - 1)
    ]
    sd = float(np.sqrt(np.mean(np.square(misses)))) if misses else _PER_DOUBLING
    return Waits(
        sizes=np.array(sizes, np.float64),
        ttft_ms=np.array(means, np.float64),
        sd=max(sd, _LEAST_SD),
    )
