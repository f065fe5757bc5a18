"""A cell's requests as columns of numbers: 100 bytes a request, whatever its length.

From one walk over the requests; none of them is kept.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepscope.run.requests import Request

Ints = npt.NDArray[np.int64]

#: Stands in a column for what is unknown; neither instants nor counts are below 0.
UNKNOWN = -1
_NAMES = (
    "index",
    "replica",
    "sent_at_ns",
    "intended_at_ns",
    "ended_at_ns",
    "first_content_at_ns",
    "first_answer_at_ns",
    "last_content_at_ns",
    "prompt_tokens",
    "output_tokens",
    "requested_output_tokens",
    "n_chunks",
)


@dataclass(slots=True)
class Columns:
    """Columns of equal length, in the order of walking; successes and failures.

    Attributes:
        ok: Whether a request succeeded.
        failures: How often each kind of failure came.
    """

    ok: npt.NDArray[np.bool_]
    failures: Counter[str]
    _by_name: dict[str, Ints] = field(repr=False)

    def __len__(self) -> int:
        """Return how many requests ended."""
        return len(self.ok)

    def of(self, name: str) -> Ints:
        """Return a field of ``Request`` over all requests; ``UNKNOWN`` where None."""
        return self._by_name[name]

    def good(self, name: str) -> Ints:
        """Return the same over the successful requests."""
        return self._by_name[name][self.ok]

    @property
    def due_at_ns(self) -> Ints:
        """When each was to be sent: as ``Request.due_at_ns``."""
        intended = self.of("intended_at_ns")
        return np.where(intended == UNKNOWN, self.of("sent_at_ns"), intended)

    def since_due_ns(self, name: str) -> npt.NDArray[np.float64]:
        """Return an instant after ``due_at_ns``, ns; NaN where it is unknown."""
        at_ns = self.of(name)
        since = (at_ns - self.due_at_ns).astype(np.float64)
        since[at_ns == UNKNOWN] = np.nan
        return since

    @property
    def tpot_ns(self) -> npt.NDArray[np.float64]:
        """(E2EL - TTFT) / (output tokens - 1), ns; NaN below two tokens."""
        first, last = self.of("first_content_at_ns"), self.of("last_content_at_ns")
        n = self.of("output_tokens")
        known = (first != UNKNOWN) & (last != UNKNOWN) & (n >= 2)
        found = np.full(len(n), np.nan)
        np.divide(last - first, n - 1, out=found, where=known)
        return found

    @property
    def queued_ns(self) -> Ints:
        """How long each waited in the client before its send.

        From when it was due; in a closed loop, where all are due at once, from the
        first send.
        """
        sent, intended = self.of("sent_at_ns"), self.of("intended_at_ns")
        start = sent.min() if len(sent) else 0
        return sent - np.where(intended == UNKNOWN, start, intended)


def columns(requests: Iterable[Request]) -> Columns:
    """Walk ``requests`` once and return what they say, without their chunks."""
    parts: dict[str, array[int]] = {name: array("q") for name in _NAMES}
    append = [(name, part.append) for name, part in parts.items()]
    ok = bytearray()
    failures: Counter[str] = Counter()
    for request in requests:
        for name, add in append:
            value = getattr(request, name)
            add(UNKNOWN if value is None else value)
        ok.append(request.ok)
        if request.failure is not None:
            failures[request.failure] += 1
    by_name = {name: np.frombuffer(part, np.int64) for name, part in parts.items()}
    return Columns(np.frombuffer(ok, np.bool_), failures, by_name)
