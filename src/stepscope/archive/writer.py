"""Writes a run directory while it is measured: append only, readable after a kill.

What a caller has handed over before a kill is there when the run is opened, samples of
the last second excepted.
"""

import zlib
from pathlib import Path

import msgspec

from stepscope.archive.cells import close_requests
from stepscope.archive.journal import Journal, at_path, cut_torn_tail
from stepscope.archive.layout import (
    CELLS,
    LAUNCHES,
    MANIFEST,
    METRICS_AFTER,
    METRICS_BEFORE,
    RECORDS,
    REQUESTS,
    SAMPLES,
    SET_ASIDE,
    TRACES,
    dir_name,
    is_run,
    plain_name,
    segments,
)
from stepscope.archive.manifest import read_manifest, write_manifest
from stepscope.archive.reader import read_records
from stepscope.archive.records import (
    Entry,
    MetricsEntry,
    Sample,
    SampleEntry,
    read_header,
    write_header,
)
from stepscope.archive.samples import close_samples, journal_path, metrics_path
from stepscope.archive.secrets import (
    command_without_secrets,
    environment_without_secrets,
    text_without_secrets,
)
from stepscope.errors import RecipeError
from stepscope.findings import Finding
from stepscope.run.frames import frame
from stepscope.run.run import Cell, Launch, Run, TraceRef
from stepscope.run.samples import GpuSample, HostSample, MetricsSnapshot
from stepscope.units import NS_PER_S

_FLUSH_AFTER_NS = NS_PER_S // 2
_FLUSH_AFTER_BYTES = 1 << 20


class RunWriter:
    """One run directory, open for writing; ``create`` or ``reopen`` makes one.

    Every method may raise OSError with the path in it when the disk is full or fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._given: set[str] = set()
        self._finished = self.finished_cells()
        self._interrupted = _cells_on_disk(path) - self._finished
        folder = path / SAMPLES
        folder.mkdir(exist_ok=True)
        segment = max(segments(path), default=-1) + 1
        self._records = Journal(path / RECORDS)
        self._samples = Journal(journal_path(path, segment))
        self._metrics = Journal(metrics_path(path, segment))
        self._pending = bytearray()
        self._pending_since_ns: int | None = None

    @classmethod
    def create(cls, path: Path, run: Run) -> "RunWriter":
        """Start a run directory at ``path``, which must not exist or be empty.

        Args:
            path: The run directory; parents are made.
            run: The header. Its launches, cells, samples and findings are not written:
                put them one by one. Secrets in the recipe's text are removed.

        Raises:
            RecipeError: ``path`` is a file or holds something.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RecipeError(
                str(path),
                "already holds a run" if is_run(path) else "is not empty",
                "a folder that does not exist yet, or an empty one",
                "Name another folder, or resume the run",
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / LAUNCHES).mkdir()
            (path / CELLS).mkdir()
        except OSError as error:
            raise at_path(error, Path(error.filename or path)) from error
        write_header(path, run)
        return cls(path)

    @classmethod
    def reopen(cls, path: Path) -> "RunWriter":
        """Go on with a run that was closed or killed.

        The manifest goes, since it no longer holds. A cell that is measured again
        finds an empty folder: what it held is moved to ``set-aside``.

        Raises:
            ArchiveError: ``path`` is no run directory, or of a newer format.
        """
        read_header(path)
        read_manifest(path)
        (path / MANIFEST).unlink(missing_ok=True)
        cut_torn_tail(path / RECORDS)
        return cls(path)

    def finished_cells(self) -> set[str]:
        """Return the names of cells that were measured to their end and closed."""
        entries = read_records(self.path)
        return {
            cell.name
            for cell in entries.cells
            if cell.status == "done"
            and (self._folder(CELLS, cell.name) / REQUESTS).exists()
        }

    def launch_dir(self, name: str) -> Path:
        """Return the launch's folder, made; the server writes ``server.log`` there."""
        path = self._folder(LAUNCHES, name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def cell_dir(self, name: str) -> Path:
        """Return the cell's folder, made: for journals, metrics bodies and the probe.

        After ``reopen`` the first call for a name moves away what an interrupted
        measurement left there.
        """
        path = self._folder(CELLS, name)
        if name not in self._given and name in self._interrupted:
            self._set_aside(path)
        self._given.add(name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def trace_dir(self, name: str) -> Path:
        """Return the folder for timelines of a cell or launch, made."""
        path = self._folder(TRACES, name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def put_launch(self, launch: Launch) -> None:
        """Record a launch; of several with one name the last counts.

        Its parsed log is not stored, and the values of secrets are removed.
        """
        url = launch.base_url
        self._put(
            Entry(
                launch=msgspec.structs.replace(
                    launch,
                    log=None,
                    command=command_without_secrets(launch.command),
                    environment=environment_without_secrets(launch.environment),
                    base_url=None if url is None else text_without_secrets(url),
                )
            )
        )

    def put_cell(self, cell: Cell) -> None:
        """Record a cell without its requests; of several with one name the last counts.

        Put it as ``interrupted`` before the first request is sent, and again when it
        has ended. Metrics whose body lies in the cell's folder keep only their instant
        here. After ``reopen`` a finished cell that begins anew (a warm-up) has its old
        requests moved to ``set-aside``.
        """
        folder = self._folder(CELLS, cell.name)
        if cell.status == "interrupted" and cell.name in self._finished:
            self._finished.discard(cell.name)
            self._set_aside(folder / REQUESTS)
        self._put(
            Entry(
                cell=msgspec.structs.replace(
                    cell,
                    requests=(),
                    chunks=None,
                    metrics_before=_bare(cell.metrics_before, folder / METRICS_BEFORE),
                    metrics_after=_bare(cell.metrics_after, folder / METRICS_AFTER),
                )
            )
        )

    def put_finding(self, finding: Finding) -> None:
        """Record a finding."""
        self._put(Entry(finding=finding))

    def put_trace(self, trace: TraceRef) -> None:
        """Record a kernel timeline; its path is relative to the run directory.

        Of several with one path the last counts.
        """
        self._put(Entry(trace=trace))

    def close_cell(self, name: str) -> None:
        """Turn the cell's journals into one Parquet file."""
        folder = self._folder(CELLS, name)
        folder.mkdir(parents=True, exist_ok=True)
        close_requests(folder)

    def put_sample(self, sample: Sample) -> None:
        """Record a sample; it reaches the disk within a second of samples."""
        if isinstance(sample, GpuSample):
            entry = SampleEntry(gpu=sample)
        elif isinstance(sample, HostSample):
            entry = SampleEntry(host=sample)
        else:
            entry = SampleEntry(process=sample)
        self._pending += frame(msgspec.msgpack.encode(entry))
        if self._pending_since_ns is None:
            self._pending_since_ns = sample.at_ns
        waited = sample.at_ns - self._pending_since_ns
        if waited >= _FLUSH_AFTER_NS or len(self._pending) >= _FLUSH_AFTER_BYTES:
            self.flush()

    def put_metrics_text(self, at_ns: int, text: str) -> None:
        """Record the body of /metrics at an instant of the timeline, as it came."""
        entry = MetricsEntry(at_ns, zlib.compress(text.encode(), 6))
        self._metrics.append(frame(msgspec.msgpack.encode(entry)))

    def flush(self) -> None:
        """Hand pending samples to the operating system."""
        if self._pending:
            self._samples.append(bytes(self._pending))
            self._pending.clear()
        self._pending_since_ns = None

    def close(self, complete: bool) -> None:
        """Close all cells, turn samples into Parquet, write the manifest.

        Args:
            complete: False when the run was cut short; ``open_run`` says so then.
        """
        self.flush()
        for journal in (self._records, self._samples, self._metrics):
            journal.close()
        for folder in sorted((self.path / CELLS).iterdir()):
            close_requests(folder)
        close_samples(self.path)
        write_manifest(self.path, complete=complete)

    def _put(self, entry: Entry) -> None:
        self._records.append(frame(msgspec.msgpack.encode(entry)))

    def _folder(self, kind: str, name: str) -> Path:
        return self.path / kind / dir_name(name)

    def _set_aside(self, path: Path) -> None:
        folder = self.path / SET_ASIDE
        folder.mkdir(exist_ok=True)
        name = path.relative_to(self.path / CELLS).as_posix().replace("/", "-")
        number = sum(old.name.startswith(f"{name}.") for old in folder.iterdir())
        path.rename(folder / f"{name}.{number}")


def _cells_on_disk(path: Path) -> set[str]:
    """Return the names of the cells whose folders hold something."""
    return {
        plain_name(folder.name)
        for folder in (path / CELLS).iterdir()
        if any(folder.iterdir())
    }


def _bare(snapshot: MetricsSnapshot | None, body: Path) -> MetricsSnapshot | None:
    if snapshot is None or not body.exists():
        return snapshot
    return msgspec.structs.replace(snapshot, values=())
