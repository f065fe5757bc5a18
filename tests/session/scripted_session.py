"""A scripted world: servers and load that do what a test says, and a manual clock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stepscope.clock import ManualClock
from stepscope.load.probe import ProbeResult
from stepscope.load.spec import LoadProgress, LoadResult, LoadSpec
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Telemetry
from stepscope.run.client import ClientHealth
from stepscope.run.frames import frame
from stepscope.run.requests import Request
from stepscope.session.execute import Order, Outcome, execute_at
from stepscope.session.halt import Halt
from stepscope.session.nvml import Gpus
from stepscope.session.server import Server, ServerOrder, Stopped
from stepscope.session.watch.sampler import Sink, Target

RECIPE = """
name = "scripted"
engine = "embedded"
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [1, 2]
n_prompts = 2
[warm_up]
blocks = 1
[[patch]]
name = "other"
[patch.flags]
threads = 2
"""

HEALTH = ClientHealth(
    processes=1,
    loop="asyncio",
    stamps="user",
    delay_ms=None,
    unstamped_pct=None,
    merged_reads_pct=None,
    busy_pct=None,
    cpu_pct_max=None,
    late_sends_ms_p99=None,
    held_pct=None,
    chunks_per_s_peak=None,
    tokens_per_chunk_mean=None,
    verdict="ok",
)

PROBED = ProbeResult(
    streams=True,
    usage=True,
    n_chunks=4,
    output_tokens=4,
    prompt_tokens=8,
    tokens_per_chunk=1.0,
    http_status=200,
    failure=None,
    raw=b"data: x",
)


class ScriptedServer:
    """Dies when its test says so."""

    def __init__(self, events: list[str]) -> None:
        self._events = events
        self.code: int | None = None
        self.end = Stopped()

    def start(self) -> None:
        self._events.append("start")

    def exit_code(self) -> int | None:
        return self.code

    def roots(self) -> set[int]:
        return set()

    def stop(self) -> Stopped:
        self._events.append("end server")
        self.code = 0 if self.code is None else self.code
        return self.end


class ScriptedWatcher:
    """Samples nothing."""

    error: OSError | None = None

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def start(self, target: Target) -> None:
        self._events.append("watch")

    def stop(self) -> None:
        self._events.append("unwatch")


Drive = Callable[["ScriptedSite", LoadSpec, threading.Event], LoadResult | None]


@dataclass
class ScriptedSite:
    """Everything happens at once, and is written down.

    ``probes`` are answered first, then ``probed`` for good. ``boots`` says for each
    launch after how many looks it is ready, or its exit code when negative; ``drives``
    replaces the drive of a cell by its folder's name, and ``took_ns`` says how long its
    requests take to their first and last content.
    """

    clock: ManualClock
    boots: list[int] = field(default_factory=list)
    drives: dict[str, Drive] = field(default_factory=dict)
    took_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    probed: ProbeResult = PROBED
    probes: list[ProbeResult] = field(default_factory=list)
    end: Stopped = field(default_factory=Stopped)
    models: bytes = b'{"data": [{"id": "a"}, {"id": "b"}]}'
    log: bytes = b""
    events: list[str] = field(default_factory=list)
    specs: list[LoadSpec] = field(default_factory=list)
    orders: list[ServerOrder] = field(default_factory=list)
    gpus: Gpus | None = None
    _servers: list[ScriptedServer] = field(default_factory=list)
    _looks: int = 0

    @property
    def last_server(self) -> ScriptedServer:
        return self._servers[-1]

    def server(self, order: ServerOrder) -> Server:
        order.log.write_bytes(self.log)
        server = ScriptedServer(self.events)
        server.end = self.end
        self._servers.append(server)
        self.orders.append(order)
        self._looks = 0
        return server

    def watcher(self, sink: Sink, plan: Telemetry) -> ScriptedWatcher:
        return ScriptedWatcher(self.events)

    def get(self, url: str, *, timeout_s: float) -> tuple[int, bytes] | None:
        path = "/" + url.split("/", 3)[3]
        self.events.append(f"GET {path}")
        if path == "/metrics":
            return 200, b"up 1\n"
        if path == "/v1/models":
            return 200, self.models
        script = self.boots[len(self._servers) - 1] if self.boots else 1
        self._looks += 1
        if script < 0:
            self.last_server.code = -script
            return None
        return (200, b"") if self._looks >= script else (503, b"loading")

    def post(
        self, url: str, body: bytes, *, timeout_s: float
    ) -> tuple[int, bytes] | None:
        self.events.append(f"POST /{url.split('/', 3)[3]}")
        return 200, b""

    def probe(self, spec: LoadSpec) -> ProbeResult:
        self.events.append("probe request")
        return self.probes.pop(0) if self.probes else self.probed

    def drive(
        self,
        spec: LoadSpec,
        folder: Path,
        *,
        on_progress: Callable[[LoadProgress], None],
        stop: threading.Event,
    ) -> LoadResult:
        self.events.append(f"drive {folder.name}")
        self.specs.append(spec)
        on_progress(LoadProgress(n_sent=1))
        script = self.drives.get(folder.name)
        result = None if script is None else script(self, spec, stop)
        if result is not None:
            return result
        began = self.clock.now_ns()
        self.clock.advance(1_000_000)
        with (folder / "requests-0.journal").open("ab") as stream:
            for index in range(spec.n_prompts):
                took = self.took_ns.get(folder.name, (10, 40))
                request = _request(index, began, *took)
                stream.write(frame(msgspec.msgpack.encode(request)))
        return LoadResult(
            started_at_ns=began,
            ended_at_ns=self.clock.now_ns(),
            health=HEALTH,
            n_ok=spec.n_prompts,
            n_failed=0,
        )


def _request(index: int, at_ns: int, first_ns: int, last_ns: int) -> Request:
    return Request(
        index=index,
        sent_at_ns=at_ns,
        first_content_at_ns=at_ns + first_ns,
        last_content_at_ns=at_ns + last_ns,
        ended_at_ns=at_ns + last_ns + 10,
        output_tokens=4,
        http_status=200,
    )


def broken_off(site: ScriptedSite, n_ok: int = 0) -> LoadResult:
    """Return what a drive gives that was told to stop."""
    return LoadResult(
        started_at_ns=site.clock.now_ns(),
        ended_at_ns=site.clock.now_ns(),
        health=HEALTH,
        n_ok=n_ok,
        n_failed=1,
        stopped=True,
    )


class Notes:
    """An observer that writes down what it hears."""

    def __init__(self, events: list[str]) -> None:
        self._events = events
        self.said: list[str] = []
        self.cells: list[tuple[str, int, int]] = []

    def phase(self, name: str, detail: str) -> None:
        self._events.append(f"[{name}]")

    def cell(self, name: str, number: int, total: int, n_requests: int) -> None:
        self.cells.append((name, number, total))

    def progress(self, progress: LoadProgress) -> None:
        """Hear it."""

    def note(self, severity: str, text: str) -> None:
        self.said.append(f"{severity}: {text}")


class Impatient(Notes):
    """Asks to stop as soon as one thing is told."""

    def __init__(self, halt: Halt, at: str) -> None:
        super().__init__([])
        self._halt, self._at = halt, at

    def note(self, severity: str, text: str) -> None:
        if text == self._at:
            self._halt.ask()


@dataclass
class World:
    """A scripted session."""

    out: Path
    site: ScriptedSite
    clock: ManualClock
    notes: Notes
    halt: Halt = field(default_factory=Halt)

    def run(self, text: str = RECIPE, *, resume: bool = False) -> Outcome:
        plan = expand(load_recipe(text, "recipe.toml"))
        order = Order(plan, text, self.out, resume)
        return execute_at(self.site, order, self.clock, self.notes, self.halt)

    def again(self) -> "World":
        """Return the world of a later session on the same run."""
        self.clock.advance(1_000_000_000)
        site = ScriptedSite(self.clock)
        return World(self.out, site, self.clock, Notes(site.events))


def new_world(folder: Path) -> World:
    """Return a world in which nothing has happened."""
    clock = ManualClock(at_ns=1_000_000_000)
    site = ScriptedSite(clock)
    return World(folder / "run", site, clock, Notes(site.events))
