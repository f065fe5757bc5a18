"""What analysis returns: the numbers of `analyze --json`, as frozen records.

Names and units are the contract's. Unknown is None, and a finding says why.
"""

import msgspec

from stepscope.analysis.across.records import (
    FloorPoint,
    RepeatGroup,
    StepModel,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.boot.records import (
    BootResult,
    BreakEven,
    StartupCost,
)
from stepscope.analysis.compare.records import (
    Comparison,
    LeftOut,
    PooledComparison,
)
from stepscope.findings import Finding
from stepscope.recipe.records import Capture


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

    ``sm_clock_drop_pct_max`` is how far the slowest GPU's clock is below its maximum.
    ``util_spread_points`` is the spread of the mean utilization over GPUs; it says
    nothing about imbalance, since a rank that waits in a collective is busy.
    ``power_gpus_w`` is the lowest and the highest mean power of a GPU, where there are
    several. ``dram_bw_pct_median`` is of the GPU that reads most: ranks are not alike,
    and the median of all samples would lie between two of them. Means
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
    power_gpus_w: tuple[float, float] | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    sm_clock_drop_pct_max: float | None = None
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
    busiest_thread_waited_pct: dict[str, float] = {}


class CellResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell's figures; see docs/glossary.md for the names.

    Attributes beyond the obvious:
        steady_occupancy: Mean in flight over C between the first completion and the
            first one after the last send; None below four waves.
        steady_from_s: Seconds into the cell at which its steady part begins; None
            below two waves, as the next three.
        steady_step_ms: Mean gap between chunks of one request in that part, prefill
            that shared the steps included.
        drift_pct: Change of decode gaps from its first to its second half; None below
            four waves.
        batch_means_error_pct: Half the 95 % interval of the decode gap by batch means
            of this one run: a lower bound of what runs differ by, never a verdict.
        warm_up_settled: Whether the warm-up of its launch had settled; None: unknown.
        engine_step_source: What ``engine_step_ms`` was counted from.
        request_rate: Mean arrivals a second that an open loop was asked for; what
            follows is None for a closed loop.
        offered_requests_per_s: Arrivals a second by the schedule as it was drawn.
        completed_requests_per_s: Requests that left a second, in the steady stretch.
        keeps_up: False for an open loop that is overloaded; None: too short to tell.
        client_queue_ms: From when requests were due to when they were sent.
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
    capture: Capture | None = None
    n_prompts: int | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    mean_in_flight: float | None = None
    sequences_per_step: float | None = None
    steady_occupancy: float | None = None
    steady_from_s: float | None = None
    steady_step_ms: float | None = None
    drift_pct: float | None = None
    batch_means_error_pct: float | None = None
    warm_up_settled: bool | None = None
    engine_step_source: str | None = None
    server_queue_ms: float | None = None
    preemptions: int | None = None
    prefix_cache_hit_pct: float | None = None
    request_rate: float | None = None
    arrival: str | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    ramp_rps: tuple[float, float] | None = None
    offered_requests_per_s: float | None = None
    completed_requests_per_s: float | None = None
    keeps_up: bool | None = None
    client_queue_ms: Stats | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything computed from a run, before the board judges it."""

    cells: tuple[CellResult, ...]
    groups: tuple[RepeatGroup, ...] = ()
    step_model: tuple[StepModel, ...] = ()
    floor: tuple[FloorPoint, ...] = ()
    boot: tuple[BootResult, ...] = ()
    startup: tuple[StartupCost, ...] = ()
    break_even: tuple[BreakEven, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    pooled: tuple[PooledComparison, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    traced: tuple[TracedStep, ...] = ()
    stacks: tuple[TokenStack, ...] = ()
    findings: tuple[Finding, ...] = ()
