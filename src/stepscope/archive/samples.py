"""Samples: one journal a start while they come in, one Parquet file a kind afterwards.

A segment is what one start of the writer sampled. For each kind of a segment the
Parquet file is read where it is in place, the journal where it is not.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.archive.atomic import sync_dir
from stepscope.archive.columns import damaged, read_parquet, write_parquet
from stepscope.archive.journal import JournalFile
from stepscope.archive.layout import SAMPLES, segments
from stepscope.archive.records import (
    SAMPLE_KINDS,
    MetricsEntry,
    Sample,
    SampleEntry,
)
from stepscope.parse.prometheus import MetricsReader
from stepscope.run.samples import (
    GpuSample,
    HostSample,
    MetricsSnapshot,
    ProcessSample,
    Samples,
)

_ROWS_PER_GROUP = 1 << 16

AnySample = TypeVar("AnySample", bound=GpuSample | HostSample | ProcessSample)


def journal_path(run_dir: Path, segment: int) -> Path:
    """Return where a segment's samples are journalled."""
    return run_dir / SAMPLES / f"samples-{segment}.journal"


def metrics_path(run_dir: Path, segment: int) -> Path:
    """Return where a segment's /metrics bodies are kept, for good."""
    return run_dir / SAMPLES / f"metrics-{segment}.frames"


def _parquet_path(run_dir: Path, kind: str, segment: int) -> Path:
    return run_dir / SAMPLES / f"{kind}-{segment}.parquet"


def close_samples(run_dir: Path) -> None:
    """Turn every segment's journal into Parquet files, then remove it."""
    for segment in segments(run_dir):
        journal = journal_path(run_dir, segment)
        if not journal.exists():
            continue
        for kind, record in SAMPLE_KINDS.items():
            target = _parquet_path(run_dir, kind, segment)
            if not target.exists():
                write_parquet(target, record, _batches(_journalled(journal, record)))
        journal.unlink()
        sync_dir(journal.parent)


def _batches(rows: Iterator[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _ROWS_PER_GROUP:
            yield batch
            batch = []
    if batch:
        yield batch


def _journalled(path: Path, kind: type[AnySample]) -> Iterator[AnySample]:
    decoder = msgspec.msgpack.Decoder(SampleEntry)
    for body in JournalFile(path).payloads():
        try:
            entry = decoder.decode(body)
        except msgspec.DecodeError as error:
            raise damaged(path, str(error)) from error
        for sample in (entry.gpu, entry.host, entry.process):
            if isinstance(sample, kind):
                yield sample


def samples_of(run_dir: Path) -> Samples:
    """Return everything sampled, each kind ascending in time."""
    return Samples(
        gpu=_all(run_dir, "gpu", GpuSample),
        host=_all(run_dir, "host", HostSample),
        process=_all(run_dir, "process", ProcessSample),
        metrics=tuple(sorted(metrics_of(run_dir), key=lambda snapshot: snapshot.at_ns)),
    )


def _all(run_dir: Path, name: str, kind: type[AnySample]) -> tuple[AnySample, ...]:
    rows: list[AnySample] = []
    for segment in segments(run_dir):
        parquet = _parquet_path(run_dir, name, segment)
        journal = journal_path(run_dir, segment)
        if parquet.exists():
            rows.extend(read_parquet(parquet, kind))
        elif journal.exists():
            rows.extend(_journalled(journal, kind))
    rows.sort(key=lambda sample: sample.at_ns)
    return tuple(rows)


def metrics_of(run_dir: Path) -> Iterator[MetricsSnapshot]:
    """Yield the sampled /metrics, parsed; labels are shared between snapshots."""
    reader = MetricsReader()
    decoder = msgspec.msgpack.Decoder(MetricsEntry)
    for segment in segments(run_dir):
        path = metrics_path(run_dir, segment)
        if not path.exists():
            continue
        for body in JournalFile(path).payloads():
            try:
                entry = decoder.decode(body)
                text = zlib.decompress(entry.deflated).decode("utf-8", "replace")
            except (msgspec.DecodeError, zlib.error) as error:
                raise damaged(path, str(error)) from error
            yield MetricsSnapshot(at_ns=entry.at_ns, values=reader.read(text))
