"""What stepscope must know of an engine, and nothing more."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from stepscope.engines.nsys import NsysOrder
from stepscope.recipe.records import Configuration, Layout, Recipe

Flags = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOrder:
    """Where a launch that is to be traced writes, and what is known of its engine.

    Attributes:
        folder: Absolute path.
        version: As an earlier launch's log gave it; None: not known.
        nsys: The session of nsys that the server is launched in; None: the engine's
            own profiler takes the timelines.
    """

    folder: str
    version: str | None = None
    nsys: NsysOrder | None = None

    @property
    def wrapper(self) -> tuple[str, ...]:
        """The words that come before the server's command."""
        return () if self.nsys is None else self.nsys.launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """How an engine takes kernel timelines.

    Attributes:
        flags: What makes it possible: flags of the server.
        environment: The same: environment of the server.
        start_path: Where to POST to begin.
        start_body: Order to the JSON that is posted there; empty: none.
        stop_path: Where to POST to end; it answers when the files are written.
    """

    flags: Callable[[TraceOrder], Flags]
    environment: Callable[[TraceOrder], dict[str, str]]
    start_path: str
    start_body: Callable[[TraceOrder], bytes]
    stop_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDef:
    """One engine.

    Attributes:
        name: As the recipe spells it.
        log_format: ``vllm``, ``sglang`` or ``llamacpp``; None when unknown.
        ready_path: Answers 200, and nothing but 200, when requests are served.
        ready_log: Text that the log must hold besides, where the path answers before
            the engine has warmed up; None where the path says it all.
        metrics_path: Prometheus text; None when the engine has none.
        program: The command before the flags.
        role: (argv, process name) to the role of a process (``ProcessSample.role``).
        layout: Flags to the parallel layout that they ask for.
        own_flags: Flags that stepscope adds unless the recipe sets them.
        capture_flags: Flags that stepscope adds for a ``capture`` of the recipe.
        profiler: How it takes kernel timelines itself; None: it can not.
        nsys_environment: What nsys needs of it: environment of the server.
        own_environment: Environment that stepscope adds unless the recipe sets it.
        extra_body: Fields added to every request.
        token_ids: Endpoints that take a prompt as token ids.
        n_vocabulary: Tokens of the model's vocabulary, where the engine brings the
            model; ids from 1 on are ordinary text.
        model_config: config.json of that model.
        model_name: What requests call the model where the recipe gives no name.
        name_flag: The flag that takes the served name.
        boots: False: stepscope starts nothing.
    """

    name: str
    log_format: str | None
    ready_path: str
    metrics_path: str | None
    program: Callable[[Recipe], tuple[str, ...]]
    role: Callable[[tuple[str, ...], str], str]
    layout: Callable[[Flags], Layout]
    ready_log: str | None = None
    own_flags: Flags = field(default_factory=dict)
    capture_flags: dict[str, Flags] = field(default_factory=dict)
    profiler: Profiler | None = None
    nsys_environment: dict[str, str] = field(default_factory=dict)
    own_environment: dict[str, str] = field(default_factory=dict)
    extra_body: dict[str, object] = field(default_factory=dict)
    token_ids: frozenset[str] = frozenset(
        {"/v1/completions", "/completion", "/generate"}
    )
    n_vocabulary: int | None = None
    model_config: str | None = None
    model_name: str | None = None
    name_flag: str = "served-model-name"
    boots: bool = True

    def command(
        self,
        recipe: Recipe,
        configuration: Configuration,
        port: int,
        trace: TraceOrder | None = None,
    ) -> tuple[str, ...]:
        """Return the server command for one configuration on one port.

        Args:
            recipe: What to run.
            configuration: Its flags come after those that stepscope adds.
            port: Where it listens.
            trace: Where timelines go; None: none is taken.
        """
        added = self.added_flags(recipe, configuration, port, trace)
        flags = (*rendered(added), *rendered(configuration.flags))
        return (*self.program(recipe), *flags) if self.boots else ()

    def added_flags(
        self,
        recipe: Recipe,
        configuration: Configuration,
        port: int,
        trace: TraceOrder | None = None,
    ) -> Flags:
        """Return the flags that stepscope adds, for people to see before a run."""
        if not self.boots:
            return {}
        flags: Flags = {"host": recipe.host, "port": port}
        if recipe.served_model_name:
            flags[self.name_flag] = recipe.served_model_name
        flags |= self.own_flags
        for capture in recipe.capture:
            flags |= self.capture_flags.get(capture, {})
        if trace is not None and trace.nsys is None and self.profiler is not None:
            flags |= self.profiler.flags(trace)
        return {k: v for k, v in flags.items() if k not in configuration.flags}

    def environment(
        self,
        recipe: Recipe,
        configuration: Configuration,
        trace: TraceOrder | None = None,
    ) -> dict[str, str]:
        """Return what is added to the inherited environment."""
        added = dict(self.own_environment)
        if trace is not None and trace.nsys is not None:
            added |= self.nsys_environment
        elif trace is not None and self.profiler is not None:
            added |= self.profiler.environment(trace)
        return {**added, **configuration.environment}

    def accepts_token_ids(self, endpoint: str) -> bool:
        """Return True when ``endpoint`` takes a prompt as token ids."""
        return endpoint in self.token_ids

    def request_model(self, recipe: Recipe) -> str | None:
        """Return what requests must call the model; None when nobody says."""
        return recipe.served_model_name or self.model_name or recipe.model


def rendered(flags: Flags) -> tuple[str, ...]:
    """Return flags as arguments: True is a bare switch, False and None vanish.

    A value that begins with a dash is joined to its flag: otherwise argument parsers
    take it for a flag of its own.
    """
    arguments: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        if value is True:
            arguments.append(f"--{name}")
        elif text.startswith("-"):
            arguments.append(f"--{name}={text}")
        else:
            arguments += [f"--{name}", text]
    return tuple(arguments)
