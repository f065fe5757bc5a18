"""Foreign results to a run directory, with verbatim copies of what was read."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepscope.archive.layout import (
    FOREIGN,
    METRICS_AFTER,
    METRICS_BEFORE,
    SERVER_LOG,
    dir_name,
    is_run,
)
from stepscope.archive.logclock import NOT_PLACED
from stepscope.archive.records import Sample
from stepscope.archive.secrets import text_without_secrets
from stepscope.archive.writer import RunWriter
from stepscope.errors import RecipeError
from stepscope.importers.files import pieces
from stepscope.importers.foreign import Foreign
from stepscope.importers.load import read_foreign
from stepscope.run.frames import frame
from stepscope.run.run import Run

#: What every file system takes.
_MOST_NAME_BYTES = 255
#: Small files of text in which someone may have written a secret down.
_SCREENED = frozenset({".toml", "cmd.json"})


def import_to(path: Path | Sequence[Path], out: Path) -> Path:
    """Write foreign results as a run directory.

    Args:
        path: What ``load_foreign`` accepts.
        out: The run directory; it must not exist, or be empty.

    Returns:
        ``out``.

    Raises:
        RecipeError: ``out`` holds something, or what ``load_foreign`` raises.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RecipeError(
            str(out),
            "already holds a run" if is_run(out) else "is not empty",
            "a folder that does not exist yet",
            "Name another with --out",
        )
    foreign = read_foreign(path)
    _check_names(foreign.run)
    was_there = out.exists()
    try:
        _write(foreign, out)
    except BaseException:
        # Half of an import opens as a run that was cut short, and it was none.
        shutil.rmtree(out, ignore_errors=True)
        if was_there:
            out.mkdir(exist_ok=True)
        raise
    return out


def _check_names(run: Run) -> None:
    """Refuse names that no file system takes for a folder."""
    for kind, names in (
        ("cell", [cell.name for cell in run.cells]),
        ("launch", [launch.name for launch in run.launches]),
    ):
        for name in names:
            n_bytes = len(os.fsencode(dir_name(name)))
            if n_bytes > _MOST_NAME_BYTES:
                raise RecipeError(
                    f"{kind} {name[:40]}...",
                    f"its name takes {n_bytes} bytes as a folder's",
                    f"expected at most {_MOST_NAME_BYTES}",
                    "Give it a shorter name or configuration",
                )


def _write(foreign: Foreign, out: Path) -> None:
    run = foreign.run
    writer = RunWriter.create(out, run)
    copies = _copy(foreign, out)
    for launch in run.launches:
        folder = writer.launch_dir(launch.name)
        if launch.name in foreign.logs:
            _unpack(foreign.logs[launch.name], folder / SERVER_LOG)
        writer.put_launch(launch)
    _put_cells(writer, foreign, copies)
    samples: tuple[Sample, ...] = (
        *run.samples.gpu,
        *run.samples.host,
        *run.samples.process,
    )
    for sample in samples:
        writer.put_sample(sample)
    for trace in run.traces:
        copy = copies.get(Path(trace.path).resolve(), trace.path)
        writer.put_trace(msgspec.structs.replace(trace, path=copy))
    for finding in run.findings:
        if finding.code != NOT_PLACED:  # Found anew whenever the run is opened.
            writer.put_finding(finding)
    writer.close(complete=True)


def _put_cells(writer: RunWriter, foreign: Foreign, copies: dict[Path, str]) -> None:
    names = {"before": METRICS_BEFORE, "after": METRICS_AFTER}
    for cell in foreign.run.cells:
        folder = writer.cell_dir(cell.name)
        for side, name in names.items():
            body = foreign.bodies.get((cell.name, side))
            if body is not None:
                _unpack(body, folder / name)
        if cell.requests:
            with (folder / "requests-0.journal").open("wb") as journal:
                for request in cell.requests:
                    journal.write(frame(msgspec.msgpack.encode(request)))
        raw = Path(cell.raw_path).resolve() if cell.raw_path is not None else None
        raw_path = cell.raw_path if raw is None else copies.get(raw, cell.raw_path)
        writer.put_cell(msgspec.structs.replace(cell, raw_path=raw_path))
        writer.close_cell(cell.name)


def _copy(foreign: Foreign, out: Path) -> dict[Path, str]:
    """Copy every file that was read; return source -> path in the run directory.

    Files keep their place below the folder they were imported from; one that lies
    outside it goes beside them.
    """
    copies: dict[Path, str] = {}
    sources = [path.resolve() for path in foreign.files]
    shared = Path(os.path.commonpath([path.parent for path in sources]))
    for source in sources:
        relative = source.relative_to(shared)
        target = out / FOREIGN / Path(*map(dir_name, relative.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name in _SCREENED or source.suffix in _SCREENED:
            text = source.read_text("utf-8", "surrogateescape")
            target.write_text(text_without_secrets(text), "utf-8", "surrogateescape")
        else:
            with source.open("rb") as stream, target.open("wb") as sink:
                while piece := stream.read(1 << 22):
                    sink.write(piece)
        copies[source] = target.relative_to(out).as_posix()
    return copies


def _unpack(source: Path, target: Path) -> None:
    with target.open("wb") as sink:
        for piece in pieces(source):
            sink.write(piece)
