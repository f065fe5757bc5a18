"""Integer columns of an SQLite table, read from the file's pages many rows at a time.

SQLite hands rows over one by one, and a Python tuple a row costs ten times what SQLite
needs to find it. Its file format is fixed and public, and the rows of one page decode
as columns: this reads rowid tables and nothing else, and everything that is not plain
(schemas, string tables, rows that spill onto further pages) is left to SQLite.

Source: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from stepscope.timeline.columns import I64, Bool, Ints

_Bytes = npt.NDArray[np.uint8]
#: Of one column in many rows: type, first byte and size of the value.
_Field = tuple[_Bytes, I64, Ints | _Bytes]
_LEAF, _INTERIOR = 13, 5
#: Bytes of pages held at a time; more leave the processor's cache.
_BATCH_BYTES = 1 << 19
#: A value of eight bytes may be looked for this far beyond the last page.
_PAD = 512
_NULL, _ONE, _BLOB = 0, 9, 12
#: Bytes of a value by its type; types from 128 on take more than a byte themselves.
_SIZES = np.array(
    [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((t - 12) // 2 for t in range(12, 128))],
    dtype=np.uint8,
)
_IS_INTEGER = np.array([t in (0, 1, 2, 3, 4, 5, 6, 8, 9) for t in range(128)])
#: By how much the eight bytes that end with a value are shifted to leave it alone.
_SHIFTS = 64 - 8 * np.clip(_SIZES[:128], 1, 8).astype(np.int64)


class DamagedError(Exception):
    """The pages are not what the format says."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table; columns in the order in which they were asked for.

    Attributes:
        values: int64[n] of each column; 0 where a value is null.
        null: Where values are null; None for a column that has none.
        text: Number of each row's text, -1 where it is null; None where no text was
            asked for.
        spilled: Row ids whose wanted values lie on further pages, not in ``values``.
    """

    values: list[I64]
    null: list[Bool | None]
    text: I64 | None
    spilled: list[int]


@dataclass(slots=True)
class Pages:
    """The pages of a database file, as UTF-8 and without a write-ahead log."""

    file: BinaryIO
    size: int = field(init=False)
    usable: int = field(init=False)
    n_pages: int = field(init=False)

    def __post_init__(self) -> None:
        self.file.seek(0)
        head = self.file.read(100)
        if len(head) < 100 or int.from_bytes(head[56:60], "big") not in (0, 1):
            raise DamagedError("no UTF-8 database")
        size = int.from_bytes(head[16:18], "big")
        self.size = 65536 if size == 1 else size
        self.usable = self.size - head[20]
        if self.size < 512 or self.size & (self.size - 1) or self.usable < 480:
            raise DamagedError(f"pages of {self.size} bytes")
        self.n_pages = self.file.seek(0, io.SEEK_END) // self.size

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
            yield _decoded(page, len(some), self, (columns, text, n_needed))

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
        return found

    def _children(self, page: _Bytes) -> list[int]:
        n = int(page[3]) << 8 | int(page[4])
        pointers = 12 + 2 * np.arange(n)
        if 12 + 2 * n > self.size:
            raise DamagedError("a page counts more cells than it holds")
        cells = page[pointers].astype(np.int64) << 8 | page[pointers + 1]
        left = _wide(page, cells, 4)
        return [*left.tolist(), int.from_bytes(page[8:12].tobytes(), "big")]

    def _read(self, numbers: list[int]) -> _Bytes:
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


def _wide(page: _Bytes, at: I64, n_bytes: int) -> I64:
    found = np.zeros(len(at), dtype=np.int64)
    for k in range(n_bytes):
        found = found << 8 | page[at + k]
    return found


def _varint(page: _Bytes, at: I64) -> tuple[I64, I64]:
    """Return numbers of one to nine bytes at many places, and the places after them."""
    first = page[at]
    value: I64 = (first & 0x7F).astype(np.int64)
    after = at + 1
    more = np.flatnonzero(first >= 128)
    for k in range(8):
        if not len(more):
            break
        byte = page[after[more]].astype(np.int64)
        last = k == 7
        value[more] = (
            value[more] << 8 | byte if last else value[more] << 7 | byte & 0x7F
        )
        after[more] += 1
        more = more[:0] if last else more[byte >= 128]
    return value, after


def _cells(page: _Bytes, n_pages: int, size: int) -> tuple[I64, I64]:
    """Return where each cell of leaf pages begins, and its page's first byte."""
    base = np.arange(n_pages, dtype=np.int64) * size
    if (page[base] != _LEAF).any():
        raise DamagedError("a leaf page is of no table")
    n = page[base + 3].astype(np.int64) << 8 | page[base + 4]
    if int(n.max()) * 2 + 8 > size:
        raise DamagedError("a page counts more cells than it holds")
    of = np.repeat(base, n)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(n) - n, n)
    at = of + 8 + 2 * nth
    return of + (page[at].astype(np.int64) << 8 | page[at + 1]), of


_Wanted = tuple[Sequence[int], tuple[int, Mapping[bytes, int]] | None, int]


def _decoded(page: _Bytes, n_pages: int, pages: Pages, what: _Wanted) -> Rows:
    columns, text, n_needed = what
    cell, of = _cells(page, n_pages, pages.size)
    payload, at = _varint(page, cell)
    rowid, head = _varint(page, at)
    n_head, at = _varint(page, head)
    local = _local(payload, pages.usable)
    if (head + local > of + pages.size).any() or (n_head > local).any():
        raise DamagedError("a row reaches beyond its page")
    wanted = [*columns, *(() if text is None else (text[0],))]
    fields = _fields(page, at, head + n_head, wanted)
    kept = np.ones(len(at), dtype=np.bool_)
    for kind, _, _ in fields[:n_needed]:
        kept &= kind != _NULL
    whole = np.ones(len(at), dtype=np.bool_)
    for _, start, size in fields:
        whole &= start + size <= head + local
    if not whole.all():
        if (payload == local)[~whole].any():
            raise DamagedError("a row is longer than it says")
        kept &= whole
    if not kept.all():
        fields = [(k[kept], start[kept], z[kept]) for k, start, z in fields]
    found = [_integers(page, *field) for field in fields[: len(columns)]]
    return Rows(
        values=[values for values, _ in found],
        null=[null for _, null in found],
        text=None if text is None else _texts(page, fields[-1], text[1]),
        spilled=rowid[~whole].tolist(),
    )


def _local(payload: I64, usable: int) -> I64:
    """Return how many bytes of each row lie on its own page."""
    most = usable - 35
    if not len(payload) or int(payload.max()) <= most:
        return payload
    least = (usable - 12) * 32 // 255 - 23
    rest = least + (payload - least) % (usable - 4)
    spilled = np.where(rest <= most, rest, least)
    return np.where(payload <= most, payload, spilled)


def _fields(page: _Bytes, at: I64, body: I64, wanted: Sequence[int]) -> list[_Field]:
    """Return of each wanted column type, first byte and size in every row.

    Args:
        page: The pages' bytes.
        at: Where each row's list of types begins.
        body: Where it ends and values begin; columns beyond it are null.
        wanted: Which columns.
    """
    width = max(wanted) + 1
    window = np.lib.stride_tricks.sliding_window_view(page, width)
    types = np.ascontiguousarray(window[at].T)
    listed = body - at
    if int(listed.min(initial=width)) < width:
        types[np.arange(width)[:, None] >= listed] = _NULL
    long = np.flatnonzero((types >= 128).any(axis=0))
    types[:, long] = _NULL
    sizes = _SIZES[types]
    found: dict[int, _Field] = {}
    start = body.copy()
    for column in range(width):
        if column in wanted:
            found[column] = types[column], start.copy(), sizes[column]
        start += sizes[column]
    fields = [found[column] for column in wanted]
    if not len(long):
        return fields
    apart = _long_fields(page, at[long], body[long], wanted)
    return [_patched(f, long, own) for f, own in zip(fields, apart, strict=True)]


def _patched(field: _Field, rows: I64, own: _Field) -> _Field:
    kind, start, size = field[0], field[1], field[2].astype(np.int64)
    kind[rows], start[rows], size[rows] = own
    return kind, start, size


def _long_fields(
    page: _Bytes, at: I64, body: I64, wanted: Sequence[int]
) -> list[_Field]:
    """Return the same where a type may take more than a byte."""
    found: dict[int, _Field] = {}
    start = body.copy()
    for column in range(max(wanted) + 1):
        value, after = _varint(page, at)
        value[at >= body] = _NULL
        short = _SIZES[np.minimum(value, 127)]
        size = np.where(value < 128, short, (value - 12) >> 1)
        if column in wanted:
            # Of types beyond those of integers only that they are is looked at.
            kind = np.minimum(value, 127).astype(np.uint8)
            found[column] = kind, start.copy(), size
        start += size
        at = np.where(at < body, after, at)
    return [found[column] for column in wanted]


def _integers(
    page: _Bytes, kind: _Bytes, start: I64, size: Ints | _Bytes
) -> tuple[I64, Bool | None]:
    if not _IS_INTEGER[kind].all():
        raise DamagedError("a value that must be an integer is none")
    each = np.ndarray(len(page) - 7, dtype=">i8", buffer=page, strides=(1,))
    # The eight bytes that end where the value does; those before it are shifted out.
    values = each[start + size - 8].astype(np.int64)
    shift = _SHIFTS[kind]
    values <<= shift
    values >>= shift
    bare = size == 0
    if not bare.any():
        return values, None
    values[bare] = kind[bare] == _ONE
    null = kind == _NULL
    return values, null if null.any() else None


def _texts(page: _Bytes, field: _Field, numbers: Mapping[bytes, int]) -> I64:
    kind, start, size = field
    raw = page.tobytes()
    found = np.full(len(start), -1, dtype=np.int64)
    some = kind > _BLOB
    begin = start if some.all() else start[some]
    cuts = map(slice, begin.tolist(), (start + size)[some].tolist())
    found[some] = list(map(numbers.__getitem__, map(raw.__getitem__, cuts)))
    return found
