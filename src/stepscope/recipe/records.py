"""What a recipe says, after it has been read: frozen records."""

from typing import Literal

import msgspec

Engine = Literal["vllm", "sglang", "llamacpp", "url", "embedded"]
ServedEngine = Literal["vllm", "sglang", "llamacpp"]
Endpoint = Literal["/v1/completions", "/v1/chat/completions"]
Dataset = Literal["random"]


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


class CellPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell to be measured."""

    name: str
    configuration: str
    launch: str
    workload: Workload
    repeat: int
    warm_up: bool = False


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
    """The workload points: each concurrency with its number of repeats.

    ``n_prompts`` replaces whole ``waves`` where it is given. ``ignore_eos`` False is
    for servers that refuse the field: answers may then end early.
    """

    concurrency: tuple[tuple[int, int], ...]
    input_tokens: int
    output_tokens: int
    n_prompts: int | None = None
    waves: int = 2
    dataset: Dataset = "random"
    endpoint: Endpoint = "/v1/completions"
    seed: int = 0
    ignore_eos: bool = True
    temperature: float | None = None


class WarmUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Blocks of one whole wave before the first measured cell of a launch.

    ``concurrency`` None: the highest that is measured.
    """

    concurrency: int | None = None
    blocks: int = 6


class Telemetry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the machine is sampled."""

    interval_s: float = 0.1
    metrics_interval_s: float = 1.0


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
    cost: Cost | None = None
    server: Probe | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    executable: tuple[str, ...] | None = None
    readiness_timeout_s: float = 3600.0
    request_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    capture: tuple[str, ...] = ()
    served_model_name: str | None = None
    api_key_env: str | None = None
    model_config: str | None = None
    gpu: str | None = None
    n_launches: int = 1


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server start and the cells to be measured on it, in order."""

    name: str
    configuration: Configuration
    cells: tuple[CellPlan, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recipe, expanded: launches in the order in which they run."""

    recipe: Recipe
    launches: tuple[LaunchPlan, ...]
