"""Records to Parquet columns and back, a row group at a time.

A request's chunk times become ``chunk_offsets_ns: list<int64>`` without passing
through Python numbers. Page checksums are written and checked.
"""

import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stepscope.archive.atomic import write_atomically
from stepscope.errors import ArchiveError

Record = TypeVar("Record", bound=msgspec.Struct)
Offsets = npt.NDArray[np.int64]

_CHUNKS = "chunk_offsets_ns"
_ARROW: dict[type, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.list_(pa.field("element", pa.int64(), nullable=False)),
}


def schema_of(kind: type[msgspec.Struct]) -> pa.Schema:
    """Return the columns of a record type: one a field, unknown as null."""
    return pa.schema([(name, _ARROW[t]) for name, t in _field_types(kind).items()])


def _field_types(kind: type[msgspec.Struct]) -> dict[str, type]:
    hints = get_type_hints(kind)
    return {name: _plain(hints[name]) for name in kind.__struct_fields__}


def _plain(hint: Any) -> type:
    """Return the type without ``| None``."""
    if get_origin(hint) is types.UnionType:
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    assert isinstance(hint, type)
    return hint


def table_of(kind: type[Record], records: Iterable[Record]) -> pa.Table:
    """Return records as a table."""
    rows = list(records)
    schema = schema_of(kind)
    columns = [
        _chunk_lists([getattr(row, field.name) for row in rows])
        if field.name == _CHUNKS
        else pa.array([getattr(row, field.name) for row in rows], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _chunk_lists(offsets: list[bytes]) -> pa.Array:
    starts = np.zeros(len(offsets) + 1, dtype=np.int32)
    np.cumsum([len(raw) // 8 for raw in offsets], out=starts[1:])
    values = pa.Array.from_buffers(
        pa.int64(), int(starts[-1]), [None, pa.py_buffer(b"".join(offsets))]
    )
    return pa.ListArray.from_arrays(pa.array(starts), values, type=_ARROW[bytes])


def write_parquet(
    path: Path, kind: type[Record], batches: Iterable[list[Record]]
) -> None:
    """Write records to ``path`` atomically, one row group a batch.

    Raises:
        OSError: The disk is full or failed; names ``path``.
    """
    schema = schema_of(kind)
    lists = _CHUNKS in schema.names
    deltas = {f"{_CHUNKS}.list.element": "DELTA_BINARY_PACKED"} if lists else None

    def fill(part: Path) -> None:
        with pq.ParquetWriter(
            part,
            schema,
            compression="zstd",
            use_dictionary=[f.name for f in schema if f.type == pa.string()],
            column_encoding=deltas,
            write_page_checksum=True,
        ) as writer:
            for batch in batches:
                writer.write_table(table_of(kind, batch))

    write_atomically(path, fill)


def read_parquet(
    path: Path, kind: type[Record], *, lists: bool = True
) -> Iterator[Record]:
    """Yield the records of a file, reading a row group at a time.

    Args:
        path: The file.
        kind: What its rows are.
        lists: False passes over the chunk times.

    Raises:
        ArchiveError: The file is damaged or holds columns that this version does not
            know.
    """
    with _opened(path) as file:
        names = [n for n in file.schema_arrow.names if lists or n != _CHUNKS]
        for group in range(file.num_row_groups):
            yield from records_of(kind, file.read_row_group(group, columns=names))


def chunk_lists(path: Path) -> Iterator[tuple[Offsets, Offsets]]:
    """Yield for each row group how many chunk times each row has, and all of them.

    Raises:
        ArchiveError: The file is damaged.
    """
    with _opened(path) as file:
        for group in range(file.num_row_groups):
            column = file.read_row_group(group, columns=[_CHUNKS]).column(_CHUNKS)
            for chunk in column.chunks:
                ends = np.asarray(chunk.offsets).astype(np.int64)
                yield np.diff(ends), np.asarray(chunk.values)[ends[0] : ends[-1]]


def n_listed(path: Path) -> int:
    """Return how many chunk times a file holds, an empty list counting as one.

    Raises:
        ArchiveError: The file is damaged.
    """
    with _opened(path) as file:
        at = next(
            (
                number
                for number, column in enumerate(file.schema)
                if column.path.startswith(_CHUNKS)
            ),
            None,
        )
        if at is None:
            return 0
        data = file.metadata
        groups = range(file.num_row_groups)
        return sum(data.row_group(group).column(at).num_values for group in groups)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, TypeError, msgspec.ValidationError) as error:
        raise damaged(path, str(error)) from error


def records_of(kind: type[Record], table: pa.Table) -> Iterator[Record]:
    """Yield a table's rows as records."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        columns[name] = _chunk_bytes(column) if name == _CHUNKS else column.to_pylist()
    names = tuple(columns)
    for row in zip(*columns.values(), strict=True):
        yield kind(**dict(zip(names, row, strict=True)))


def _chunk_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    if not pa.types.is_list(column.type):
        raise TypeError(f"column {_CHUNKS} holds {column.type}, no lists")
    for chunk in column.chunks:
        ends = np.asarray(chunk.offsets) * 8
        raw = np.asarray(chunk.values, dtype="<i8").tobytes()
        for at, end in pairwise(ends):
            yield raw[at:end]


def damaged(path: Path, what: str) -> ArchiveError:
    """Return the error for a file that can not be read."""
    return ArchiveError(
        str(path),
        f"can not be read ({what.splitlines()[0] if what else 'damaged'})",
        "a whole file",
        "Restore it from a copy, or measure again",
    )
