"""Opens a run directory, finished, running or killed.

The server's log and the engine's metrics are parsed here, each time: a better parser
also improves old runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope.archive.cells import requests_of, tails_of
from stepscope.archive.chunktimes import MOST_HELD, KeptChunks
from stepscope.archive.columns import damaged
from stepscope.archive.journal import JournalFile, Tail
from stepscope.archive.layout import (
    CELLS,
    LAUNCHES,
    METRICS_AFTER,
    METRICS_BEFORE,
    RECORDS,
    SERVER_LOG,
    dir_name,
    plain_name,
)
from stepscope.archive.logclock import (
    log_offset_ns,
    placed,
    stamps_of,
    unplaced,
)
from stepscope.archive.manifest import CHECKED_ON_OPEN_BYTES, read_manifest, verify
from stepscope.archive.records import Entry, read_header
from stepscope.archive.samples import samples_of
from stepscope.archive.strays import stray_cell
from stepscope.findings import Finding
from stepscope.parse.prometheus import parse_metrics
from stepscope.parse.serverlog import parse_log
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, Run, Timeline, TraceRef
from stepscope.run.samples import MetricsSnapshot, Samples
from stepscope.run.serverlog import ServerLog
from stepscope.units import NS_PER_S

_PIECE_BYTES = 1 << 22
#: How long a killed run's server may have logged after the last thing that was kept.
_UNSEEN_NS = 60 * NS_PER_S
_NOT_CLOSED = Finding(
    code="not-closed",
    severity="warning",
    message="the run has no manifest: it was killed, is still going, or lost that file."
    " What was kept is read as it lies; nothing says that it is all, or unchanged",
    hint="Resume the run (stepscope run RECIPE --resume --out RUN), which closes it.",
)
_PARSERS = frozenset({"vllm", "sglang", "llamacpp"})


@dataclass(frozen=True, slots=True)
class Records:
    """The record journal, last of each name, in order of first appearance."""

    launches: tuple[Launch, ...]
    cells: tuple[Cell, ...]
    findings: tuple[Finding, ...]
    traces: tuple[TraceRef, ...]
    tail: Tail | None


def open_run(
    path: Path,
    *,
    requests: bool = True,
    logs: bool = True,
    most_chunks: int = MOST_HELD,
) -> Run:
    """Return the run that lies in a directory.

    Everything up to the last finished request of a killed run is there; a cell that
    was being measured has status ``interrupted``. The paths of traces are absolute,
    those of logs relative to ``path``.

    Args:
        path: The run directory.
        requests: False leaves cells without their requests.
        logs: False leaves launches without their parsed logs.
        most_chunks: So many chunk times are held with their requests, of the cells in
            their order; a cell with which it were more has ``Cell.chunks`` instead.

    Raises:
        ArchiveError: No run directory, a newer format, or a damaged file. Files of up
            to 8 MiB are checked against the manifest; ``verify`` checks all.
    """
    run = read_header(path)
    manifest = read_manifest(path)
    verify(path, up_to_bytes=CHECKED_ON_OPEN_BYTES)
    records = read_records(path)
    samples = samples_of(path)
    cells, cell_findings = _cells(path, records, most_chunks if requests else None)
    end_ns = _last_instant(samples, cells)
    launches = tuple(
        _launch(path, run, launch, end_ns) if logs else (launch, None)
        for launch in records.launches
    )
    return msgspec.structs.replace(
        run,
        launches=tuple(launch for launch, _ in launches),
        cells=cells,
        samples=samples,
        traces=tuple(_absolute(path, trace) for trace in records.traces),
        findings=(
            *records.findings,
            *(finding for _, finding in launches if finding is not None),
            *cell_findings,
            *_cut(RECORDS, records.tail, None),
            *(() if manifest is not None else (_NOT_CLOSED,)),
        ),
        complete=manifest is not None and manifest.complete,
    )


def read_records(path: Path) -> Records:
    """Return what the record journal of a run directory holds."""
    journal = path / RECORDS
    launches: dict[str, Launch] = {}
    cells: dict[str, Cell] = {}
    findings: list[Finding] = []
    traces: dict[str, TraceRef] = {}
    if not journal.exists():
        return Records((), (), (), (), None)
    file = JournalFile(journal)
    decoder = msgspec.msgpack.Decoder(Entry)
    for body in file.payloads():
        try:
            entry = decoder.decode(body)
        except msgspec.DecodeError as error:
            raise damaged(journal, str(error)) from error
        if entry.launch is not None:
            launches[entry.launch.name] = entry.launch
        if entry.cell is not None:
            cells[entry.cell.name] = entry.cell
        if entry.finding is not None:
            findings.append(entry.finding)
        if entry.trace is not None:
            traces[entry.trace.path] = entry.trace
    tail = file.tail()
    return Records(
        tuple(launches.values()),
        tuple(cells.values()),
        tuple(findings),
        tuple(traces.values()),
        tail if tail.n_bytes else None,
    )


def _cells(
    path: Path, records: Records, most_chunks: int | None
) -> tuple[tuple[Cell, ...], list[Finding]]:
    """Return the cells, with their requests where ``most_chunks`` is given."""
    cells: list[Cell] = []
    findings: list[Finding] = []
    left = most_chunks or 0
    for bare in records.cells:
        folder = path / CELLS / dir_name(bare.name)
        rows, chunks = ((), None) if most_chunks is None else _rows(folder, left)
        left -= 0 if chunks is not None else sum(r.n_chunks for r in rows)
        cells.append(
            msgspec.structs.replace(
                bare,
                requests=rows,
                chunks=chunks,
                metrics_before=_parsed(bare.metrics_before, folder / METRICS_BEFORE),
                metrics_after=_parsed(bare.metrics_after, folder / METRICS_AFTER),
            )
        )
        for name, tail in tails_of(folder).items():
            findings.extend(_cut(name, tail, bare.name))
    known = {cell.name for cell in cells}
    for folder in sorted((path / CELLS).glob("*")):
        name = plain_name(folder.name)
        if name in known:
            continue
        rows, chunks = _rows(folder, left)
        left -= 0 if chunks is not None else sum(r.n_chunks for r in rows)
        if rows:
            cell, finding = stray_cell(name, rows, records.launches)
            cells.append(msgspec.structs.replace(cell, chunks=chunks))
            findings.append(finding)
    return tuple(cells), findings


def _rows(
    folder: Path, most_chunks: int
) -> tuple[tuple[Request, ...], KeptChunks | None]:
    """Return a cell's requests, and what has their chunk times where they are more."""
    chunks = KeptChunks(folder)
    if chunks.n <= most_chunks:
        return tuple(requests_of(folder)), None
    return tuple(requests_of(folder, chunks=False)), chunks


def _parsed(snapshot: MetricsSnapshot | None, body: Path) -> MetricsSnapshot | None:
    """Return the snapshot with the values of its body, where that is kept."""
    if snapshot is None or not body.exists():
        return snapshot
    text = body.read_text("utf-8", "replace")
    return msgspec.structs.replace(snapshot, values=parse_metrics(text))


def _cut(name: str, tail: Tail | None, cell: str | None) -> list[Finding]:
    if tail is None:
        return []
    what = "is damaged" if tail.damaged else "was cut by a kill"
    return [
        Finding(
            code="journal-cut",
            severity="warning" if tail.damaged else "info",
            message=f"{name} {what} after {tail.n_frames} records;"
            f" {tail.n_bytes} bytes behind them can not be read.",
            hint="Check the disk." if tail.damaged else "",
            cell=cell,
        )
    ]


def _launch(
    path: Path, run: Run, launch: Launch, end_ns: int | None
) -> tuple[Launch, Finding | None]:
    """Return a launch with its log parsed and placed."""
    file = path / LAUNCHES / dir_name(launch.name) / SERVER_LOG
    if not file.exists():
        return launch, None
    log = parse_log(_pieces(file), run.engine if run.engine in _PARSERS else None)
    offset_ns = launch.log_offset_ns
    if offset_ns is None:
        offset_ns = _offset(log, run.timeline, launch, end_ns)
    finding = None
    if offset_ns is not None:
        log = placed(log, offset_ns)
    elif stamps_of(log):
        finding = unplaced(launch.name)
    relative = file.relative_to(path).as_posix()
    return msgspec.structs.replace(launch, log=log, log_path=relative), finding


def _offset(
    log: ServerLog, timeline: Timeline, launch: Launch, end_ns: int | None
) -> int | None:
    """Return what puts the log's clock on the timeline; None where it can not be."""
    start_ns, stop_ns = launch.started_at_ns, launch.stopped_at_ns
    if stop_ns is None and end_ns is not None:
        stop_ns = end_ns + _UNSEEN_NS
    anchor_at_ns, anchor_unix_ns = timeline.anchor_at_ns, timeline.anchor_unix_ns
    if start_ns is None or stop_ns is None:
        return None
    to_unix_ns = 0
    if anchor_at_ns is not None and anchor_unix_ns is not None:
        to_unix_ns = anchor_unix_ns - anchor_at_ns
    elif timeline.kind == "monotonic":
        return None
    said = next((e.at_s for e in log.events if e.kind == "ready"), None)
    found = launch.ready_at_ns
    ready = (said, found + to_unix_ns) if said is not None and found else None
    offset_ns = log_offset_ns(
        stamps_of(log), start_ns + to_unix_ns, stop_ns + to_unix_ns, ready
    )
    return None if offset_ns is None else offset_ns - to_unix_ns


def _last_instant(samples: Samples, cells: tuple[Cell, ...]) -> int | None:
    """Return the last instant that anything in the run knows of."""
    ends = [rows[-1].at_ns for rows in (samples.gpu, samples.host) if rows]
    ends += [request.ended_at_ns for cell in cells for request in cell.requests]
    ends += [snapshot.at_ns for snapshot in samples.metrics[-1:]]
    return max(ends, default=None)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _absolute(path: Path, trace: TraceRef) -> TraceRef:
    return msgspec.structs.replace(trace, path=str((path / trace.path).resolve()))
