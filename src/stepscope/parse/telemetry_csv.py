"""Telemetry tables to samples: our own CSV, and ``nvidia-smi --query-gpu``'s.

Law: a cell that is empty, ``[N/A]``, ``[Not Supported]`` or no number is None, never
0; a row without a stamp, or cut short at the end of the file, is left out and counted.
"""

import csv
import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from stepscope.run.samples import GpuSample, HostSample
from stepscope.units import BYTES_PER_MIB, NS_PER_S

_JIFFY_NS = 10_000_000  # /proc/stat counts hundredths of a second (USER_HZ).
_BITS = re.compile(r"0[xX][0-9a-fA-F]+")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_SMI_STAMP = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?$")

_Reading = Callable[[str], Any]


def _number(text: str) -> float | None:
    """Return the leading number of a cell such as ``578.12 W``; None without one."""
    hit = _NUMBER.match(text)
    return float(hit[0]) if hit else None


def _mib(text: str) -> int | None:
    value = _number(text)
    return None if value is None else round(value * BYTES_PER_MIB)


def _mib_per_s(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value * BYTES_PER_MIB


def _kib(text: str) -> int | None:
    value = _number(text)
    return None if value is None else round(value * 1024)


def _jiffies(text: str) -> int | None:
    value = _number(text)
    return None if value is None else round(value) * _JIFFY_NS


def _bits(text: str) -> int | None:
    if _BITS.fullmatch(text):
        return int(text, 16)
    value = _number(text)
    return None if value is None else int(value)


#: column -> (field of GpuSample, reading). The left side is what files carry.
GPU_COLUMNS: dict[str, tuple[str, _Reading]] = {
    "util": ("util_pct", _number),
    "mem_util": ("mem_util_pct", _number),
    "power_w": ("power_w", _number),
    "power_limit_w": ("power_limit_w", _number),
    "sm_mhz": ("sm_clock_mhz", _number),
    "sm_max_mhz": ("sm_clock_max_mhz", _number),
    "mem_mhz": ("mem_clock_mhz", _number),
    "throttle_reasons": ("throttle_reasons", _bits),
    "mem_used_mib": ("memory_used_bytes", _mib),
    "mem_total_mib": ("memory_total_bytes", _mib),
    "temp": ("temperature_c", _number),
    "gpm_sm": ("sm_active_pct", _number),
    "gpm_occ": ("sm_occupancy_pct", _number),
    "gpm_tensor": ("tensor_pct", _number),
    "gpm_dram": ("dram_bw_pct", _number),
    "gpm_pcie_rx": ("pcie_rx_bytes_per_s", _mib_per_s),
    "gpm_pcie_tx": ("pcie_tx_bytes_per_s", _mib_per_s),
    "gpm_nvlink_rx": ("nvlink_rx_bytes_per_s", _mib_per_s),
    "gpm_nvlink_tx": ("nvlink_tx_bytes_per_s", _mib_per_s),
    "utilization.gpu": ("util_pct", _number),
    "utilization.memory": ("mem_util_pct", _number),
    "power.draw": ("power_w", _number),
    "power.draw.average": ("power_w", _number),
    "power.limit": ("power_limit_w", _number),
    "enforced.power.limit": ("power_limit_w", _number),
    "clocks.sm": ("sm_clock_mhz", _number),
    "clocks.current.sm": ("sm_clock_mhz", _number),
    "clocks.max.sm": ("sm_clock_max_mhz", _number),
    "clocks.mem": ("mem_clock_mhz", _number),
    "clocks.current.memory": ("mem_clock_mhz", _number),
    "clocks_throttle_reasons.active": ("throttle_reasons", _bits),
    "clocks_event_reasons.active": ("throttle_reasons", _bits),
    "memory.used": ("memory_used_bytes", _mib),
    "memory.total": ("memory_total_bytes", _mib),
    "temperature.gpu": ("temperature_c", _number),
}

#: column -> (field of HostSample, reading).
HOST_COLUMNS: dict[str, tuple[str, _Reading]] = {
    "host_used_kib": ("memory_used_bytes", _kib),
    "host_total_kib": ("memory_total_bytes", _kib),
    "cpu_busy": ("cpu_busy_ns", _jiffies),
    "cpu_total": ("cpu_total_ns", _jiffies),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryTable:
    """What a table holds.

    Attributes:
        gpu: Samples in the order of the rows.
        host: One sample an instant, where the table has columns of the host.
        clock: ``unix``: instants are nanoseconds since the Unix epoch; ``local``: the
            same, read as if the unknown zone of the file were UTC.
        ignored_columns: Columns that mean nothing here.
        n_bad_rows: Rows that could not be read.
    """

    gpu: tuple[GpuSample, ...]
    host: tuple[HostSample, ...]
    clock: str
    ignored_columns: tuple[str, ...]
    n_bad_rows: int


def parse_telemetry(text: str) -> TelemetryTable:
    """Read a telemetry table with a header line.

    Args:
        text: CSV with a column ``t`` (Unix seconds) and our names, or the output of
            ``nvidia-smi --query-gpu=timestamp,index,... --format=csv``, with units
            (``55 %``) or without.

    Returns:
        The samples. A table without the GPU's number is read as GPU 0.

    Raises:
        ValueError: The first line is no header with a stamp column; the text says so.
    """
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    header = [_column(name) for name in next(rows, [])]
    stamp = next((name for name in ("t", "timestamp") if name in header), None)
    if stamp is None:
        raise ValueError(
            "its header has no stamp: the columns are "
            + (", ".join(header) if any(header) else "none")
        )
    return _read(header, stamp, rows, ends_whole=text.endswith("\n"))


def _read(
    header: list[str], stamp: str, rows: Any, *, ends_whole: bool
) -> TelemetryTable:
    gpu: list[GpuSample] = []
    host: list[HostSample] = []
    n_bad = 0
    read_stamp = _unix_ns if stamp == "t" else _smi_ns
    records = [row for row in rows if row]
    if records and not ends_whole and len(records[-1]) == len(header):
        # Without a line end the last cell may have lost digits.
        records.pop()
        n_bad += 1
    for row in records:
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        at_ns = read_stamp(cells.get(stamp, ""))
        if at_ns is None or len(row) != len(header):
            n_bad += 1
            continue
        gpu.append(_gpu_sample(at_ns, cells))
        if not host or host[-1].at_ns != at_ns:
            seen = _fields(cells, HOST_COLUMNS)
            if seen:
                host.append(HostSample(at_ns=at_ns, **seen))
    known = {"t", "timestamp", "gpu", "index", *GPU_COLUMNS, *HOST_COLUMNS}
    return TelemetryTable(
        gpu=tuple(gpu),
        host=tuple(host),
        clock="unix" if stamp == "t" else "local",
        ignored_columns=tuple(name for name in header if name not in known),
        n_bad_rows=n_bad,
    )


def _column(name: str) -> str:
    """Return a column's name without its unit, such as ``power.draw [W]``."""
    return name.split("[", maxsplit=1)[0].strip().lower()


def _gpu_sample(at_ns: int, cells: dict[str, str]) -> GpuSample:
    number = _number(cells.get("gpu", cells.get("index", "")))
    return GpuSample(
        at_ns=at_ns,
        gpu=0 if number is None else int(number),
        **_fields(cells, GPU_COLUMNS),
    )


def _fields(
    cells: dict[str, str], columns: dict[str, tuple[str, _Reading]]
) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, text in cells.items():
        field, read = columns.get(name, ("", _number))
        if field and (value := read(text)) is not None:
            seen[field] = value
    return seen


def _unix_ns(text: str) -> int | None:
    """Read Unix seconds without passing through a float, which would lose 0.2 us."""
    try:
        return int(Decimal(text) * NS_PER_S)
    except (InvalidOperation, ValueError, OverflowError):
        return None


def _smi_ns(text: str) -> int | None:
    hit = _SMI_STAMP.match(text)
    if hit is None:
        return _unix_ns(text)
    year, month, day, hour, minute, second = (int(hit[n]) for n in range(1, 7))
    try:
        whole = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None
    fraction = (hit[7] or "0").ljust(9, "0")
    return round(whole.timestamp()) * NS_PER_S + int(fraction)
