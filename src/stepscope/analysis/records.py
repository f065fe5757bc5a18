"""What analysis returns: the numbers of `analyze --json`, as frozen records.

Names and units are the contract's. Unknown is None, and a finding says why.
"""

from typing import Literal

import msgspec

from stepscope.findings import Finding
from stepscope.recipe.records import Capture
from stepscope.run.run import AppliedFix
from stepscope.run.stepbudget import RankBudget


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


StepModelKind = Literal["constant", "line", "hinge", "coverage"]


class StepModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step time over sequences per rank, for one configuration of one session.

    ``step_source`` says which step time: ``engine step``, ``server TPOT`` or
    ``client TPOT``; one for all points. ``cells`` names the cell of each point.

    Level, slope, knee and asymptote are four numbers with their 95 % intervals; the
    asymptote (level - slope x knee) is not a cost anything ever pays. ``n_rows``:
    points that the intervals and the choice of shape rest on; fewer than ``n_points``
    where each concurrency counts once.
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
    asymptote_ci95_ms: tuple[float, float] | None = None
    n_rows: int | None = None
    cells: tuple[str, ...] = ()


class TracedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decode step by kernel timelines, beside the same step untraced.

    Attributes:
        usable: The quality gate lets idle time be told.
        traced_step_ms: Mean period, of the slowest rank.
        untraced_step_ms: Of the cells that ``untraced_source`` names.
        stretch_pct: Traced over untraced, less one.
        match: ``same`` within 15 %; ``stretched``: the profiler lengthened it by more,
            so the host's part is refused; ``other-steps``: it is shorter by more;
            ``unknown``: nothing was measured untraced.
        n_ranks: Ranks that were traced.
        ranks: Their mean steps.
    """

    configuration: str
    concurrency: int | None
    launch: str | None
    cell: str | None
    paths: tuple[str, ...]
    usable: bool
    defects: tuple[str, ...]
    step_kind: str | None
    step_source: str | None
    traced_step_ms: float | None
    untraced_step_ms: float | None
    untraced_source: str | None
    stretch_pct: float | None
    match: Literal["same", "stretched", "other-steps", "unknown"]
    n_ranks: int
    ranks: tuple[RankBudget, ...]
    straggler_rank: int | None = None
    straggler_reason: str | None = None


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
    expert_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None


class StackPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of the time between two tokens."""

    name: str
    ms: float


class TokenStack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of TPOT at one concurrency, from the device outwards; they sum to it.

    Attributes:
        tpot_ms: Mean of the client's TPOT over the cells.
        step_ms: The decode step, untraced, for each token of a sequence.
        step_source: What it was taken from: engine step, median gap or TPOT.
        floor_ms: Time of the bytes alone; it is the sum of the floor's parts.
        traced: A timeline as long as the untraced step tells idle time apart.
        cells: Whose figures they are.
    """

    configuration: str
    concurrency: int
    tpot_ms: float
    step_ms: float
    step_source: str
    floor_ms: float | None
    parts: tuple[StackPart, ...]
    traced: bool
    cells: tuple[str, ...]


class BootResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch: phases, ledger and verdict are those of `log --json`.

    Attributes:
        launch: Its name.
        ready: Whether it came up.
        seconds_to_ready: From the start of the process to ready; None: it never was.
        phases: Each with ``usd`` besides; they overlap, so neither seconds nor money
            add up.
        ledger: Memory of one GPU.
        verdict: Whether it came up and why not.
        log_path: Where its log lies.
        configuration: What was started.
        session: Where.
        cold: First start of its configuration in its session; None: not known.
        startup_usd: Price of the time to ready, or of the whole failed start.
        unnamed_s: Seconds of the start in which no phase of the log ran.
        retry_of: The failed launch that it repeats.
        retried_by: The launch that repeats this one.
        applied_fixes: What was changed so that it boots.
    """

    launch: str
    ready: bool
    seconds_to_ready: float | None
    phases: tuple[dict[str, object], ...]
    ledger: dict[str, object]
    verdict: dict[str, object]
    log_path: str | None = None
    configuration: str | None = None
    session: str | None = None
    cold: bool | None = None
    startup_usd: float | None = None
    unnamed_s: float | None = None
    retry_of: str | None = None
    retried_by: str | None = None
    applied_fixes: tuple[AppliedFix, ...] = ()


class StartupPhase(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A phase of a configuration's start; medians, and what ran at the same time."""

    name: str
    cold_s: float | None
    warm_s: float | None
    overlaps: tuple[str, ...] = ()


class StartupCost(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a configuration's start takes.

    ``cold``: its first start in the session; ``warm``: the median of the ``n_warm``
    later ones, which find the checkpoint in the page cache and kernels compiled.
    """

    configuration: str
    session: str
    cold_s: float | None
    warm_s: float | None
    n_warm: int
    cold_usd: float | None
    warm_usd: float | None
    phases: tuple[StartupPhase, ...] = ()


class BreakEven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When B, started at the same time as A, has produced as many tokens.

    Attributes:
        a: The configuration that is compared with.
        b: The other one.
        concurrency: Where both were measured.
        verdict: ``after``: B is ahead from ``hours`` on; ``until``: up to then;
            ``at-once``; ``never``; ``undetermined``: no difference is established.
        hours: From the start of both processes; None where there is no such instant.
        ci95_hours: From the interval of the difference alone.
        a_startup_s: What A's start takes.
        b_startup_s: What B's takes.
        startup: Which starts those are: ``cold`` or ``warm``.
        why: In words.
    """

    a: str
    b: str
    concurrency: int | None
    verdict: Literal["after", "until", "at-once", "never", "undetermined"]
    hours: float | None = None
    ci95_hours: tuple[float, float] | None = None
    a_startup_s: float | None = None
    b_startup_s: float | None = None
    startup: Literal["cold", "warm"] | None = None
    why: str = ""


Verdict = Literal["faster", "slower", "same", "undetermined"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B against A at one workload point; no interval without repeats.

    Attributes:
        a: The configuration that is compared with.
        b: The other one.
        concurrency: Requests in flight; None for an open loop.
        metric: What is compared.
        delta_pct: exp of the difference of mean logs, less one; None where figures of
            different sessions would have to be read raw.
        ci95_pct: Its interval; over all configurations together where there are
            several.
        verdict: ``faster`` and ``slower`` hold over all rows of the pair together.
        runs_needed: Units an arm, those at hand included, that would settle it with
            80 % power; None where nothing says how much they spread.
        n_a: Units of A that the interval rests on.
        n_b: The same of B.
        unit: What repeats: a ``launch`` or a ``run`` on one launch.
        p: Two-sided, this row alone (among all configurations).
        p_adjusted: After Holm over the rows of the pair and their mean.
        session: Where both were measured; ``a / b`` through an anchor.
        anchor: The configuration measured in both sessions; None within one.
        input_tokens: What each request was given.
        output_tokens: What each was asked for.
        n_prompts: Requests of a run.
        request_rate: Of an open loop.
        reason: Why it is undetermined; None otherwise.
        minutes_needed: What the missing units would take.
        usd_needed: The same in money; None without prices.
        mean_a: Geometric mean of A, in the metric's unit.
        mean_b: The same of B.
    """

    a: str
    b: str
    concurrency: int | None
    metric: str
    delta_pct: float | None
    ci95_pct: tuple[float, float] | None
    verdict: Verdict
    runs_needed: int | None
    n_a: int = 1
    n_b: int = 1
    unit: Literal["launch", "run"] = "run"
    p: float | None = None
    p_adjusted: float | None = None
    session: str | None = None
    anchor: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    n_prompts: int | None = None
    request_rate: float | None = None
    reason: str | None = None
    minutes_needed: float | None = None
    usd_needed: float | None = None
    mean_a: float | None = None
    mean_b: float | None = None


class PooledComparison(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """B against A over all rows of a metric, as one number where it is one.

    ``rows_agree`` is False where Cochran's Q says that the rows differ by more than
    their errors: then ``delta_pct`` is the mean of different numbers and has no
    verdict. ``q_p`` is its probability.
    """

    a: str
    b: str
    metric: str
    n_rows: int
    delta_pct: float | None
    ci95_pct: tuple[float, float] | None
    verdict: Verdict
    rows_agree: bool | None
    q_p: float | None
    p: float | None = None
    p_adjusted: float | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell that is not compared, and why."""

    cell: str
    configuration: str
    concurrency: int | None
    reason: str


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
    request_rate: float | None = None
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
    startup: tuple[StartupCost, ...] = ()
    break_even: tuple[BreakEven, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    pooled: tuple[PooledComparison, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    traced: tuple[TracedStep, ...] = ()
    stacks: tuple[TokenStack, ...] = ()
    findings: tuple[Finding, ...] = ()
