"""The archive as the session writes it: from two threads, under one lock."""

import threading

from stepscope.archive.writer import RunWriter
from stepscope.findings import Finding
from stepscope.run.run import Cell, Launch, TraceRef
from stepscope.session.observer import Observer
from stepscope.session.watch.sampler import Sample


class Book:
    """Writes a run; the archive's writer is not made for several threads.

    Every ``put`` may raise OSError when the disk is full or fails.
    """

    def __init__(self, writer: RunWriter, observer: Observer) -> None:
        self.writer = writer
        self._observer = observer
        self._lock = threading.Lock()

    def put_launch(self, launch: Launch) -> None:
        """Keep a launch; of several with one name the last counts."""
        with self._lock:
            self.writer.put_launch(launch)

    def put_cell(self, cell: Cell) -> None:
        """Keep a cell; of several with one name the last counts."""
        with self._lock:
            self.writer.put_cell(cell)

    def put_finding(self, finding: Finding) -> None:
        """Keep a finding and say it."""
        with self._lock:
            self.writer.put_finding(finding)
        self._observer.note(finding.severity, finding.message)

    def put_trace(self, trace: TraceRef) -> None:
        """Keep a reference to a kernel timeline."""
        with self._lock:
            self.writer.put_trace(trace)

    def put_samples(self, samples: list[Sample]) -> None:
        """Keep samples."""
        with self._lock:
            for sample in samples:
                self.writer.put_sample(sample)

    def put_metrics_text(self, at_ns: int, text: str) -> None:
        """Keep the body of /metrics."""
        with self._lock:
            self.writer.put_metrics_text(at_ns, text)

    def close_cell(self, cell: Cell) -> None:
        """Turn a cell's journals into columns, then keep the cell.

        The conversion touches the cell's folder alone and needs no lock.
        """
        self.writer.close_cell(cell.name)
        self.put_cell(cell)
