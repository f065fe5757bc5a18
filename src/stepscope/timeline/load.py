"""One way to open a trace, whatever it is."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope.errors import ArchiveError, RecipeError
from stepscope.timeline.cache import entry_of, keep, kept
from stepscope.timeline.columns import (
    Bool,
    Trace,
    member,
    no_calls,
    no_spans,
    rows_of_each,
)
from stepscope.timeline.kineto import load_kineto
from stepscope.timeline.nsys import load_nsys

_SQLITE = b"SQLite format 3\x00"
#: How a journal begins that has something to roll back.
#: Source: https://www.sqlite.org/fileformat2.html, section 3.
_JOURNAL = bytes.fromhex("d9d505f920a163d7")

#: Files that together are smaller are read in this process: another takes longer to
#: start than they take to read.
_LEAST_PARALLEL_BYTES = 8 << 20


def load_traces(
    paths: Sequence[Path], *, cache: Path | None = None, n_processes: int | None = None
) -> list[Trace]:
    """Read the traces of several files, large ones side by side.

    Args:
        paths: Files, one a rank or one with several devices.
        cache: Folder of columns read before; None reads the files and keeps nothing.
        n_processes: At most so many at once; by default one a core that we may use.

    Returns:
        All traces, by rank; those that do not know theirs come first.

    Raises:
        RecipeError: A path does not exist or is no file.
        ArchiveError: A file is damaged, or of an unknown form.
    """
    large = [p for p in paths if p.is_file()]
    cores = len(os.sched_getaffinity(0)) if n_processes is None else n_processes
    n = min(cores, len(large))
    if n > 1 and sum(p.stat().st_size for p in large) > _LEAST_PARALLEL_BYTES:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        # Forking a process that has threads may hang the child.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(n, mp_context=context) as pool:
            lists = list(pool.map(load_trace, paths, [cache] * len(paths)))
    else:
        lists = [load_trace(path, cache) for path in paths]
    found = [trace for each in lists for trace in each]
    return sorted(found, key=lambda t: -1 if t.rank is None else t.rank)


def load_trace(path: Path, cache: Path | None = None) -> list[Trace]:
    """Read a torch profiler JSON(.gz) or an nsys SQLite export.

    Args:
        path: The file.
        cache: Folder of columns read before; None reads the file and keeps nothing. A
            folder that can not be written is no reason to fail.

    Returns:
        One trace a device, ascending.

    Raises:
        RecipeError: The path does not exist or is no file.
        ArchiveError: It is damaged, or of an unknown form.
    """
    _refuse_unfinished(path)
    entry = entry_of(path, cache) if cache is not None and path.is_file() else None
    known = kept(entry, path) if entry is not None else None
    if known is not None:
        return known
    traces = _read(path)
    if entry is not None:
        with suppress(OSError):
            keep(entry, traces)
    return traces


def _refuse_unfinished(path: Path) -> None:
    """Refuse a database whose changes lie, whole or in part, in a file beside it."""
    for ending, begins in (("-wal", b""), ("-journal", _JOURNAL)):
        beside = path.resolve()
        beside = beside.with_name(beside.name + ending)
        if not beside.is_file():
            continue
        with beside.open("rb") as stream:
            head = stream.read(8)
        if head and head.startswith(begins):
            raise ArchiveError(
                str(path),
                f"{beside.name} beside it holds changes that are not in it",
                "expected a database that nobody writes to",
                "Wait for nsys export to end, or open and close it once with sqlite3",
            )


def _read(path: Path) -> list[Trace]:
    if path.is_dir():
        raise RecipeError(str(path), "is a folder", "expected a trace", "Name its file")
    if not path.is_file():
        raise RecipeError(str(path), "no such file", "expected a trace")
    with path.open("rb") as stream:
        magic = stream.read(16)
    if magic == _SQLITE:
        return each_its_own(load_nsys(path))
    if magic[:2] == b"\x1f\x8b" or magic.lstrip()[:1] in (b"{", b"["):
        return each_its_own(load_kineto(path))
    hint = ""
    if path.suffix == ".nsys-rep":
        hint = f"Export it: nsys export --type sqlite {path.name}"
    raise ArchiveError(
        str(path),
        "not a trace that can be read",
        "expected torch profiler JSON (plain or gzip) or an nsys SQLite export",
        hint,
    )


def each_its_own(traces: list[Trace]) -> list[Trace]:
    """Leave to each device of one file the host calls that are its own.

    A call that launched something on another device is that device's. A process or a
    thread whose every answered call is another device's is that device's too.

    Args:
        traces: All traces of one file; emptied, so that no column is held twice.
    """
    if len(traces) < 2:
        return traces
    kept_calls = [~_others_calls(trace, traces) for trace in traces]
    kept_spans = list(map(_kept_spans, traces, kept_calls))
    bare = [replace(t, calls=no_calls(), spans=no_spans()) for t in traces]
    calls = [trace.calls for trace in traces]
    spans = [trace.spans for trace in traces]
    traces.clear()
    calls = rows_of_each(calls, kept_calls)
    spans = rows_of_each(spans, kept_spans)
    return [
        replace(trace, calls=c, spans=s)
        for trace, c, s in zip(bare, calls, spans, strict=True)
    ]


def _kept_spans(trace: Trace, kept_calls: Bool) -> Bool:
    thread = trace.calls.thread
    left = np.setdiff1d(thread[~kept_calls], thread[kept_calls])
    # Threads are few: one comparison each needs less memory than numpy's table.
    return ~np.isin(trace.spans.thread, left, kind="sort")


def _others_calls(trace: Trace, traces: list[Trace]) -> Bool:
    """Return which calls of a trace belong to another one of its file."""
    ids = trace.calls.correlation
    mine = member(ids, trace.ops.correlation) & (ids >= 0)
    other = np.zeros(len(trace.calls), dtype=np.bool_)
    for stranger in traces:
        if stranger is not trace:
            other |= member(ids, stranger.ops.correlation)
    other &= ~mine & (ids >= 0)
    for key in (trace.calls.process, trace.calls.thread):
        foreign = np.setdiff1d(key[other], key[mine])
        other |= np.isin(key, foreign)
    return other
