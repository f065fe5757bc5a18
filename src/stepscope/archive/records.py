"""What lies in a run directory besides columns: the header and the record journal."""

from pathlib import Path

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.archive.layout import FORMAT, HEADER, MODEL_CONFIG, RECIPE
from stepscope.archive.secrets import text_without_secrets
from stepscope.errors import ArchiveError
from stepscope.findings import Finding
from stepscope.run.run import Cell, Launch, Run, TraceRef
from stepscope.run.samples import GpuSample, HostSample, ProcessSample, Samples

Sample = GpuSample | HostSample | ProcessSample


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``run.json``: the run without what has files of its own."""

    format: int
    run: Run


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One frame of ``records.journal``; exactly one field is set."""

    launch: Launch | None = None
    cell: Cell | None = None
    finding: Finding | None = None
    trace: TraceRef | None = None


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One frame of ``samples-N.journal``; exactly one field is set."""

    gpu: GpuSample | None = None
    host: HostSample | None = None
    process: ProcessSample | None = None


class MetricsEntry(msgspec.Struct, frozen=True, array_like=True):
    """One frame of ``metrics-N.frames``: /metrics as it came, deflated."""

    at_ns: int
    deflated: bytes


#: kind -> record, in the order of the files ``<kind>-N.parquet``.
SAMPLE_KINDS: dict[str, type[Sample]] = {
    "gpu": GpuSample,
    "host": HostSample,
    "process": ProcessSample,
}


def write_header(run_dir: Path, run: Run) -> None:
    """Write ``run.json``, the recipe and the model's configuration."""
    if run.recipe_text is not None:
        text = text_without_secrets(run.recipe_text)
        write_bytes(run_dir / RECIPE, text.encode())
    if run.model_config is not None:
        write_bytes(run_dir / MODEL_CONFIG, run.model_config.encode())
    bare = msgspec.structs.replace(
        run,
        recipe_text=None,
        model_config=None,
        launches=(),
        cells=(),
        samples=Samples(),
        findings=(),
        traces=(),
        step_budgets=(),
        complete=False,
    )
    header = msgspec.json.encode(Header(format=FORMAT, run=bare))
    write_bytes(run_dir / HEADER, msgspec.json.format(header, indent=1))


def read_header(run_dir: Path) -> Run:
    """Return the run of ``run.json`` with its recipe and model configuration.

    Raises:
        ArchiveError: It is missing, damaged, or of a newer format.
    """
    path = run_dir / HEADER
    try:
        data = path.read_bytes()
        number = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("format")
        found = msgspec.json.decode(number or b"null", type=int)
    except FileNotFoundError as error:
        raise ArchiveError(
            str(run_dir), "is no run directory", f"a folder with {HEADER}"
        ) from error
    except msgspec.DecodeError as error:
        raise ArchiveError(
            str(path), f"is damaged ({error})", "", "Restore it from a copy"
        ) from error
    if found > FORMAT:
        raise ArchiveError(
            str(path),
            f"has format {found}",
            f"this stepscope reads up to format {FORMAT}",
            "Use a newer stepscope",
        )
    try:
        run = msgspec.json.decode(data, type=Header).run
    except msgspec.DecodeError as error:
        raise ArchiveError(
            str(path),
            f"does not fit format {found} ({error})",
            "",
            "Use the version of stepscope that wrote it, or restore it from a copy",
        ) from error
    return msgspec.structs.replace(
        run,
        recipe_text=_text(run_dir / RECIPE),
        model_config=_text(run_dir / MODEL_CONFIG),
    )


def _text(path: Path) -> str | None:
    return path.read_text("utf-8", "replace") if path.is_file() else None
