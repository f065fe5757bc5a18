"""One way to open a trace, whatever it is."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope.errors import ArchiveError, RecipeError
from stepscope.timeline.columns import Trace
from stepscope.timeline.kineto import load_kineto
from stepscope.timeline.nsys import load_nsys

_SQLITE = b"SQLite format 3\x00"


def load_trace(path: Path) -> list[Trace]:
    """Read a torch profiler JSON(.gz) or an nsys SQLite export.

    Returns:
        One trace a device, ascending.

    Raises:
        RecipeError: The path does not exist or is no file.
        ArchiveError: It is damaged, or of an unknown form.
    """
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
    """
    if len(traces) < 2:
        return traces
    found = []
    for trace in traces:
        mine = np.isin(trace.calls.correlation, trace.ops.correlation)
        mine &= trace.calls.correlation >= 0
        other = np.zeros(len(trace.calls), dtype=np.bool_)
        for stranger in traces:
            if stranger is not trace:
                other |= np.isin(trace.calls.correlation, stranger.ops.correlation)
        other &= ~mine & (trace.calls.correlation >= 0)
        for key in (trace.calls.process, trace.calls.thread):
            foreign = np.setdiff1d(key[other], key[mine])
            other |= np.isin(key, foreign)
        calls = trace.calls.take(~other)
        threads = np.setdiff1d(trace.calls.thread[other], calls.thread)
        spans = trace.spans.take(~np.isin(trace.spans.thread, threads))
        found.append(replace(trace, calls=calls, spans=spans))
    return found
