"""Accelerators by name: memory, bandwidth, peaks, links, power, with sources."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

#: Words of a driver's device name that do not tell two devices apart.
NOISE = frozenset(
    [
        "nvidia", "amd", "intel", "google", "geforce", "tesla", "instinct", "gpu",
        "accelerator", "graphics", "oam", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e",
        "gddr6", "gddr7",
    ]
)  # fmt: skip


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator.

    Attributes:
        name: As the table spells it.
        memory_bytes: Decimal bytes.
        bandwidth_bytes_per_s: Of its memory: the data sheet's, or measured.
        bandwidth_source: Where that figure is from.
        link_bytes_per_s: To its peers, one direction; None where not known.
        pcie_bytes_per_s: To the host, one direction; None where not known.
        power_w: Board power; None where not published.
        peaks: Dense operations/s by type: ``bf16``, ``fp8``, ``fp4``, ``int8``.
        sources: Field -> title and date.
    """

    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    bandwidth_source: str
    link_bytes_per_s: float | None
    pcie_bytes_per_s: float | None
    power_w: float | None
    peaks: dict[str, float]
    sources: dict[str, str]

    def with_bandwidth(self, bytes_per_s: float, source: str) -> "Gpu":
        """Return the same device with a measured bandwidth."""
        return msgspec.structs.replace(
            self, bandwidth_bytes_per_s=bytes_per_s, bandwidth_source=source
        )


@cache
def _table() -> dict[str, Any]:
    text = files("stepscope.physics").joinpath("data/hardware.toml").read_text("utf-8")
    return tomllib.loads(text)


def gpu_names() -> tuple[str, ...]:
    """Return the names of all known accelerators."""
    return tuple(_table()["gpu"])


def find_gpu(name: str) -> Gpu | None:
    """Return the accelerator of that name, or None.

    Tolerant of a driver's decoration: ``NVIDIA H200``, ``NVIDIA H100 80GB HBM3``,
    ``NVIDIA A100-SXM4-80GB``. A word that could mean another device (``Laptop``,
    ``MIG 1g.18gb``, ``D``) is not ignored.
    """
    wanted = _words(name)
    for key, entry in _table()["gpu"].items():
        for alias in (key, *entry["names"]):
            if _words(alias) == wanted:
                return _gpu(key, entry)
    return None


def _words(name: str) -> tuple[str, ...]:
    words = re.split(r"[^a-z0-9.]+", name.lower())
    return tuple(sorted(w for w in words if w and w not in NOISE))


def _gpu(key: str, entry: dict[str, Any]) -> Gpu:
    titles = _table()["sources"]
    sources: dict[str, str] = {}

    def figure(name: str) -> float | None:
        pair = entry.get(name)
        if pair is None:
            return None
        sources[name] = _source(titles, pair[1])
        return float(pair[0])

    memory, bandwidth = figure("memory_bytes"), figure("bandwidth_bytes_per_s")
    assert memory is not None
    assert bandwidth is not None
    peaks = {}
    for kind, (value, source) in entry["peak"].items():
        peaks[kind] = float(value)
        sources[f"peak.{kind}"] = _source(titles, source)
    return Gpu(
        name=key,
        memory_bytes=memory,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=f"data sheet: {sources['bandwidth_bytes_per_s']}",
        link_bytes_per_s=figure("link_bytes_per_s"),
        pcie_bytes_per_s=figure("pcie_bytes_per_s"),
        power_w=figure("power_w"),
        peaks=peaks,
        sources=sources,
    )


def _source(titles: dict[str, Any], key: str) -> str:
    entry = titles[key]
    return f"{entry['title']}, {entry['date']}"
