"""Where a session runs: everything that touches the world beside the archive.

Two members: this machine, and the scripted one of the tests.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stepscope.clock import Clock
from stepscope.load.drive import drive
from stepscope.load.probe import ProbeResult, probe
from stepscope.load.spec import LoadProgress, LoadResult, LoadSpec
from stepscope.recipe.records import Telemetry
from stepscope.session.halt import Halt
from stepscope.session.http import get, post
from stepscope.session.nvml import Gpus
from stepscope.session.server import LocalServer, Server, ServerOrder
from stepscope.session.watch.sampler import Sampler, Sink, Target

OnProgress = Callable[[LoadProgress], None]


class Watcher(Protocol):
    """Samples the machine while a launch lives."""

    error: OSError | None

    def start(self, target: Target) -> None:
        """Begin to sample a launch."""
        ...

    def stop(self) -> None:
        """End and wait for the last sample."""
        ...


class Site(Protocol):
    """What the phases may do to the world."""

    gpus: Gpus | None

    def server(self, order: ServerOrder) -> Server:
        """Return a server that is not yet started."""
        ...

    def watcher(self, sink: Sink, plan: Telemetry) -> Watcher:
        """Return what samples into ``sink``."""
        ...

    def get(self, url: str, *, timeout_s: float) -> tuple[int, bytes] | None:
        """Return status and body of a GET, or None where no answer came."""
        ...

    def post(
        self, url: str, body: bytes, *, timeout_s: float
    ) -> tuple[int, bytes] | None:
        """Return status and body of a POST, or None where no answer came."""
        ...

    def probe(self, spec: LoadSpec) -> ProbeResult:
        """Send one request and look at the answer."""
        ...

    def drive(
        self,
        spec: LoadSpec,
        folder: Path,
        *,
        on_progress: OnProgress,
        stop: threading.Event,
    ) -> LoadResult:
        """Carry the load of one cell."""
        ...


class LocalSite:
    """This machine."""

    def __init__(self, clock: Clock, halt: Halt, gpus: Gpus | None) -> None:
        self._clock, self._halt, self.gpus = clock, halt, gpus

    def server(self, order: ServerOrder) -> Server:
        """Return a process of ours, not yet started."""
        return LocalServer(order, self._halt)

    def watcher(self, sink: Sink, plan: Telemetry) -> Watcher:
        """Return the sampler."""
        return Sampler(sink, self._clock, plan, self.gpus)

    def get(self, url: str, *, timeout_s: float) -> tuple[int, bytes] | None:
        """Return status and body of a GET, or None where no answer came."""
        return get(url, timeout_s=timeout_s)

    def post(
        self, url: str, body: bytes, *, timeout_s: float
    ) -> tuple[int, bytes] | None:
        """Return status and body of a POST, or None where no answer came."""
        return post(url, body, timeout_s=timeout_s)

    def probe(self, spec: LoadSpec) -> ProbeResult:
        """Send one request and look at the answer."""
        return probe(spec, self._clock)

    def drive(
        self,
        spec: LoadSpec,
        folder: Path,
        *,
        on_progress: OnProgress,
        stop: threading.Event,
    ) -> LoadResult:
        """Carry the load of one cell."""
        return drive(
            spec, folder, clock=self._clock, on_progress=on_progress, stop=stop
        )
