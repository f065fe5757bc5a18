"""What analysis returns: the numbers of `analyze --json`, as frozen records.

Names and units are the contract's. Unknown is None, and a finding says why.
"""

from typing import Literal

import msgspec

from stepscope.findings import Finding


class Stats(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution over requests (or over gaps), milliseconds.

    Percentiles interpolate linearly. From fewer than 64 values p90, and from fewer
    than 662 p99, are printed with the finding ``few-samples``.
    """

    mean: float | None
    median: float | None
    p90: float | None
    p99: float | None
    max: float | None
    n: int = 0


class CellTelemetry(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Means over the telemetry window. ``*_range`` is what the clock offset leaves.

    ``util_spread_points`` is the spread of the mean utilization over GPUs; it says
    nothing about imbalance, since a rank that waits in a collective is busy. Means
    that a source published over another window are ranges only, and nobody knows how
    many of their samples lie in the window.
    """

    n_samples_total: int | None
    n_samples_in_window: int | None
    window_s: float
    util_pct: float | None = None
    util_pct_range: tuple[float, float] | None = None
    util_spread_points: float | None = None
    power_w: float | None = None
    power_w_range: tuple[float, float] | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    sm_active_pct: float | None = None
    dram_bw_pct: float | None = None
    dram_bw_pct_median: float | None = None
    tensor_pct: float | None = None
    memory_used_gib: float | None = None
    host_memory_peak_gib: float | None = None
    host_cpu_pct: float | None = None
    process_cpu_pct: dict[str, float] = {}
    busiest_thread_cpu_pct: dict[str, float] = {}


class CellResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell's figures; see docs/glossary.md for the names.

    Attributes beyond the obvious:
        steady_occupancy: Mean in flight over C between the first completion and the
            last send; None below four waves.
        engine_step_source: What ``engine_step_ms`` was counted from.
    """

    name: str
    configuration: str
    launch: str
    session: str
    concurrency: int | None
    repeat: int
    warm_up: bool
    valid: bool
    void_reasons: tuple[str, ...]
    status: str
    n_requests: int
    n_failed: int
    failure_kinds: dict[str, int]
    input_tokens: int | None
    output_tokens: int | None
    duration_s: float | None
    waves: float | None
    occupancy: float | None
    occupancy_expected: tuple[float, float] | None
    little_residual: float | None
    output_tokens_per_s: float | None
    requests_per_s: float | None
    steady_output_tokens_per_s: float | None
    ttft_ms: Stats
    tpot_ms: Stats
    itl_ms: Stats
    e2el_ms: Stats
    decode_efficiency: float | None
    decode_efficiency_residual: float | None
    chunks_per_token: float | None
    server_tpot_ms: float | None
    server_ttft_ms: float | None
    client_tpot_error_pct: float | None
    engine_step_ms: float | None
    tokens_per_step_and_sequence: float | None
    prefill_share_of_steps: float | None
    telemetry: CellTelemetry | None
    usd_per_million_output_tokens: float | None
    n_prompts: int | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    mean_in_flight: float | None = None
    steady_occupancy: float | None = None
    engine_step_source: str | None = None
    server_queue_ms: float | None = None
    preemptions: int | None = None
    prefix_cache_hit_pct: float | None = None


StepModelKind = Literal["constant", "line", "hinge", "coverage"]


class StepModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step time over sequences per rank, for one configuration of one session.

    ``step_source`` says which step time: ``engine step``, ``server TPOT`` or
    ``client TPOT``; one for all points. ``cells`` names the cell of each point.

    Level, slope, knee and asymptote are four numbers with their 95 % intervals; the
    asymptote (level - slope x knee) is not a cost anything ever pays.
    """

    configuration: str
    kind: StepModelKind
    n_points: int
    level_ms: float | None
    level_ci95_ms: tuple[float, float] | None
    slope_ms_per_seq: float | None
    slope_ci95: tuple[float, float] | None
    knee_seqs_per_rank: float | None
    knee_ci95: tuple[float, float] | None
    asymptote_ms: float | None
    toll_share: dict[str, float]
    residual_pct: float | None
    bandwidth_bytes_per_s: float | None = None
    bandwidth_ci95: tuple[float, float] | None = None
    points: tuple[tuple[float, float], ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    rejected: tuple[str, ...] = ()
    session: str | None = None
    step_source: str | None = None
    cells: tuple[str, ...] = ()


class FloorPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The byte floor beside the measured step at one concurrency."""

    configuration: str
    concurrency: int
    seqs_per_rank: float
    coverage: float | None
    bytes_per_rank: float
    floor_ms: float
    step_ms: float | None
    times_floor: float | None


class BootResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch: phases, ledger and verdict are those of `log --json`."""

    launch: str
    ready: bool
    seconds_to_ready: float | None
    phases: tuple[dict[str, object], ...]
    ledger: dict[str, object]
    verdict: dict[str, object]
    log_path: str | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A against B at one concurrency; no interval without repeats."""

    a: str
    b: str
    concurrency: int | None
    metric: str
    delta_pct: float | None
    ci95_pct: tuple[float, float] | None
    verdict: Literal["faster", "slower", "same", "undetermined"]
    runs_needed: int | None
    n_a: int = 1
    n_b: int = 1


class RepeatGroup(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The repeats of one configuration and workload point, read together.

    ``ci95`` is a Student t interval on log values over valid repeats; None for one.
    """

    configuration: str
    session: str
    concurrency: int | None
    metric: str
    cells: tuple[str, ...]
    values: tuple[float, ...]
    mean: float
    ci95: tuple[float, float] | None
    cv_pct: float | None
    n_prompts: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything computed from a run, before the board judges it."""

    cells: tuple[CellResult, ...]
    groups: tuple[RepeatGroup, ...] = ()
    step_model: tuple[StepModel, ...] = ()
    floor: tuple[FloorPoint, ...] = ()
    boot: tuple[BootResult, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()
