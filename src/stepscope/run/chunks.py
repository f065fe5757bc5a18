"""Chunk times that stay where they are kept, since a cell's may not fit into memory."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class ChunkTimes(Protocol):
    """When the chunks of a cell's requests came, in the order of ``Cell.requests``."""

    @property
    def n(self) -> int:
        """How many there are."""

    def pieces(
        self,
    ) -> Iterator[tuple["npt.NDArray[np.int64]", "npt.NDArray[np.int64]"]]:
        """Yield for some requests at a time how many chunks each has, and where.

        Offsets are nanoseconds after each request's ``sent_at_ns``, of one request
        after the other. It can be called again.
        """
