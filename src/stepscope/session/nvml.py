"""NVIDIA GPUs through NVML: a sample of each, None for a field that it refuses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pynvml

from stepscope.run.samples import GpuSample

#: GPM metric -> (field, factor). NVML gives percent, and MiB/s for the links.
_GPM: dict[int, tuple[str, float]] = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: ("sm_active_pct", 1.0),
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: ("sm_occupancy_pct", 1.0),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("tensor_pct", 1.0),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: ("dram_bw_pct", 1.0),
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: ("pcie_rx_bytes_per_s", 1048576.0),
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: ("pcie_tx_bytes_per_s", 1048576.0),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: (
        "nvlink_rx_bytes_per_s",
        1048576.0,
    ),
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: (
        "nvlink_tx_bytes_per_s",
        1048576.0,
    ),
}


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process that holds memory of a GPU; ``bytes_held`` None: not told."""

    gpu: int
    pid: int
    bytes_held: int | None


class GpuIdentity(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a GPU is, and whether it offers GPM counters."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    gpm: bool


@dataclass(slots=True)
class _Device:
    handle: Any
    identity: GpuIdentity
    power_limit_w: float | None
    sm_clock_max_mhz: float | None
    before: Any = None
    spare: Any = None


def _ask(call: Callable[[], Any]) -> Any:
    """Return what NVML says, or None where this device or driver does not."""
    try:
        return call()
    except pynvml.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class Gpus:
    """All GPUs of the machine; ``open`` returns None where there is no driver."""

    def __init__(self, devices: list[_Device], driver: str) -> None:
        self._devices = devices
        self.driver = driver

    @classmethod
    def open(cls) -> "Gpus | None":
        """Start NVML, or return None where it can not."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return None
        devices = [_device(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return cls(devices, _text(pynvml.nvmlSystemGetDriverVersion()))

    @property
    def identities(self) -> tuple[GpuIdentity, ...]:
        """What each GPU is."""
        return tuple(d.identity for d in self._devices)

    def sample(self, at_ns: int) -> list[GpuSample]:
        """Return one sample of each GPU, all with the instant ``at_ns``."""
        return [_sample(d, at_ns) for d in self._devices]

    def holders(self) -> list[GpuHolder]:
        """Return the processes that hold GPU memory (compute contexts)."""
        found = []
        for device in self._devices:
            running = _ask(
                partial(pynvml.nvmlDeviceGetComputeRunningProcesses, device.handle)
            )
            found += [
                GpuHolder(
                    gpu=device.identity.index, pid=p.pid, bytes_held=p.usedGpuMemory
                )
                for p in running or ()
            ]
        return found

    def used_bytes(self) -> list[int | None]:
        """Return the memory in use of each GPU."""
        infos = [
            _ask(partial(pynvml.nvmlDeviceGetMemoryInfo, d.handle))
            for d in self._devices
        ]
        return [None if info is None else int(info.used) for info in infos]

    def close(self) -> None:
        """Stop NVML."""
        for device in self._devices:
            for kept in (device.before, device.spare):
                if kept is not None:
                    _ask(partial(pynvml.nvmlGpmSampleFree, kept))
        _ask(pynvml.nvmlShutdown)


def _device(index: int) -> _Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    support = _ask(lambda: pynvml.nvmlGpmQueryDeviceSupport(handle))
    gpm = bool(support is not None and support.isSupportedDevice)
    memory = _ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    limit = _ask(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    top = _ask(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    device = _Device(
        handle=handle,
        identity=GpuIdentity(
            index=index,
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=0 if memory is None else int(memory.total),
            gpm=gpm,
        ),
        power_limit_w=None if limit is None else limit / 1000,
        sm_clock_max_mhz=None if top is None else float(top),
    )
    if gpm:
        device.before = _ask(pynvml.nvmlGpmSampleAlloc)
        device.spare = _ask(pynvml.nvmlGpmSampleAlloc)
        if device.before is not None:
            _ask(lambda: pynvml.nvmlGpmSampleGet(handle, device.before))
    return device


def _sample(device: _Device, at_ns: int) -> GpuSample:
    h = device.handle
    rates = _ask(lambda: pynvml.nvmlDeviceGetUtilizationRates(h))
    power = _ask(lambda: pynvml.nvmlDeviceGetPowerUsage(h))
    memory = _ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(h))
    return GpuSample(
        at_ns=at_ns,
        gpu=device.identity.index,
        util_pct=None if rates is None else float(rates.gpu),
        mem_util_pct=None if rates is None else float(rates.memory),
        power_w=None if power is None else power / 1000,
        power_limit_w=device.power_limit_w,
        sm_clock_mhz=_clock(h, pynvml.NVML_CLOCK_SM),
        sm_clock_max_mhz=device.sm_clock_max_mhz,
        mem_clock_mhz=_clock(h, pynvml.NVML_CLOCK_MEM),
        throttle_reasons=_ask(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(h)),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_c=_temperature(h),
        **_gpm(device),
    )


def _clock(handle: Any, which: int) -> float | None:
    found = _ask(lambda: pynvml.nvmlDeviceGetClockInfo(handle, which))
    return None if found is None else float(found)


def _temperature(handle: Any) -> float | None:
    found = _ask(
        lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    )
    return None if found is None else float(found)


def _gpm(device: _Device) -> dict[str, float]:
    """Return the counters since the sample before, which this one replaces."""
    if device.before is None or device.spare is None:
        return {}
    if _ask(lambda: pynvml.nvmlGpmSampleGet(device.handle, device.spare)) is None:
        return {}
    ask = pynvml.c_nvmlGpmMetricsGet_t()
    ask.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    ask.numMetrics = len(_GPM)
    ask.sample1, ask.sample2 = device.before, device.spare
    for i, metric in enumerate(_GPM):
        ask.metrics[i].metricId = metric
    answer = _ask(lambda: pynvml.nvmlGpmMetricsGet(ask))
    device.before, device.spare = device.spare, device.before
    if answer is None:
        return {}
    found: dict[str, float] = {}
    for i, (field, factor) in enumerate(_GPM.values()):
        metric = ask.metrics[i]
        # NaN: the link does not exist, or nothing was counted between two samples.
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and metric.value == metric.value:
            found[field] = metric.value * factor
    return found
