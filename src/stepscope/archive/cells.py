"""A cell's requests: journals while it is measured, one Parquet file afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.archive.atomic import sync_dir
from stepscope.archive.columns import (
    damaged,
    n_listed,
    read_parquet,
    write_parquet,
)
from stepscope.archive.journal import JournalFile, Tail
from stepscope.archive.layout import REQUESTS, request_journals
from stepscope.run.requests import Request

_ROWS_PER_GROUP = 4096

T = TypeVar("T")


class _Sent(msgspec.Struct):
    """The part of a request that orders it; the rest is passed over."""

    sent_at_ns: int
    index: int


def close_requests(cell_dir: Path) -> None:
    """Turn a cell's journals into its Parquet file, then remove them.

    Killed at any point, the cell stays readable: until the Parquet file is in place
    the journals are what is read, afterwards they are ignored. Called again it
    finishes what was begun. At most one row group of requests is held.
    """
    journals = request_journals(cell_dir)
    target = cell_dir / REQUESTS
    if not target.exists():
        write_parquet(target, Request, _in_order(journals))
    for path in journals:
        path.unlink()
    if journals:
        sync_dir(cell_dir)


def requests_of(cell_dir: Path, *, chunks: bool = True) -> Iterator[Request]:
    """Yield a cell's requests in order of sending, from whichever form is there.

    Args:
        cell_dir: The cell's folder.
        chunks: False leaves them without their chunk times.
    """
    target = cell_dir / REQUESTS
    if target.exists():
        yield from read_parquet(target, Request, lists=chunks)
        return
    for batch in batches_of(cell_dir):
        for row in batch:
            yield row if chunks else _without_chunks(row)


def batches_of(cell_dir: Path) -> Iterator[list[Request]]:
    """Yield what a cell's journals hold in order of sending, some at a time."""
    return _in_order(request_journals(cell_dir))


def n_chunks_of(cell_dir: Path) -> int:
    """Return how many chunk times a cell's files hold; of journals at most so many."""
    target = cell_dir / REQUESTS
    if target.exists():
        return n_listed(target)
    return sum(p.stat().st_size for p in request_journals(cell_dir)) // 8


def _without_chunks(row: Request) -> Request:
    return msgspec.structs.replace(row, chunk_offsets_ns=b"")


def tails_of(cell_dir: Path) -> dict[str, Tail]:
    """Return for each journal that counts what of it can not be read."""
    if (cell_dir / REQUESTS).exists():
        return {}
    tails = {p.name: JournalFile(p).tail() for p in request_journals(cell_dir)}
    return {name: tail for name, tail in tails.items() if tail.n_bytes}


def _in_order(journals: list[Path]) -> Iterator[list[Request]]:
    """Yield the requests of all journals in order of sending, in batches."""
    files = [JournalFile(path) for path in journals]
    places: list[tuple[int, int, int, int, int]] = []
    for number, file in enumerate(files):
        for at, body in file.places():
            sent = _decode(body, _Sent, file.path)
            places.append((sent.sent_at_ns, sent.index, number, at, len(body)))
    places.sort()
    for start in range(0, len(places), _ROWS_PER_GROUP):
        yield [
            _decode(files[number].payload_at(at, length), Request, files[number].path)
            for _, _, number, at, length in places[start : start + _ROWS_PER_GROUP]
        ]


def _decode(body: bytes, kind: type[T], path: Path) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
