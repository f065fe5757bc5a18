"""What every phase of a session shares, and the load specs that follow from it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from stepscope.clock import Clock
from stepscope.engines.definition import EngineDef
from stepscope.load.of_workload import arrivals_of, concurrency_of, source_of
from stepscope.load.spec import LoadSpec
from stepscope.recipe.records import CellPlan, Recipe
from stepscope.recipe.schema import cpu_set
from stepscope.run.run import AppliedFix, Launch
from stepscope.run.serverlog import BootVerdict, ServerLog
from stepscope.session.book import Book
from stepscope.session.halt import Halt
from stepscope.session.observer import Observer
from stepscope.session.site import Site, Watcher

_LOCAL_HOSTS = frozenset({"localhost", "::1", "0.0.0.0"})  # noqa: S104  # compared only

#: A failed boot's log and the exit code of its process, to a verdict. Who measures does
#: not explain: the caller of the session brings it.
Doctor = Callable[[ServerLog, int | None], BootVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The session, as its phases see it.

    Attributes:
        recipe: What to run.
        engine: What the recipe's engine is.
        model_config: Text of the model's config.json, where there is one.
        port: Where our servers listen; None where nothing boots.
        site: The world.
        watcher: Samples while a launch lives.
        book: The archive.
        clock: Time.
        observer: Hears what happens.
        halt: Says when to stop.
        doctor: Explains a boot that failed; None: none is retried.
        fixes: What each configuration needed to boot, by its name.
    """

    recipe: Recipe
    engine: EngineDef
    model_config: str | None
    port: int | None
    site: Site
    watcher: Watcher
    book: Book
    clock: Clock
    observer: Observer
    halt: Halt
    doctor: Doctor | None = None
    fixes: dict[str, tuple[AppliedFix, ...]] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        """Where requests go."""
        server = self.recipe.server
        if server is not None:
            return server.base_url
        return f"http://{self.recipe.host}:{self.port}"

    @property
    def metrics_url(self) -> str | None:
        """The engine's metrics; None: it has none."""
        server = self.recipe.server
        if server is not None and server.metrics_url is not None:
            return server.metrics_url
        if self.engine.metrics_path is None:
            return None
        return f"{self.base_url.rstrip('/')}{self.engine.metrics_path}"

    @property
    def server_is_here(self) -> bool:
        """False when the server runs on another machine as far as we can tell."""
        if self.engine.boots:
            return True
        host = urlsplit(self.base_url).hostname or ""
        return host in _LOCAL_HOSTS or host.startswith("127.")

    def launch_folder(self, launch: Launch) -> Path:
        """Return the folder of a launch, made."""
        return self.book.writer.launch_dir(launch.name)

    def load_spec(self, launch: Launch, cell: CellPlan) -> LoadSpec:
        """Return what the client is to do in a cell."""
        work, recipe, engine = cell.workload, self.recipe, self.engine
        # An engine that writes a timeline answers nobody meanwhile.
        pause_s = recipe.tracing.stop_timeout_s if recipe.tracing else 0.0
        pause_s = pause_s if cell.capture == "traced" else 0.0
        return LoadSpec(
            base_url=self.base_url,
            endpoint=work.endpoint,
            model=engine.request_model(recipe) or "",
            n_prompts=work.n_prompts,
            concurrency=concurrency_of(work),
            input_tokens=work.input_tokens,
            output_tokens=work.output_tokens,
            arrivals=arrivals_of(work),
            source=source_of(work),
            ignore_eos=work.ignore_eos,
            temperature=work.temperature,
            seed=work.seed or 0,
            token_ids=engine.accepts_token_ids(work.endpoint),
            vocab_size=engine.n_vocabulary or vocabulary(self.model_config),
            extra_body=dict(engine.extra_body),
            api_key_env=recipe.api_key_env,
            workers=recipe.load_workers,
            header_timeout_s=max(recipe.request_timeout_s, pause_s),
            stall_timeout_s=max(recipe.stall_timeout_s, pause_s),
            total_timeout_s=recipe.total_timeout_s + pause_s,
            cpus=(
                client_cpus(launch.cpus, os.sched_getaffinity(0))
                if recipe.load_workers == "local"
                else None
            ),
        )


def client_cpus(server: str | None, ours: set[int]) -> str | None:
    """Return the processors that the server's allocation leaves to the client.

    None when the server has no allocation, or leaves nothing: then they share.
    """
    if server is None:
        return None
    left = ours - (cpu_set(server) or frozenset())
    return ",".join(str(n) for n in sorted(left)) or None


def vocabulary(config: str | None) -> int | None:
    """Return the vocabulary size that a config.json says; None: it does not."""
    if config is None:
        return None
    found = json.loads(config)
    if not isinstance(found, dict):
        return None
    text = found.get("text_config")
    for part in (found, text if isinstance(text, dict) else {}):
        size = part.get("vocab_size")
        if isinstance(size, int) and size > 0:
            return size
    return None
