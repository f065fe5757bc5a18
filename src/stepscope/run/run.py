"""A run: all launches and cells of one invocation, with everything sampled."""

from typing import Literal

import msgspec

from stepscope.findings import Finding
from stepscope.recipe.records import Capture, Cost, Experiment, Layout, Workload
from stepscope.run.chunks import ChunkTimes
from stepscope.run.client import ClientHealth
from stepscope.run.published import Claim, TelemetryMeans
from stepscope.run.requests import Request
from stepscope.run.samples import MetricsSnapshot, Samples
from stepscope.run.serverlog import ServerLog
from stepscope.run.settling import WarmUpVerdict
from stepscope.run.stepbudget import StepBudget

CellStatus = Literal["done", "failed", "interrupted"]


class Timeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the run's instants count from.

    Attributes:
        kind: ``monotonic`` (our own runs) or ``unix`` (imports whose samples carry
            wall time).
        anchor_at_ns: An instant on the timeline; None where no wall time is known.
        anchor_unix_ns: The same instant in nanoseconds since the Unix epoch.
    """

    kind: Literal["monotonic", "unix"]
    anchor_at_ns: int | None = None
    anchor_unix_ns: int | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the run was taken; its fields are the identity of a session."""

    host: str | None = None
    kernel: str | None = None
    cpu_model: str | None = None
    n_cpus: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    driver: str | None = None
    container: str | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of a foreign result that holds no single requests.

    ``duration_s`` is None where a source gives latencies alone. ``stats`` maps
    ``ttft_ms``, ``tpot_ms``, ``itl_ms`` and ``e2el_ms`` to
    ``mean``, ``median``, ``std`` and percentiles such as ``p99``, all milliseconds.
    """

    n_completed: int
    n_failed: int
    duration_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    stats: dict[str, dict[str, float]] = {}


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration at one workload point, one repeat.

    Attributes:
        name: Unique in the run.
        configuration: Name of the configuration.
        launch: Name of the launch that it ran on.
        workload: What was asked.
        repeat: From 0.
        warm_up: True when it is not to be read as a measurement.
        capture: ``traced``: a profiler ran meanwhile; ``untraced``: the same load on
            the same launch before it ran. Both are no measurement.
        status: ``interrupted``: the run ended while it was measured.
        requests: All requests, failed ones too, in order of sending.
        chunks: Their chunk times where they stay in the archive, since they are many;
            the requests are then without ``chunk_offsets_ns``. None: they have them.
        summary: Only where ``requests`` is empty because a foreign file had none.
        metrics_before: The engine's metrics just before the first send.
        metrics_after: The same just after the last content.
        started_at_ns: When the phase or the foreign command began; not a window.
        ended_at_ns: When it ended.
        clock_slack_ns: How much earlier than written all its request instants may
            lie on the timeline (imports); 0 when clocks are shared.
        client: The client's own health; None for foreign clients.
        telemetry_means: What a source published instead of samples.
        source: ``stepscope`` or the foreign format.
        raw_path: Raw file inside the run directory, or the imported path.
        failure: Why the cell failed; None otherwise.
    """

    name: str
    configuration: str
    launch: str
    workload: Workload
    repeat: int = 0
    warm_up: bool = False
    capture: Capture | None = None
    status: CellStatus = "done"
    requests: tuple[Request, ...] = ()
    chunks: ChunkTimes | None = None
    summary: Summary | None = None
    metrics_before: MetricsSnapshot | None = None
    metrics_after: MetricsSnapshot | None = None
    started_at_ns: int | None = None
    ended_at_ns: int | None = None
    clock_slack_ns: int = 0
    client: ClientHealth | None = None
    telemetry_means: TelemetryMeans | None = None
    source: str = "stepscope"
    raw_path: str | None = None
    failure: str | None = None


class AppliedFix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flag that was changed because a boot without the change failed.

    Attributes:
        flag: Long name without dashes, as in ``Configuration.flags``.
        before: What the recipe gave; None: the engine's default.
        value: What the launch was started with.
        cause: Why the boot failed, a code of the boot verdict.
        failed_launch: The launch whose log named the value.
    """

    flag: str
    before: str | int | float | bool | None
    value: int | float
    cause: str
    failed_launch: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server said to a fixed prompt, greedily, before anything was measured.

    ``question`` numbers the prompt: the same number is the same prompt in every launch
    of a run. ``pieces`` are the stream's pieces of text in order: a token each where
    the server merges none.
    """

    question: int
    pieces: tuple[str, ...]
    output_tokens: int | None = None

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)


class Launch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server start.

    ``ready`` is False for a boot that failed; ``exit_code`` is negative for a signal.
    ``log_path`` is relative to the run directory. ``log_offset_ns`` turns the log's own
    clock (``LogEvent.at_s``) into instants of the timeline; None: to be found from
    ``started_at_ns`` and ``stopped_at_ns``. ``retry_of`` names the failed launch that
    this one repeats; ``applied_fixes`` are flags in which its command differs from its
    configuration's. ``oom_kills`` counts the kills for want of memory in our control
    group from its start to its end; None: not counted there. ``kernel_lines`` are what
    the kernel logged of kills and device errors meanwhile, on the whole host.
    ``warm_up``: what came of its warm-up; None where it never got that far.
    ``experiment``: why it was added to the run; None for what the recipe asks for.
    ``wrapper``: what ``command`` was started under, a profiler's own words.
    """

    name: str
    configuration: str
    session: str = "s0"
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    cpus: str | None = None
    base_url: str | None = None
    started_at_ns: int | None = None
    ready_at_ns: int | None = None
    stopped_at_ns: int | None = None
    ready: bool = False
    exit_code: int | None = None
    failure: str | None = None
    log_path: str | None = None
    log: ServerLog | None = None
    log_offset_ns: int | None = None
    probe: dict[str, str | int | float | bool | None] = {}
    answers: tuple[Answer, ...] = ()
    warm_up: WarmUpVerdict | None = None
    retry_of: str | None = None
    applied_fixes: tuple[AppliedFix, ...] = ()
    oom_kills: int | None = None
    kernel_lines: tuple[str, ...] = ()
    experiment: Experiment | None = None
    wrapper: tuple[str, ...] = ()


class TraceRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel timeline that belongs to the run."""

    path: str
    concurrency: int | None = None
    rank: int | None = None
    cell: str | None = None
    launch: str | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All cells of one invocation.

    ``model_config`` is the text of the model's config.json; ``recipe_text`` the TOML
    as it was given. ``complete`` is False when the run was cut short. ``step_budgets``
    are what ``traces`` say, where they were read; no archive keeps them. ``claims`` are
    what the source of an import says of it.
    """

    id: str
    engine: str
    timeline: Timeline
    engine_version: str | None = None
    created_unix_ns: int | None = None
    tool_version: str | None = None
    gpu: str | None = None
    n_gpus: int | None = None
    layout: Layout = Layout()
    machine: Machine = Machine()
    model: str | None = None
    model_config: str | None = None
    recipe_text: str | None = None
    cost: Cost | None = None
    launches: tuple[Launch, ...] = ()
    cells: tuple[Cell, ...] = ()
    samples: Samples = Samples()
    traces: tuple[TraceRef, ...] = ()
    step_budgets: tuple[StepBudget, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    complete: bool = True
