"""When the requests of an open loop are due, and what that means now.

No clock and no I/O: a schedule is drawn whole from its seed, and pacing is a function
of the time that has passed and of how many were sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from stepscope.errors import RecipeError
from stepscope.recipe.records import Arrival
from stepscope.units import NS_PER_S

if TYPE_CHECKING:
    # A client process needs numpy for open loops alone, and it takes 13 MB.
    import numpy as np
    import numpy.typing as npt

    Times = npt.NDArray[np.int64]


class Arrivals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the requests of an open loop come.

    Attributes:
        kind: ``constant``: a gap of 1/rate each. ``gamma``: gaps drawn from a gamma
            distribution of shape ``burstiness``. ``linear`` and ``exponential``: the
            same at a rate that moves from ``start_rps`` to ``end_rps`` over the
            requests. ``recorded``: when the dataset says.
        rate: Mean arrivals a second, for ``constant`` and ``gamma``.
        burstiness: Shape; 1 is a Poisson process, below it is burstier, and infinity
            is a gap of 1/rate each.
        start_rps: First rate of one that moves.
        end_rps: Its last.
        scale: Recorded times are multiplied by it.
    """

    kind: Arrival
    rate: float | None = None
    burstiness: float = 1.0
    start_rps: float | None = None
    end_rps: float | None = None
    scale: float = 1.0

    def check(self) -> None:
        """Raise for what can not be scheduled.

        Raises:
            RecipeError: A rate is missing or not positive, or a burstiness is not.
        """
        if self.kind in ("constant", "gamma") and not _positive(self.rate):
            raise RecipeError("request rate", f"{self.rate}", "a number above 0")
        if self.kind in ("linear", "exponential"):
            self._check_ramp()
        if not self.burstiness > 0:
            raise RecipeError("burstiness", f"{self.burstiness}", "a number above 0")
        if not _positive(self.scale):
            raise RecipeError("scale", f"{self.scale}", "a number above 0")

    def _check_ramp(self) -> None:
        start, end = self.start_rps, self.end_rps
        if start is None or end is None or not _positive(end) or start < 0:
            raise RecipeError(
                "ramp-up", f"{start} to {end} requests/s", "a first and a last rate"
            )
        if start > end:
            raise RecipeError(
                "ramp-up", f"{start:g} to {end:g} requests/s", "a rate that rises"
            )
        if self.kind == "exponential" and not start:
            raise RecipeError(
                "ramp-up", "an exponential one from 0", "a first rate above 0"
            )

    def rates(self, n: int) -> "npt.NDArray[np.float64]":
        """Return the rate at each request, float64[n]."""
        import numpy as np

        if self.start_rps is None or self.end_rps is None:
            return np.full(n, self.rate or 1.0)
        progress = np.arange(n) / max(n - 1, 1)
        if self.kind == "exponential":
            rising = self.start_rps * (self.end_rps / self.start_rps) ** progress
        else:
            rising = self.start_rps + (self.end_rps - self.start_rps) * progress
        # A linear ramp from nothing would wait for its first request for ever.
        least = float(self.end_rps) / max(n, 2)
        return np.maximum(rising, least)


def schedule(
    arrivals: Arrivals, n: int, seed: int, recorded: Sequence[int] | None = None
) -> "Times":
    """Return when each of ``n`` requests is due after the start, int64[n], ns.

    The whole cell's schedule, whatever the number of processes: each takes those of
    its own requests, so that together they are the process that was asked for.

    Source: gaps of shape k and mean 1/rate, as ``vllm bench serve`` draws them; at a
        fixed rate they are scaled so that the last request is due at n/rate exactly.
        Poisson gaps scaled so are a Poisson process, given when its last arrival is.

    Args:
        arrivals: How they come.
        n: Requests, or conversations.
        seed: Of the draws.
        recorded: When a trace had them, ns, ascending; for ``recorded`` alone.
    """
    import numpy as np

    if arrivals.kind == "recorded":
        assert recorded is not None
        since = np.array(recorded, np.int64) - recorded[0]
        times: Times = np.rint(since * arrivals.scale).astype(np.int64)
        return times
    rates = arrivals.rates(n)
    if arrivals.kind == "constant" or math.isinf(arrivals.burstiness):
        gaps = 1.0 / rates
    else:
        shape = arrivals.burstiness
        gaps = np.random.default_rng([seed, n]).gamma(shape, 1.0 / (rates * shape))
    due = np.cumsum(gaps)
    if arrivals.rate is not None and due[-1] > 0:
        due *= n / arrivals.rate / due[-1]
    due_ns: Times = np.rint(due * NS_PER_S).astype(np.int64)
    return due_ns


@dataclass(frozen=True, slots=True)
class Pace:
    """What is to be done now.

    Attributes:
        n_due: Requests that are due and not sent.
        wait_ns: Time until the next one; None: there is none.
    """

    n_due: int
    wait_ns: int | None


def pace(due: "Times", elapsed_ns: int, n_sent: int) -> Pace:
    """Return how many requests to send now and how long to wait then.

    Args:
        due: When each is due after the start, ascending, nanoseconds.
        elapsed_ns: Since the start.
        n_sent: How many were sent.
    """
    n_until_now = int(due.searchsorted(elapsed_ns, "right"))
    n_next = max(n_until_now, n_sent)
    return Pace(
        n_due=n_next - n_sent,
        wait_ns=int(due[n_next]) - elapsed_ns if n_next < len(due) else None,
    )


def _positive(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf
