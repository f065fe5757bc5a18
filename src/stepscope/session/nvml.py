"""NVIDIA GPUs through NVML: a sample of each, None for every field that it refuses.

``python -m stepscope.session.nvml`` samples each GPU twice and writes what it saw and
what a sample cost, to check this module on a machine that has GPUs.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pynvml

from stepscope.clock import Clock, SystemClock
from stepscope.run.samples import GpuSample

_MIB = float(1 << 20)
#: (GPM metric, field, factor). NVML gives percent, and MiB/s for the links.
_GPM: tuple[tuple[int, str, float], ...] = (
    (pynvml.NVML_GPM_METRIC_SM_UTIL, "sm_active_pct", 1.0),
    (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "sm_occupancy_pct", 1.0),
    (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "tensor_pct", 1.0),
    (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "dram_bw_pct", 1.0),
    (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "pcie_rx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "pcie_tx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "nvlink_rx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "nvlink_tx_bytes_per_s", _MIB),
)
#: What hardly moves is asked once a second and repeated in between.
_SLOW_NS = 1_000_000_000


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that holds memory of a GPU; ``bytes_held`` None: not told.

    Inside a container NVML may number processes as the host does.
    """

    gpu: int
    pid: int
    bytes_held: int | None


class GpuIdentity(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a GPU is, and whether it offers GPM counters."""

    index: int
    name: str
    uuid: str | None
    memory_bytes: int | None
    gpm: bool


@dataclass(slots=True)
class _Device:
    handle: Any
    identity: GpuIdentity
    slow: dict[str, float | None] = field(default_factory=dict)
    slow_at_ns: int | None = None
    refused: set[str] = field(default_factory=set)
    before: Any = None
    spare: Any = None
    ask: Any = None


def _try(call: Callable[..., Any], *args: object) -> Any:
    """Return what NVML says, or None where this device or driver does not."""
    try:
        return call(*args)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
        return None


def _ask(device: _Device, call: Callable[..., Any], *args: object) -> Any:
    """Do the same, and never again ask what is not supported."""
    key = f"{call.__name__}{args}"
    if key in device.refused:
        return None
    try:
        return call(device.handle, *args)
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NoPermission,
        pynvml.NVMLLibraryMismatchError,
    ):
        device.refused.add(key)
        return None
    except pynvml.NVMLError:
        return None


class Gpus:
    """All GPUs of the machine; ``open`` returns None where there is no driver."""

    def __init__(self, devices: list[_Device], driver: str | None) -> None:
        self._devices = devices
        self.driver = driver

    @classmethod
    def open(cls) -> "Gpus | None":
        """Start NVML, or return None where it can not or sees no GPU."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return None
        count = _try(pynvml.nvmlDeviceGetCount) or 0
        devices = [d for d in map(_device, range(count)) if d is not None]
        if not devices:
            _try(pynvml.nvmlShutdown)
            return None
        driver = _try(pynvml.nvmlSystemGetDriverVersion)
        return cls(devices, None if driver is None else _text(driver))

    @property
    def identities(self) -> tuple[GpuIdentity, ...]:
        """What each GPU is."""
        return tuple(d.identity for d in self._devices)

    def sample(self, at_ns: int) -> list[GpuSample]:
        """Return one sample of each GPU, all with the instant ``at_ns``."""
        return [_sample(d, at_ns) for d in self._devices]

    def holders(self) -> list[GpuHolder]:
        """Return the processes that hold GPU memory (compute contexts)."""
        return [
            GpuHolder(
                gpu=device.identity.index,
                pid=int(process.pid),
                bytes_held=process.usedGpuMemory,
            )
            for device in self._devices
            for process in _ask(device, pynvml.nvmlDeviceGetComputeRunningProcesses)
            or ()
        ]

    def used_bytes(self) -> list[int | None]:
        """Return the memory in use of each GPU, the driver's own share excepted."""
        return [_memory(d)[0] for d in self._devices]

    def close(self) -> None:
        """Stop NVML."""
        for device in self._devices:
            for kept in (device.before, device.spare):
                if kept is not None:
                    _try(pynvml.nvmlGpmSampleFree, kept)
            device.before = device.spare = None
        self._devices = []
        _try(pynvml.nvmlShutdown)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _device(index: int) -> _Device | None:
    handle = _try(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    support = _try(pynvml.nvmlGpmQueryDeviceSupport, handle)
    name, uuid = (
        _try(pynvml.nvmlDeviceGetName, handle),
        _try(pynvml.nvmlDeviceGetUUID, handle),
    )
    memory = _try(pynvml.nvmlDeviceGetMemoryInfo, handle)
    device = _Device(
        handle=handle,
        identity=GpuIdentity(
            index=index,
            name="NVIDIA GPU" if name is None else _text(name),
            uuid=None if uuid is None else _text(uuid),
            memory_bytes=None if memory is None else int(memory.total),
            gpm=bool(support is not None and support.isSupportedDevice),
        ),
    )
    if device.identity.gpm:
        _begin_gpm(device)
    return device


def _sample(device: _Device, at_ns: int) -> GpuSample:
    rates = _ask(device, pynvml.nvmlDeviceGetUtilizationRates)
    used, total = _memory(device)
    if device.slow_at_ns is None or at_ns - device.slow_at_ns >= _SLOW_NS:
        device.slow, device.slow_at_ns = _slow(device), at_ns
    return GpuSample(
        at_ns=at_ns,
        gpu=device.identity.index,
        util_pct=None if rates is None else float(rates.gpu),
        mem_util_pct=None if rates is None else float(rates.memory),
        power_w=_scaled(_ask(device, pynvml.nvmlDeviceGetPowerUsage), 1e-3),
        sm_clock_mhz=_clock(device, pynvml.NVML_CLOCK_SM),
        throttle_reasons=_reasons(device),
        memory_used_bytes=used,
        memory_total_bytes=total,
        **device.slow,
        **_gpm(device),
    )


def _slow(device: _Device) -> dict[str, float | None]:
    limit = _ask(device, pynvml.nvmlDeviceGetEnforcedPowerLimit)
    top = _ask(device, pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
    heat = _ask(device, pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
    return {
        "power_limit_w": _scaled(limit, 1e-3),
        "sm_clock_max_mhz": _scaled(top, 1.0),
        "mem_clock_mhz": _clock(device, pynvml.NVML_CLOCK_MEM),
        "temperature_c": _scaled(heat, 1.0),
    }


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else value * factor


def _clock(device: _Device, which: int) -> float | None:
    return _scaled(_ask(device, pynvml.nvmlDeviceGetClockInfo, which), 1.0)


def _reasons(device: _Device) -> int | None:
    """Return the clock-event mask; drivers before 535 know it by its older name."""
    found = _ask(device, pynvml.nvmlDeviceGetCurrentClocksEventReasons)
    if found is None:
        found = _ask(device, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return None if found is None else int(found)


def _memory(device: _Device) -> tuple[int | None, int | None]:
    """Return used and total bytes; version 2 leaves out what the driver reserves."""
    info = _ask(device, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
    if info is None:
        info = _ask(device, pynvml.nvmlDeviceGetMemoryInfo)
    return (None, None) if info is None else (int(info.used), int(info.total))


def _begin_gpm(device: _Device) -> None:
    """Take the first of the two samples that a counter lies between."""
    device.before = _try(pynvml.nvmlGpmSampleAlloc)
    device.spare = _try(pynvml.nvmlGpmSampleAlloc)
    _try(pynvml.nvmlGpmSampleGet, device.handle, device.before)
    ask = pynvml.c_nvmlGpmMetricsGet_t()
    ask.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    ask.numMetrics = len(_GPM)
    for i, (metric, _, _) in enumerate(_GPM):
        ask.metrics[i].metricId = metric
    device.ask = ask


def _gpm(device: _Device) -> dict[str, float]:
    """Return the counters since the sample before, which this one replaces."""
    if device.before is None or device.spare is None:
        return {}
    if _try(pynvml.nvmlGpmSampleGet, device.handle, device.spare) is None:
        return {}
    ask = device.ask
    ask.sample1, ask.sample2 = device.before, device.spare
    answer = _try(pynvml.nvmlGpmMetricsGet, ask)
    device.before, device.spare = device.spare, device.before
    if answer is None:
        return {}
    return {
        name: ask.metrics[i].value * factor
        for i, (_, name, factor) in enumerate(_GPM)
        # Not finite: no such link, or nothing was counted between the two samples.
        if ask.metrics[i].nvmlReturn == pynvml.NVML_SUCCESS
        and math.isfinite(ask.metrics[i].value)
    }


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one look at the GPUs showed; ``sample_ms`` is the cost of all of them."""

    driver: str | None
    gpus: tuple[GpuIdentity, ...]
    samples: tuple[GpuSample, ...]
    holders: tuple[GpuHolder, ...]
    sample_ms: float


def check(gpus: Gpus, clock: Clock) -> Check:
    """Sample twice, 0.2 s apart, so that the GPM counters have a span to count over."""
    gpus.sample(clock.now_ns())
    clock.sleep_until(clock.now_ns() + 200_000_000)
    before = clock.now_ns()
    samples = gpus.sample(before)
    took = clock.now_ns() - before
    return Check(
        driver=gpus.driver,
        gpus=gpus.identities,
        samples=tuple(samples),
        holders=tuple(gpus.holders()),
        sample_ms=took / 1e6,
    )


def main() -> int:
    """Write a check of the GPUs to stdout as JSON; return 3 where there is none."""
    gpus = Gpus.open()
    if gpus is None:
        sys.stdout.write('{"driver": null}\n')
        return 3
    found = msgspec.to_builtins(check(gpus, SystemClock()))
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    gpus.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
