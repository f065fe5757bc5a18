"""Chunk times that are left in a cell's files, since they are many."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepscope.archive.cells import batches_of, n_chunks_of
from stepscope.archive.columns import chunk_lists
from stepscope.archive.layout import REQUESTS

Ints = npt.NDArray[np.int64]

#: So many chunk times of a run are held, 8 bytes each; cells beyond leave theirs.
MOST_HELD = 8 << 20


class KeptChunks:
    """The chunk times of one cell, read from its files whenever they are asked for.

    Attributes:
        n: How many there are.
    """

    def __init__(self, cell_dir: Path) -> None:
        self._dir = cell_dir
        self.n = n_chunks_of(cell_dir)

    def pieces(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield for some requests at a time how many chunks each has, and the offsets.

        Raises:
            ArchiveError: The file is damaged.
        """
        target = self._dir / REQUESTS
        if target.exists():
            yield from chunk_lists(target)
            return
        for batch in batches_of(self._dir):
            raw = [row.chunk_offsets_ns for row in batch]
            counts = np.fromiter((len(one) // 8 for one in raw), np.int64, len(raw))
            yield counts, np.frombuffer(b"".join(raw), "<i8").astype(np.int64)
