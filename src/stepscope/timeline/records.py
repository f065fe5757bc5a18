"""What `trace --json` prints. Milliseconds; None is unknown, and a finding says why."""

import msgspec

from stepscope.findings import Finding


class Quality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the trace can be trusted with. Unusable: no idle figure at all."""

    usable: bool
    defects: tuple[str, ...]
    resolution_ns: int


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution over step periods, milliseconds."""

    median: float
    p10: float
    p90: float
    mean: float


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean milliseconds of a step period by what the device did; sums to the period.

    ``communication_*`` is the part that no computation hides. Without the other
    ranks' traces waiting can not be told from transfer: then both are None and
    ``communication`` holds their sum.
    """

    compute: float
    communication: float
    communication_transfer: float | None
    communication_wait: float | None
    memcpy: float
    idle: float | None


class IdleCauses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean idle milliseconds of a step by cause; sums to ``Budget.idle``."""

    inside_graph: float | None
    host_not_launching_yet: float | None
    graph_launch_call: float | None
    launch_call: float | None
    after_launch_returned: float | None
    no_launch_record: float | None


class TopKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel by its share of the device's time."""

    name: str
    ms_per_step: float
    count_per_step: float
    total_ms: float


class TopGap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All gaps between one pair of kernels.

    ``expected_ms_per_step`` is their count at the trace's own median gap inside a
    graph; ``host`` is what the launching thread was doing in the largest of them.
    """

    before: str
    after: str
    count_per_step: float
    us_mean: float
    us_max: float
    ms_per_step: float
    expected_ms_per_step: float | None
    host: str | None


class GapBin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gaps of one length: from ``from_us`` up to ``to_us`` (None: no end)."""

    from_us: float
    to_us: float | None
    count_per_step: float
    ms_per_step: float


class LayerKernel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One kernel of a layer: its mean length and the mean gap before it.

    ``beside``: it runs on a branch of its own while others run, so there is no gap.
    """

    name: str
    us_mean: float | None
    gap_before_us_mean: float | None
    beside: bool = False


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of kernels that repeats inside a step, as one.

    ``n_seen`` counts the layers that the means are taken over: all layers of all
    steps with the same kernels. ``ms_per_layer`` is start to start.
    """

    n_layers: int
    kernels_per_layer: int
    n_seen: int
    ms_per_layer: float | None
    gap_us_per_layer: float | None
    kernels: tuple[LayerKernel, ...]


class Rank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank (one device of one file).

    The step figures cover the complete periods of the main kind of step;
    ``busy_pct``, ``n_device_ops``, ``gaps_below_1us_ms`` and ``span_ms`` cover the
    whole trace. ``busy_pct`` counts a rank that waits in a collective as busy.
    ``idle_uncertainty_ms`` is what stamps of a microsecond leave open in a step's idle
    time; None where they are finer. ``graph_span_ms`` is from the first to the last
    node of a graph, where the file holds it as one box (nsys).
    """

    rank: int
    path: str
    n_steps: int
    n_periods: int
    step_kind: str | None
    step_source: str
    steps_by_kind: dict[str, int]
    step_ms: Spread | None
    kernels_per_step: float | None
    kernels_per_layer: int | None
    n_layers: int | None
    budget_ms: Budget | None
    idle_ms: IdleCauses | None
    closes_to_pct: float | None
    busy_pct: float | None
    step_busy_pct: float | None
    n_device_ops: int
    span_ms: float
    gaps_below_1us_ms: float | None
    median_graph_gap_us: float | None
    top_kernels: tuple[TopKernel, ...]
    top_gaps: tuple[TopGap, ...]
    layer: Layer | None = None
    gap_histogram: tuple[GapBin, ...] = ()
    idle_uncertainty_ms: float | None = None
    graph_span_ms: Spread | None = None


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family of collectives, matched over ranks.

    ``transfer_ms`` and ``wait_ms_by_rank`` are means per step (per trace where there
    are no steps); ``wait_ms_by_rank`` follows the order of ``ranks``.
    ``last_by_rank`` counts how often each rank arrived last. ``on_host`` marks a
    collective of the processor: devices may work while it waits.
    """

    name: str
    per_step: float
    n_matched: int
    transfer_ms: float
    wait_ms_by_rank: tuple[float, ...]
    last_by_rank: tuple[int, ...]
    on_host: bool = False


class TraceResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The whole answer of `stepscope trace`.

    ``untraced_step_ms`` is the step time of the same cell with the profiler off, if
    the caller knew it; ``slowdown_pct`` is how much longer the traced step is.
    """

    quality: Quality
    ranks: tuple[Rank, ...]
    collectives: tuple[Collective, ...]
    straggler_rank: int | None
    straggler_reason: str | None
    findings: tuple[Finding, ...]
    untraced_step_ms: float | None = None
    slowdown_pct: float | None = None
