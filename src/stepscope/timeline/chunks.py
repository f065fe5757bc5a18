"""Rows of one kind as they are read: narrow columns that grow where they are.

A list of arrays, joined at the end, holds every row twice for a moment and leaves its
pieces strewn over the heap. A bytearray grows in place, and numpy reads it uncopied.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.timeline.columns import I64, Ints

Order = I64 | slice


@dataclass(slots=True)
class Chunks:
    """Columns of equal length, each of the integer type that it was first given."""

    columns: dict[str, tuple[np.dtype[Any], bytearray]] = field(default_factory=dict)

    def add(self, **columns: npt.NDArray[Any]) -> None:
        """Append equally long columns."""
        for name, values in columns.items():
            known = self.columns.get(name)
            if known is None:
                self.columns[name] = (values.dtype, bytearray(values.tobytes()))
            else:
                # It is taken as the bytes that it is, without a copy of them.
                known[1].extend(np.ascontiguousarray(values, known[0]))

    def only(self, name: str) -> int | None:
        """Return the one value of a column and let it go; None if there are more."""
        values = self._view(name)
        if not len(values) or values.min() != values.max():
            return None
        del self.columns[name]
        return int(values[0])

    def taken(self, name: str) -> npt.NDArray[Any]:
        """Return one column, of its own type, and let it go from here."""
        values = self._view(name)
        self.columns.pop(name, None)
        return values

    def spread(self, name: str, order: Order) -> Ints:
        """Return one column in ``order``; one value that all share is held once."""
        many = len(self._view(name))
        value = self.only(name)
        if value is not None:
            return np.broadcast_to(np.int64(value), (many,))
        ordered: Ints = self.taken(name)[order]
        return ordered

    def instants(self, name: str, order: Order, base_ns: int = 0) -> I64:
        """Return a column of stamps in ``order``, moved by ``base_ns``."""
        values: I64 = self.taken(name).astype(np.int64, copy=False)[order]
        if base_ns:
            values += base_ns
        return values

    def order(self, name: str) -> Order:
        """Return what puts the rows in ascending order of a column, stably."""
        values = self._view(name)
        if bool((values[1:] >= values[:-1]).all()):
            return slice(None)
        return np.argsort(values, kind="stable")

    def _view(self, name: str) -> npt.NDArray[Any]:
        known = self.columns.get(name)
        if known is None:
            return np.empty(0, dtype=np.int64)
        return np.frombuffer(known[1], dtype=known[0])
