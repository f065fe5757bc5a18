"""What a recipe says, after it has been read: frozen records."""

from typing import Literal

import msgspec

Engine = Literal["vllm", "sglang", "llamacpp", "url", "embedded"]
ServedEngine = Literal["vllm", "sglang", "llamacpp"]
Endpoint = Literal[
    "/v1/completions", "/v1/chat/completions", "/completion", "/generate"
]
Dataset = Literal[
    "random", "sharegpt", "custom", "conversations", "mooncake", "timed_trace",
    "burstgpt",
]  # fmt: skip
#: How an open loop's arrivals come: equally spaced, with gamma-distributed gaps, at a
#: rate that rises, or as a trace recorded them.
Arrival = Literal["constant", "gamma", "linear", "exponential", "recorded"]
Capture = Literal["traced", "untraced"]
#: What takes kernel timelines: the engine's own profiler, or NVIDIA Nsight Systems.
TraceTool = Literal["torch", "nsys"]


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is spread over GPUs: degrees of each parallelism.

    ``dcp`` (decode context parallelism) divides KV entries over ranks of ``tp``.
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    dcp: int = 1


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Price per hour by component, USD."""

    usd_per_gpu_hour: float = 0.0
    n_gpus: int = 0
    usd_per_core_hour: float = 0.0
    n_cores: int = 0
    usd_per_gib_hour: float = 0.0
    memory_gib: float = 0.0

    @property
    def usd_per_hour(self) -> float:
        """Price of the whole node for one hour, USD."""
        return (
            self.usd_per_gpu_hour * self.n_gpus
            + self.usd_per_core_hour * self.n_cores
            + self.usd_per_gib_hour * self.memory_gib
        )


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload point.

    ``input_tokens`` and ``output_tokens`` are per request; None when a foreign file
    does not say. ``concurrency`` is the number the client keeps in flight (closed
    loop); None for an open loop.

    Attributes beyond the obvious:
        arrival: How the requests of an open loop come; None for a closed loop.
        request_rate: Mean arrivals a second; None without a rate or with one that
            rises. Conversations, not turns, where there are conversations.
        burstiness: Shape of the gamma distribution of gaps; 1 is a Poisson process.
        max_concurrency: Most requests that the client lets in flight in an open loop.
        ramp_rps: First and last rate of one that rises, requests a second.
        input_range: Lengths of prompts vary by this share either way.
        output_range: The same of answers.
        prefix_tokens: Tokens that all prompts of the cell begin with.
        dataset_path: The file of prompts or of a trace.
        dataset_sha256: Of that file, as it was measured.
    """

    concurrency: int | None
    n_prompts: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    dataset: str = "random"
    endpoint: str = "/v1/completions"
    request_rate: float | None = None
    ignore_eos: bool = True
    temperature: float | None = None
    seed: int | None = None
    arrival: Arrival | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    ramp_rps: tuple[float, float] | None = None
    input_range: float = 0.0
    output_range: float = 0.0
    prefix_tokens: int = 0
    dataset_path: str | None = None
    dataset_sha256: str | None = None


class CellPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell to be measured.

    ``capture`` marks the cells of a trace launch: ``traced`` while the profiler runs,
    ``untraced`` the same load before it. Neither is a measurement, so ``warm_up`` is
    True for both.
    """

    name: str
    configuration: str
    launch: str
    workload: Workload
    repeat: int
    warm_up: bool = False
    capture: Capture | None = None

    @property
    def wanted(self) -> bool:
        """True for what a run is made for: measurements and traces."""
        return not self.warm_up or self.capture == "traced"


class Configuration(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A server command: the baseline, or the baseline with a named patch.

    ``flags`` maps an engine's long flag names without dashes to values: True for a
    bare switch, False or None to drop the baseline's.
    """

    name: str
    flags: dict[str, str | int | float | bool | None] = {}
    environment: dict[str, str] = {}
    cpus: str | None = None


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an already running server keeps what a local one would show.

    ``engine`` names what runs there, so that its log, metrics and processes can be
    read; None: not known.
    """

    base_url: str
    engine: ServedEngine | None = None
    log_file: str | None = None
    pids: tuple[int, ...] = ()
    metrics_url: str | None = None


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The workload points: each concurrency or rate with its number of repeats.

    ``n_prompts`` replaces whole ``waves`` where it is given, and ``duration_s`` of a
    rate. ``ignore_eos`` False is for servers that refuse the field: answers may then
    end early. ``arrivals`` is how requests come at each of ``request_rate``; rates
    that rise and recorded arrivals make one point of their own. Token counts are None
    where the dataset brings its own.
    """

    concurrency: tuple[tuple[int, int], ...]
    input_tokens: int | None
    output_tokens: int | None
    n_prompts: int | None = None
    waves: int = 2
    dataset: Dataset = "random"
    endpoint: Endpoint = "/v1/completions"
    seed: int = 0
    ignore_eos: bool = True
    temperature: float | None = None
    request_rate: tuple[tuple[float, int], ...] = ()
    arrivals: Arrival = "gamma"
    burstiness: float = 1.0
    duration_s: float = 60.0
    max_concurrency: int | None = None
    ramp_start_rps: float | None = None
    ramp_end_rps: float | None = None
    input_range: float = 0.0
    output_range: float = 0.0
    prefix_tokens: int = 0
    dataset_path: str | None = None


class WarmUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Blocks of one whole wave before the first measured cell of a launch.

    ``concurrency`` None: the highest that is measured. ``blocks`` is the least; more
    are added until the server has settled, ``max_blocks`` at most. None: 24, or just
    ``blocks`` where those are fewer than six (too few to judge) or more than 24.
    """

    concurrency: int | None = None
    blocks: int = 6
    max_blocks: int | None = None

    @property
    def most_blocks(self) -> int:
        """The most blocks that a launch may take."""
        if self.max_blocks is not None:
            return max(self.max_blocks, self.blocks)
        return max(self.blocks, 24) if self.blocks >= 6 else self.blocks


class Telemetry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the machine is sampled."""

    interval_s: float = 0.1
    metrics_interval_s: float = 1.0


class Boot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a boot that fails.

    ``retry`` is how often a launch may be started again: with a change that the boot
    verdict computed and that is safe, or unchanged once another process has gone.
    """

    retry: int = 0


class Explain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That experiments are run after the sweep, and what they may take in all.

    ``usd`` None: money does not bound them. docs/experiments.md.
    """

    minutes: float = 30.0
    usd: float | None = None


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a launch was added to a run that had been measured.

    Attributes:
        number: From 0, in the order in which they were chosen.
        change: What it changes, an id of the table of changes, or ``trace``.
        title: The same for people.
        against: The measured configuration that it is read beside.
        splits: Hypotheses, open there, that its outcome can decide.
        minutes: What it was expected to take.
    """

    number: int
    change: str
    title: str
    against: str
    splits: tuple[str, ...]
    minutes: float


class Tracing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernel timelines to take, on a launch of their own.

    Attributes:
        concurrency: One trace at each.
        configurations: Whose; empty: all.
        steps: Decode steps to record, about.
        seconds: How long to record instead; None: as long as the steps take.
        stop_timeout_s: How long the server may take to write a trace.
        tool: What takes them.
    """

    concurrency: tuple[int, ...]
    configurations: tuple[str, ...] = ()
    steps: int = 40
    seconds: float | None = None
    stop_timeout_s: float = 600.0
    tool: TraceTool = "torch"


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run. ``configurations[0]`` is the baseline.

    ``n_launches`` is how often each configuration's server is started: launches, not
    requests, are what repeats.
    """

    name: str
    engine: Engine
    model: str | None
    configurations: tuple[Configuration, ...]
    sweep: Sweep
    warm_up: WarmUp = WarmUp()
    telemetry: Telemetry = Telemetry()
    boot: Boot = Boot()
    cost: Cost | None = None
    server: Probe | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    executable: tuple[str, ...] | None = None
    readiness_timeout_s: float = 3600.0
    request_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    total_timeout_s: float = 21_600.0
    capture: tuple[str, ...] = ()
    tracing: Tracing | None = None
    explain: Explain | None = None
    served_model_name: str | None = None
    api_key_env: str | None = None
    load_workers: str = "local"
    model_config: str | None = None
    gpu: str | None = None
    n_launches: int = 1


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server start and the cells to be measured on it, in order.

    ``traced``: its server is started so that a profiler can be switched on.
    ``experiment``: why it was added; None for what the recipe asks for.
    """

    name: str
    configuration: Configuration
    cells: tuple[CellPlan, ...]
    traced: bool = False
    experiment: Experiment | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recipe, expanded: launches in the order in which they run."""

    recipe: Recipe
    launches: tuple[LaunchPlan, ...]
