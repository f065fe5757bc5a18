"""Durations gathered by the million in bounded memory: a histogram 1 % wide.

Without numpy, which a client process has no other use for: it would take 13 MB of each.
"""

import math
import struct
import sys
from array import array
from collections import Counter
from itertools import accumulate

import msgspec

#: Of the two halves of a 32-bit float, the one with its exponent and the first 7 bits
#: of its mantissa. That is the bin of a duration: none is wider than 1/128 of it.
_LEADING = 1 if sys.byteorder == "little" else 0
_State = tuple[int, int, dict[int, int]]
_decode = msgspec.msgpack.Decoder(_State).decode


class Spread:
    """A set of durations in nanoseconds; mean and maximum exact, quantiles to 1 %.

    ``add`` is the array's own append, because it is called once a read.
    """

    __slots__ = ("_buffer", "_counts", "_max", "_sum", "add")

    def __init__(self) -> None:
        self._buffer: array[int] = array("q")
        self._counts: Counter[int] = Counter()
        self._sum = 0
        self._max = 0
        self.add = self._buffer.append

    def fold(self) -> None:
        """Move what was added into the histogram, so that memory stays bounded.

        It takes 0.1 us a duration and holds up the loop so long: call it often.
        """
        buffer = self._buffer
        if not buffer:
            return
        durations = buffer.tolist()  # what walks an array makes each number anew
        self._sum += sum(durations)
        self._max = max(self._max, *durations)
        halves = array("H", array("f", durations).tobytes())
        self._counts.update(halves[_LEADING::2])
        del buffer[:]

    def merge(self, other: bytes) -> None:
        """Take in what another's ``to_bytes`` gave."""
        total, most, counts = _decode(other)
        self._sum += total
        self._max = max(self._max, most)
        self._counts.update(counts)

    def to_bytes(self) -> bytes:
        """Return the whole state: sum, maximum, and what is in each bin."""
        self.fold()
        return msgspec.msgpack.encode((self._sum, self._max, self._counts))

    @property
    def n(self) -> int:
        """Durations in the histogram."""
        self.fold()
        return self._counts.total()

    @property
    def mean_ns(self) -> float | None:
        """Mean, nanoseconds; None when it is empty."""
        n = self.n
        return self._sum / n if n else None

    @property
    def max_ns(self) -> int | None:
        """Maximum, nanoseconds; None when it is empty."""
        return self._max if self.n else None

    def quantile_ns(self, q: float) -> float | None:
        """Return the upper edge of the bin that holds quantile ``q`` (0 to 1).

        Never above the maximum; None when it is empty.
        """
        n = self.n
        if not n:
            return None
        rank = max(1, math.ceil(q * n))
        bins = sorted(self._counts)
        below = accumulate(self._counts[at] for at in bins)
        at = next(at for at, until in zip(bins, below, strict=True) if until >= rank)
        return min(_edge(at + 1), float(self._max))


def _edge(at: int) -> float:
    """Return where a bin begins, nanoseconds."""
    edge: float
    (edge,) = struct.unpack("=f", struct.pack("=I", at << 16))
    return edge
