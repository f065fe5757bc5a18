"""Integer columns of an SQLite table, read from the file's pages many rows at a time.

SQLite hands rows over one by one, and a Python tuple a row costs ten times what SQLite
needs to find it. Its file format is fixed and public, and the rows of one page decode
as columns. This reads what lies on the leaves of a rowid table and nothing else: which
tables are so, and what spills onto further pages, is for ``exported.py`` to ask SQLite.

Source: https://www.sqlite.org/fileformat2.html, section 1.6.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from stepscope.timeline.columns import I64
from stepscope.timeline.sqliterows import Bytes, DamagedError, Rows, decoded

_LEAF, _INTERIOR = 13, 5
#: Bytes of pages held at a time; more leave the processor's cache.
_BATCH_BYTES = 1 << 19
#: A value of eight bytes may be looked for this far beyond the last page.
_PAD = 512


@dataclass(slots=True)
class Pages:
    """The pages of a database file that nobody writes to.

    Attributes:
        file: The file.
        size: Bytes of a page.
        usable: Those of them that SQLite uses.
        n_pages: Whole pages.
        is_utf8: True unless texts are of UTF-16.
    """

    file: BinaryIO
    size: int = field(init=False)
    usable: int = field(init=False)
    n_pages: int = field(init=False)
    is_utf8: bool = field(init=False)

    def __post_init__(self) -> None:
        self.file.seek(0)
        head = self.file.read(100)
        if len(head) < 100:
            raise DamagedError("no database")
        self.is_utf8 = int.from_bytes(head[56:60], "big") in (0, 1)
        size = int.from_bytes(head[16:18], "big")
        self.size = 65536 if size == 1 else size
        self.usable = self.size - head[20]
        if self.size < 512 or self.size & (self.size - 1) or self.usable < 480:
            raise DamagedError(f"pages of {self.size} bytes")
        self.n_pages = self.file.seek(0, io.SEEK_END) // self.size

    def holds_rows(self, root: int) -> bool:
        """True when the tree from a page on is of rows, not of an index."""
        return int(self._read([root])[0]) in (_LEAF, _INTERIOR)

    def rows(
        self,
        root: int,
        columns: Sequence[int],
        text: tuple[int, Mapping[bytes, int]] | None = None,
        n_needed: int = 0,
    ) -> Iterator[Rows]:
        """Yield all rows of a rowid table, in order of row id.

        Args:
            root: Page where the table begins.
            columns: Which columns, by their place in the table; integers or null.
            text: Which column holds text, if it is wanted, and the number of each.
            n_needed: Rows in which one of so many first columns is null are left out.

        Raises:
            DamagedError: A page is not what it must be, or a value no integer.
        """
        leaves = self._leaves(root)
        many = max(_BATCH_BYTES // self.size, 1)
        for at in range(0, len(leaves), many):
            some = leaves[at : at + many]
            page = self._read(some)
            cell, end = _cells(page, len(some), self.size, self.usable)
            yield decoded(page, cell, end, self.usable, (columns, text, n_needed))

    def _leaves(self, root: int) -> list[int]:
        found: list[int] = []
        waiting = [root]
        n_seen = 0
        while waiting:
            number = waiting.pop()
            n_seen += 1
            if n_seen > self.n_pages:
                raise DamagedError("pages lead to each other")
            page = self._read([number])
            if page[0] == _LEAF:
                found.append(number)
            elif page[0] == _INTERIOR:
                children = self._children(page)
                # All children of one page are of one kind.
                if self._read(children[:1])[0] == _LEAF:
                    found += children
                    n_seen += len(children)
                else:
                    waiting += reversed(children)
            else:
                raise DamagedError(f"page {number} is of no table")
        if len(set(found)) < len(found):
            raise DamagedError("pages lead to one page twice")
        return found

    def _children(self, page: Bytes) -> list[int]:
        n = int(page[3]) << 8 | int(page[4])
        pointers = 12 + 2 * np.arange(n)
        if 12 + 2 * n > self.size:
            raise DamagedError("a page counts more cells than it holds")
        cells = page[pointers].astype(np.int64) << 8 | page[pointers + 1]
        raw = page.tobytes()
        starts = [*cells.tolist(), 8]
        return [int.from_bytes(raw[at : at + 4], "big") for at in starts]

    def _read(self, numbers: list[int]) -> Bytes:
        """Return pages one after another, and some zeros."""
        room = bytearray(len(numbers) * self.size + _PAD)
        view = memoryview(room)
        i = 0
        while i < len(numbers):
            j = i + 1
            while j < len(numbers) and numbers[j] == numbers[j - 1] + 1:
                j += 1
            if not 0 < numbers[i] <= numbers[j - 1] <= self.n_pages:
                raise DamagedError(f"page {numbers[i]} of {self.n_pages}")
            self.file.seek((numbers[i] - 1) * self.size)
            want = view[i * self.size : j * self.size]
            if self.file.readinto(want) != len(want):  # type: ignore[attr-defined]  # every binary file has it
                raise DamagedError("the file ends early")
            i = j
        return np.frombuffer(room, dtype=np.uint8)


def _cells(page: Bytes, n_pages: int, size: int, usable: int) -> tuple[I64, I64]:
    """Return where each cell of leaf pages begins, and where its page may hold bytes.

    The latter is the end of what SQLite uses of the page.
    """
    base = np.arange(n_pages, dtype=np.int64) * size
    if (page[base] != _LEAF).any():
        raise DamagedError("a leaf page is of no table")
    n = page[base + 3].astype(np.int64) << 8 | page[base + 4]
    if int(n.max()) * 2 + 8 > size:
        raise DamagedError("a page counts more cells than it holds")
    of = np.repeat(base, n)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(n) - n, n)
    at = of + 8 + 2 * nth
    cell = page[at].astype(np.int64) << 8 | page[at + 1]
    if ((cell < 8 + 2 * np.repeat(n, n)) | (cell >= usable)).any():
        raise DamagedError("a cell lies outside its page")
    return of + cell, of + usable
