"""Columns of a trace that was read before, kept in the user's cache folder.

An entry is named by the hash of the file's content and the version of the parser, so
a file that moved is found and one that changed is not. Nothing is written beside a
trace: run directories are hashed, and other folders are not ours.
"""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.timeline.columns import Boxes, Calls, HostSpans, Ops, Trace

#: Goes up with every change of what the loaders read, ``parse/nsysranks.py`` too.
PARSER_VERSION = 5
#: Smaller files are read again as fast as their entry would be.
_LEAST_BYTES = 2 << 20
_MOST_BYTES = 4 << 30
_TABLES: dict[str, Any] = {
    "ops": Ops,
    "calls": Calls,
    "spans": HostSpans,
    "graph_boxes": Boxes,
    "marked_steps": Boxes,
}


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a trace is no column."""

    rank: int | None
    names: tuple[str, ...]
    resolution_ns: int
    graph_level_records: int
    n_zero_stamps: int
    world_size: int | None
    sharing: str | None


def cache_folder() -> Path:
    """Return where entries go: below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stepscope" / "traces"


def entry_of(path: Path, folder: Path) -> Path | None:
    """Return the entry of a trace; None for one that is too small to keep."""
    if path.stat().st_size < _LEAST_BYTES:
        return None
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return folder / f"{digest.hexdigest()}-v{PARSER_VERSION}.npz"


def kept(entry: Path, path: Path) -> list[Trace] | None:
    """Return the traces of an entry, as read from ``path``; None without a good one."""
    try:
        # numpy leaves a file that it opened and can not read open.
        with entry.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            heads = msgspec.json.decode(bytes(stored["heads"]), type=list[_Head])
            columns = {name: stored[name] for name in stored.files}
            traces = [_assembled(path, h, columns, i) for i, h in enumerate(heads)]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    os.utime(entry)
    return traces


def keep(entry: Path, traces: list[Trace]) -> None:
    """Write an entry in one step, and drop the oldest beyond 4 GiB.

    Raises:
        OSError: The folder can not be written.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    heads = [
        _Head(
            rank=t.rank,
            names=t.names,
            resolution_ns=t.resolution_ns,
            graph_level_records=t.graph_level_records,
            n_zero_stamps=t.n_zero_stamps,
            world_size=t.world_size,
            sharing=t.sharing,
        )
        for t in traces
    ]
    columns = {
        f"{i}.{table}.{column.name}": getattr(getattr(trace, table), column.name)
        for i, trace in enumerate(traces)
        for table, kind in _TABLES.items()
        for column in fields(kind)
    }
    text = np.frombuffer(msgspec.json.encode(heads), dtype=np.uint8)
    with _in_one_step(entry) as partial, partial.open("wb") as stream:
        np.savez(stream, heads=text, **columns)
    _prune(entry.parent)


def _assembled(
    path: Path, head: _Head, columns: dict[str, npt.NDArray[Any]], i: int
) -> Trace:
    tables: dict[str, Any] = {
        table: kind(**{c.name: columns[f"{i}.{table}.{c.name}"] for c in fields(kind)})
        for table, kind in _TABLES.items()
    }
    return Trace(path=str(path), **tables, **msgspec.structs.asdict(head))


@contextmanager
def _in_one_step(entry: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(dir=entry.parent, suffix=".partial")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.replace(entry)
    finally:
        partial.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    entries = sorted(folder.glob("*.npz"), key=lambda p: -p.stat().st_mtime)
    total = 0
    for path in entries:
        total += path.stat().st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
