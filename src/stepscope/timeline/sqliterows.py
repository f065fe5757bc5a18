"""Rows of an SQLite database, decoded many at a time: integers, and texts by number.

Where a row's types lie is given; what a row says is as its bytes say, and what can not
be a row is refused. Rows that reach onto further pages are named, not read.

Source: https://www.sqlite.org/fileformat2.html, section 2.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.timeline.columns import I64, Bool, Ints

Bytes = npt.NDArray[np.uint8]
#: Which integers, which text and the number of each, and how many must not be null.
Wanted = tuple[Sequence[int], tuple[int, Mapping[bytes, int]] | None, int]
#: Of one column in many rows: type, first byte and size of the value.
_Field = tuple[Bytes, I64, Ints | Bytes]
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


def decoded(page: Bytes, cell: I64, end: I64, usable: int, what: Wanted) -> Rows:
    """Return the rows that begin at many places.

    Args:
        page: Bytes of pages, and some 512 more.
        cell: Where each row's cell begins.
        end: Where its page may hold no more.
        usable: Bytes of a page that SQLite uses.
        what: Which columns.

    Raises:
        DamagedError: It can not be a row, or a value is of another kind.
    """
    columns, text, n_needed = what
    payload, at = _varint(page, cell)
    rowid, head = _varint(page, at)
    n_head, at = _varint(page, head)
    if (rowid[1:] <= rowid[:-1]).any():
        raise DamagedError("row ids do not ascend")
    local = _local(payload, usable)
    if (local < 0).any() or (head + local > end).any():
        raise DamagedError("a row reaches beyond its page")
    if ((n_head < at - head) | (n_head > payload)).any():
        raise DamagedError("a row's list of types is longer than the row")
    wanted = [*columns, *(() if text is None else (text[0],))]
    # Of a row whose list of types spills too, nothing is read.
    whole = n_head <= local
    fields = _fields(page, at, np.where(whole, head + n_head, at), wanted)
    kept = np.ones(len(at), dtype=np.bool_)
    for kind, _, _ in fields[:n_needed]:
        kept &= kind != _NULL
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


def _fields(page: Bytes, at: I64, body: I64, wanted: Sequence[int]) -> list[_Field]:
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
    page: Bytes, at: I64, body: I64, wanted: Sequence[int]
) -> list[_Field]:
    """Return the same where a type may take more than a byte."""
    found: dict[int, _Field] = {}
    start = body.copy()
    for column in range(max(wanted) + 1):
        value, after = _varint(page, at)
        value[at >= body] = _NULL
        short = _SIZES[np.clip(value, 0, 127)]
        # No value is longer; damaged ones must not add up beyond what fits.
        size = np.where(value < 128, short, np.minimum((value - 12) >> 1, 1 << 31))
        size[value < 0] = 1 << 31
        if column in wanted:
            # Even types are of bytes, odd ones of text.
            kind = np.where(value < 128, value, 126 + (value & 1)).astype(np.uint8)
            found[column] = kind, start.copy(), size
        start += size
        at = np.where(at < body, after, at)
    return [found[column] for column in wanted]


def _integers(
    page: Bytes, kind: Bytes, start: I64, size: Ints | Bytes
) -> tuple[I64, Bool | None]:
    if len(kind) and (kind == kind[0]).all():
        # As it mostly is: one type, and one size, then stand for all.
        kind, size = kind[:1], size[:1]
    if not _IS_INTEGER[kind].all():
        raise DamagedError("a value that must be an integer is none")
    each = np.ndarray(len(page) - 7, dtype=">i8", buffer=page, strides=(1,))
    # The eight bytes that end where the value does; those before it are shifted out.
    values = each[start + size - 8].astype(np.int64)
    shift = _SHIFTS[kind]
    values <<= shift
    values >>= shift
    bare = np.broadcast_to(size == 0, values.shape)
    if not bare.any():
        return values, None
    each_kind = np.broadcast_to(kind, values.shape)
    values[bare] = each_kind[bare] == _ONE
    null = each_kind == _NULL
    return values, null if null.any() else None


def _texts(page: Bytes, field: _Field, numbers: Mapping[bytes, int]) -> I64:
    kind, start, size = field
    if ((kind != _NULL) & ((kind <= _BLOB) | (kind % 2 == 0))).any():
        raise DamagedError("a value that must be text is none")
    raw = page.tobytes()
    found = np.full(len(start), -1, dtype=np.int64)
    some = kind > _BLOB
    begin = start if some.all() else start[some]
    cuts = map(slice, begin.tolist(), (start + size)[some].tolist())
    found[some] = list(map(numbers.__getitem__, map(raw.__getitem__, cuts)))
    return found


def _varint(page: Bytes, at: I64) -> tuple[I64, I64]:
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
