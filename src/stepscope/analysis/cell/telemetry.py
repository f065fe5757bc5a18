"""The machine during a cell, clipped to the telemetry window."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.analysis.cell.processes import (
    ProcessCpu,
    host_cpu_pct,
    inside,
    process_cpu,
)
from stepscope.analysis.cell.taking_part import NOTHING, Asked, Part, taking_part
from stepscope.analysis.cell.window import Window
from stepscope.analysis.records import CellTelemetry
from stepscope.run.samples import GpuSample, HostSample, Samples
from stepscope.units import gib, seconds

#: A mean over fewer samples of one GPU is flagged.
MIN_SAMPLES = 8
#: Positions inside the clock's slack at which a mean is taken.
_N_POSITIONS = 9

#: NVML clock event reasons (nvml.h, nvmlClocksEventReason*).
THROTTLE_REASONS = {
    0x1: "gpu-idle",
    0x2: "applications-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}


@dataclass(frozen=True)
class GpuColumns:
    """Samples of one GPU as columns; NaN stands for None inside this module only."""

    at: npt.NDArray[np.int64]
    samples: tuple[GpuSample, ...]

    def values(self, name: str) -> npt.NDArray[np.float64]:
        """Return one field, NaN where the driver did not say."""
        raw = (getattr(sample, name) for sample in self.samples)
        return np.array([np.nan if v is None else v for v in raw], np.float64)


@dataclass(frozen=True)
class Machine:
    """All samples of a run, sorted once and read by every cell.

    ``steps_back``: where the samples' clock went backwards: instant, and by how much,
    nanoseconds. ``n_gpus``: how many the run says it uses.
    """

    gpus: tuple[GpuColumns, ...]
    host: tuple[HostSample, ...]
    samples: Samples
    steps_back: tuple[tuple[int, int], ...] = ()
    n_gpus: int | None = None

    @classmethod
    def of(cls, samples: Samples, n_gpus: int | None = None) -> "Machine":
        """Sort a run's samples by GPU."""
        by_gpu: dict[int, list[GpuSample]] = {}
        for sample in samples.gpu:
            by_gpu.setdefault(sample.gpu, []).append(sample)
        gpus: list[GpuColumns] = []
        back: list[tuple[int, int]] = []
        for key in sorted(by_gpu):
            rows = by_gpu[key]
            at = np.array([s.at_ns for s in rows], np.int64)
            back += [
                (int(at[i + 1]), int(at[i] - at[i + 1]))
                for i in np.flatnonzero(np.diff(at) < 0).tolist()
            ]
            order = np.argsort(at, kind="stable")
            gpus.append(GpuColumns(at=at[order], samples=tuple(rows[i] for i in order)))
        return cls(
            gpus=tuple(gpus),
            host=samples.host,
            samples=samples,
            steps_back=tuple(back),
            n_gpus=n_gpus,
        )


def cell_telemetry(
    machine: Machine,
    window: Window,
    command: Window | None,
    asked: Asked = NOTHING,
) -> CellTelemetry | None:
    """Return means over the telemetry window; None where nothing was sampled.

    Means weigh samples equally and GPUs equally, of the GPUs that take part; none where
    nothing tells which these are. With clock slack the means are taken at the latest
    position, and ``*_range`` spans nine positions across the slack.

    Args:
        machine: The run's samples.
        window: The telemetry window, with its slack.
        command: From the start of the measuring command to its end: what a reader of
            unclipped samples would have averaged.
        asked: What the server asked for: which GPUs take part.
    """
    if not (machine.gpus or machine.host or machine.samples.process):
        return None
    gpus = tuple(machine.gpus[i] for i in part_of(machine, window, asked).own)
    chosen = [_clip(gpu, window) for gpu in gpus]
    cpu = process_cpu(machine.samples.process, window)
    return CellTelemetry(
        n_samples_total=_n_total(machine, command),
        n_samples_in_window=n_inside(machine, window),
        window_s=seconds(window.length_ns),
        util_pct=_mean(chosen, "util_pct"),
        util_pct_range=_range(gpus, window, "util_pct"),
        util_spread_points=_spread(chosen, "util_pct"),
        power_w=_mean(chosen, "power_w"),
        power_w_range=_range(gpus, window, "power_w"),
        power_gpus_w=_least_and_most(chosen, "power_w"),
        power_limit_w=_mean(chosen, "power_limit_w"),
        sm_clock_mhz=_mean(chosen, "sm_clock_mhz"),
        sm_clock_max_mhz=_mean(chosen, "sm_clock_max_mhz"),
        sm_clock_drop_pct_max=_clock_drop(chosen),
        throttle_reasons=_throttle(chosen),
        sm_active_pct=_mean(chosen, "sm_active_pct"),
        dram_bw_pct=_mean(chosen, "dram_bw_pct"),
        dram_bw_pct_median=_most(chosen, "dram_bw_pct", np.nanmedian),
        tensor_pct=_mean(chosen, "tensor_pct"),
        memory_used_gib=_memory_gib(chosen),
        host_memory_peak_gib=_host_peak_gib(machine.host, window),
        host_cpu_pct=host_cpu_pct(machine.host, window),
        **_cpu_fields(cpu),
    )


def n_inside(machine: Machine, window: Window) -> int:
    """Return how many samples of one GPU lie in the window: the most of any."""
    return max((_clip(gpu, window).at.size for gpu in machine.gpus), default=0)


def coverage_gap(machine: Machine, window: Window) -> str | None:
    """Return how samples fail to cover the window; None where they do.

    An edge may lie two sampling intervals outside, and no hole inside may be longer
    than five.
    """
    for number, gpu in enumerate(machine.gpus):
        if gpu.at.size < 2:
            return f"GPU {number} was sampled {gpu.at.size} time(s) in the whole run"
        step = float(np.median(np.diff(gpu.at)))
        early = gpu.at[0] - (window.from_ns - window.slack_ns)
        late = window.to_ns - gpu.at[-1]
        if early > 2 * step or late > 2 * step:
            missing = seconds(max(early, 0) + max(late, 0))
            return f"samples of GPU {number} miss {missing:.1f} s of the window"
        inside = _clip(gpu, window).at
        edges = np.concatenate(([window.from_ns], inside, [window.to_ns]))
        hole = float(np.diff(edges).max())
        if hole > 5 * step:
            return f"samples of GPU {number} have a hole of {seconds(hole):.1f} s"
    return None


def _cpu_fields(cpu: ProcessCpu) -> dict[str, dict[str, float]]:
    return {
        "process_cpu_pct": cpu.by_role,
        "busiest_thread_cpu_pct": cpu.busiest_thread,
        "busiest_thread_waited_pct": cpu.busiest_waited,
    }


def _clip(gpu: GpuColumns, window: Window) -> GpuColumns:
    low, high = np.searchsorted(gpu.at, [window.from_ns, window.to_ns + 1])
    return GpuColumns(at=gpu.at[low:high], samples=gpu.samples[low:high])


def part_of(machine: Machine, window: Window, asked: Asked) -> Part:
    """Return which of the sampled GPUs take part in what was measured in a window."""
    held = [_clip(gpu, window).values("memory_used_bytes") for gpu in machine.gpus]
    return taking_part(
        [
            None if np.isnan(values).all() else float(np.nanmax(values))
            for values in held
        ],
        asked,
    )


def _clock_drop(chosen: Sequence[GpuColumns]) -> float | None:
    """Return how far the slowest GPU's mean SM clock is below its maximum, percent."""
    drops = []
    for gpu in chosen:
        now, most = gpu.values("sm_clock_mhz"), gpu.values("sm_clock_max_mhz")
        known = ~np.isnan(now) & (most > 0)
        if known.any():
            drops.append(float(100 * np.mean(1 - now[known] / most[known])))
    return max(drops, default=None)


def _n_total(machine: Machine, command: Window | None) -> int:
    if command is None:
        return max((g.at.size for g in machine.gpus), default=0)
    return max((_clip(g, command).at.size for g in machine.gpus), default=0)


def _gpu_means(chosen: Iterable[GpuColumns], name: str) -> list[float]:
    means = []
    for gpu in chosen:
        values = gpu.values(name)
        if values.size and not np.isnan(values).all():
            means.append(float(np.nanmean(values)))
    return means


def _mean(chosen: Sequence[GpuColumns], name: str) -> float | None:
    means = _gpu_means(chosen, name)
    return float(np.mean(means)) if means else None


def _spread(chosen: Sequence[GpuColumns], name: str) -> float | None:
    means = _gpu_means(chosen, name)
    return max(means) - min(means) if len(means) > 1 else None


def _least_and_most(
    chosen: Sequence[GpuColumns], name: str
) -> tuple[float, float] | None:
    means = _gpu_means(chosen, name)
    return (min(means), max(means)) if len(means) > 1 else None


def _most(
    chosen: Sequence[GpuColumns],
    name: str,
    figure: Callable[[npt.NDArray[np.float64]], np.float64],
) -> float | None:
    """Return a figure of each GPU's samples: that of the GPU where it is largest."""
    columns = [gpu.values(name) for gpu in chosen]
    return max(
        (float(figure(values)) for values in columns if not np.isnan(values).all()),
        default=None,
    )


def _range(
    gpus: Sequence[GpuColumns], window: Window, name: str
) -> tuple[float, float] | None:
    if window.slack_ns <= 0:
        return None
    means = []
    for share in np.linspace(0, 1, _N_POSITIONS):
        moved = window.earlier(round(share * window.slack_ns))
        mean = _mean([_clip(gpu, moved) for gpu in gpus], name)
        if mean is not None:
            means.append(mean)
    return (min(means), max(means)) if means else None


def _throttle(chosen: Sequence[GpuColumns]) -> tuple[str, ...] | None:
    masks = [
        sample.throttle_reasons
        for gpu in chosen
        for sample in gpu.samples
        if sample.throttle_reasons is not None
    ]
    if not masks:
        return None
    union = int(np.bitwise_or.reduce(np.array(masks, np.int64)))
    return tuple(name for bit, name in THROTTLE_REASONS.items() if union & bit)


def _memory_gib(chosen: Sequence[GpuColumns]) -> float | None:
    used = _most(chosen, "memory_used_bytes", np.nanmax)
    return None if used is None else gib(used)


def _host_peak_gib(host: Sequence[HostSample], window: Window) -> float | None:
    used = [
        sample.cgroup_memory_bytes or sample.memory_used_bytes
        for sample in inside(host, window)
    ]
    known = [value for value in used if value is not None]
    return gib(max(known)) if known else None
