"""The chunk times of a cell, walked a piece at a time so that they need not fit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Piece:
    """The chunks of some requests, one request after the other.

    Attributes:
        sent: When each request was sent, int64[n].
        ok: Whether it succeeded.
        n_offsets: How many chunks it has.
        offsets: Arrivals after each request's sending, int64[sum(n_offsets)].
    """

    sent: Ints
    ok: Bools
    n_offsets: Ints
    offsets: Ints

    @cached_property
    def follows(self) -> Bools:
        """Whether a chunk follows another of its request."""
        follows = np.ones(self.offsets.size, np.bool_)
        begins = np.cumsum(self.n_offsets) - self.n_offsets
        follows[begins[self.n_offsets > 0]] = False
        return follows

    @cached_property
    def _inner(self) -> Bools:
        """Whether it follows another and their request succeeded."""
        return self.follows & np.repeat(self.ok, self.n_offsets)

    @cached_property
    def gaps_ns(self) -> Ints:
        """Gaps between consecutive chunks of one request, successful ones pooled."""
        if self.offsets.size < 2:
            return np.empty(0, np.int64)
        gaps: Ints = np.diff(self.offsets)[self._inner[1:]]
        return gaps

    @property
    def gap_ends_ns(self) -> Ints:
        """The instants at which ``gaps_ns`` end, in the same order."""
        ends: Ints = self.arrivals_ns[self._inner]
        return ends

    @property
    def gap_places(self) -> Ints:
        """Each gap's place in its answer, from 0, in the order of ``gaps_ns``."""
        begins = np.cumsum(self.n_offsets) - self.n_offsets
        place = np.arange(self.offsets.size) - np.repeat(begins, self.n_offsets) - 1
        places: Ints = place[self._inner]
        return places

    @cached_property
    def arrivals_ns(self) -> Ints:
        """Arrival instants of all chunks, in no order."""
        arrivals: Ints = self.offsets + np.repeat(self.sent, self.n_offsets)
        return arrivals


@dataclass(frozen=True, slots=True)
class Chunks:
    """All chunks of a cell.

    Attributes:
        n: How many there are.
        pieces: Yields them, the same ones at each call.
    """

    n: int
    pieces: Callable[[], Iterator[Piece]]

    def gaps(self) -> Iterator[Ints]:
        """Yield ``Piece.gaps_ns``: what ``stepscope.run.gaps.walked`` walks."""
        return (piece.gaps_ns for piece in self.pieces())
