"""A telemetry file to samples on the Unix timeline."""

from pathlib import Path

import msgspec

from stepscope.findings import Finding
from stepscope.importers.files import damaged, read_text
from stepscope.parse.telemetry_csv import TelemetryTable, parse_telemetry
from stepscope.run.run import Cell
from stepscope.run.samples import Samples
from stepscope.units import NS_PER_S

_STEP_NS = 15 * 60 * NS_PER_S
_EAST, _WEST = 14 * 4, 12 * 4


def read_telemetry(path: Path) -> TelemetryTable:
    """Read a telemetry file.

    Raises:
        ArchiveError: It has no header with a stamp, or the gzip stream is damaged.
    """
    try:
        return parse_telemetry(read_text(path))
    except ValueError as error:
        raise damaged(path, str(error)) from error


def samples_on_unix(
    table: TelemetryTable, cells: tuple[Cell, ...], utc_offset_minutes: int | None
) -> tuple[Samples, list[Finding]]:
    """Return a table's samples with Unix instants.

    Args:
        table: The samples as they were read.
        cells: Those placed on the Unix clock; ``nvidia-smi`` writes local time, and
            its zone is the one for which the samples cover the cells.
        utc_offset_minutes: The zone, where it is known.
    """
    findings = _about(table)
    if table.clock == "unix":
        return Samples(gpu=table.gpu, host=table.host), findings
    shift_ns = (
        _zone_ns(table, cells)
        if utc_offset_minutes is None
        else -utc_offset_minutes * 60 * NS_PER_S
    )
    if shift_ns is None:
        findings.append(
            Finding(
                code="telemetry-window-mismatch",
                severity="warning",
                message="The telemetry's stamps have no zone, and none or several of"
                " the possible ones make it cover the cells. It was left out.",
                hint="Give telemetry.utc_offset_minutes.",
            )
        )
        return Samples(), findings
    gpu = (
        msgspec.structs.replace(sample, at_ns=sample.at_ns + shift_ns)
        for sample in table.gpu
    )
    return Samples(gpu=tuple(sorted(gpu, key=lambda s: s.at_ns))), findings


def _zone_ns(table: TelemetryTable, cells: tuple[Cell, ...]) -> int | None:
    starts = [cell.started_at_ns for cell in cells if cell.started_at_ns is not None]
    ends = [cell.ended_at_ns for cell in cells if cell.ended_at_ns is not None]
    if not table.gpu or not starts or not ends:
        return None
    first = min(sample.at_ns for sample in table.gpu)
    last = max(sample.at_ns for sample in table.gpu)
    fits = [
        step * _STEP_NS
        for step in range(-_EAST, _WEST + 1)
        if first + step * _STEP_NS <= min(starts)
        and last + step * _STEP_NS >= max(ends)
    ]
    return fits[0] if len(fits) == 1 else None


def _about(table: TelemetryTable) -> list[Finding]:
    findings = []
    if table.n_bad_rows:
        findings.append(
            Finding(
                code="telemetry-rows-skipped",
                severity="info",
                message=f"{table.n_bad_rows} rows of the telemetry could not be read.",
            )
        )
    if table.ignored_columns:
        findings.append(
            Finding(
                code="telemetry-columns-ignored",
                severity="info",
                message="Columns of the telemetry that mean nothing here: "
                + ", ".join(table.ignored_columns)
                + ".",
            )
        )
    return findings
