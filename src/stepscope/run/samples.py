"""What was sampled beside the requests: GPUs, host, processes, the engine's metrics."""

import msgspec


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU at one instant. None: the driver did not say.

    ``util_pct`` says only that a kernel was resident during the driver's last
    sampling period; it says nothing about how much of the GPU worked.
    ``throttle_reasons`` is NVML's clock-event bit mask. The ``*_active_pct``,
    ``tensor_pct`` and ``dram_bw_pct`` counters are GPM means since the sample before.
    """

    at_ns: int
    gpu: int
    util_pct: float | None = None
    mem_util_pct: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    mem_clock_mhz: float | None = None
    throttle_reasons: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_pct: float | None = None
    dram_bw_pct: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None


class HostSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host at one instant. CPU figures are cumulative nanoseconds of all cores."""

    at_ns: int
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    cgroup_memory_bytes: int | None = None
    cgroup_memory_limit_bytes: int | None = None
    cpu_busy_ns: int | None = None
    cpu_total_ns: int | None = None
    load_1min: float | None = None


class ProcessSample(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One process at one instant.

    Attributes:
        at_ns: Instant.
        pid: Process id.
        role: ``api-server``, ``engine-core``, ``worker``, ``coordinator``,
            ``detokenizer``, ``server`` (an engine in one process), ``client`` or
            ``other``.
        name: As the operating system names it.
        cpu_ns: CPU time used since its start, user and system, all threads.
        busiest_thread_cpu_ns: The same for the thread that has used most.
        busiest_thread_id: Which thread that is.
        busiest_thread_waited_ns: Time since its start in which that thread was ready
            to run and had no core, by the kernel's scheduler statistics.
        rss_bytes: Resident memory.
        n_threads: Threads.
    """

    at_ns: int
    pid: int
    role: str
    name: str
    cpu_ns: int
    busiest_thread_cpu_ns: int | None = None
    busiest_thread_id: int | None = None
    busiest_thread_waited_ns: int | None = None
    rss_bytes: int | None = None
    n_threads: int | None = None


class MetricValue(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One line of Prometheus text: a histogram is its ``_bucket`` lines."""

    name: str
    labels: dict[str, str]
    value: float


class MetricsSnapshot(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The engine's /metrics at one instant."""

    at_ns: int
    values: tuple[MetricValue, ...]


class Samples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything sampled during a run, each tuple ascending in time."""

    gpu: tuple[GpuSample, ...] = ()
    host: tuple[HostSample, ...] = ()
    process: tuple[ProcessSample, ...] = ()
    metrics: tuple[MetricsSnapshot, ...] = ()
