"""What stepscope must know of an engine, and nothing more."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from stepscope.recipe.records import Configuration, Layout, Recipe

Flags = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDef:
    """One engine.

    Attributes:
        name: As the recipe spells it.
        log_format: ``vllm``, ``sglang`` or ``llamacpp``; None when unknown.
        ready_path: Answers 200 only when requests are served.
        metrics_path: Prometheus text; None when the engine has none.
        own_flags: Flags that stepscope adds unless the recipe sets them.
        own_environment: Environment that stepscope adds unless the recipe sets it.
        extra_body: Fields added to every request.
        token_ids: Endpoints that take a prompt as token ids.
        program: The command before the flags.
        role: (argv, process name) -> role of a process.
        layout: Flags -> parallel layout.
    """

    name: str
    log_format: str | None
    ready_path: str
    metrics_path: str | None
    program: Callable[[Recipe], tuple[str, ...]]
    role: Callable[[tuple[str, ...], str], str]
    layout: Callable[[Flags], Layout]
    own_flags: Flags = field(default_factory=dict)
    own_environment: dict[str, str] = field(default_factory=dict)
    extra_body: dict[str, object] = field(default_factory=dict)
    token_ids: frozenset[str] = frozenset({"/v1/completions"})
    host_flag: str = "host"
    port_flag: str = "port"
    boots: bool = True

    def command(
        self, recipe: Recipe, configuration: Configuration, port: int
    ) -> tuple[str, ...]:
        """Return the server command for one configuration on one port."""
        flags: Flags = {**self.own_flags}
        if recipe.served_model_name and self.name in ("vllm", "sglang"):
            flags["served-model-name"] = recipe.served_model_name
        flags.update(configuration.flags)
        flags[self.host_flag] = recipe.host
        flags[self.port_flag] = port
        return (*self.program(recipe), *rendered(flags))

    def environment(
        self, recipe: Recipe, configuration: Configuration
    ) -> dict[str, str]:
        """Return what is added to the inherited environment."""
        return {**self.own_environment, **configuration.environment}

    def accepts_token_ids(self, endpoint: str) -> bool:
        """Return True when ``endpoint`` takes a prompt as token ids."""
        return endpoint in self.token_ids


def rendered(flags: Flags) -> tuple[str, ...]:
    """Return flags as arguments: True is a bare switch, False and None vanish.

    One-letter flags take one dash.
    """
    arguments: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        arguments.append(f"-{name}" if len(name) == 1 else f"--{name}")
        if value is not True:
            arguments.append(value if isinstance(value, str) else json.dumps(value))
    return tuple(arguments)
