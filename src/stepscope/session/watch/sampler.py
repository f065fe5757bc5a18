"""Samples the machine while a launch lives: one thread on an absolute schedule.

The engine's metrics have a thread of their own, since an engine may answer late.
The load client's workers are other processes: nothing here delays their clocks.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stepscope.clock import Clock
from stepscope.recipe.records import Telemetry
from stepscope.run.samples import GpuSample, HostSample, ProcessSample
from stepscope.session.http import get
from stepscope.session.nvml import Gpus
from stepscope.session.watch.host import host_sample
from stepscope.session.watch.processes import Processes, Role

#: Processes are charged in ticks of 10 ms: oftener tells nothing.
_PROCESS_INTERVAL_NS = 200_000_000
_METRICS_TIMEOUT_S = 2.0

Sample = GpuSample | HostSample | ProcessSample


class Sink(Protocol):
    """Where samples go."""

    def put_samples(self, samples: list[Sample]) -> None:
        """Keep samples."""
        ...

    def put_metrics_text(self, at_ns: int, text: str) -> None:
        """Keep the body of /metrics."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to watch.

    Attributes:
        roots: Gives the process ids under which the server is found.
        role: What a process of the server does.
        metrics_url: The engine's metrics; None: it has none.
        here: False when the server runs on another machine, of which neither GPU nor
            host nor processes can be seen from here.
    """

    roots: Callable[[], set[int]]
    role: Role
    metrics_url: str | None
    here: bool = True


class Sampler:
    """Samples into ``sink`` between ``start`` and ``stop``.

    ``error`` holds what the sink raised: a full disk ends sampling, and the session
    must look.
    """

    def __init__(
        self, sink: Sink, clock: Clock, plan: Telemetry, gpus: Gpus | None
    ) -> None:
        self._sink, self._clock, self._plan, self._gpus = sink, clock, plan, gpus
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.error: OSError | None = None

    def start(self, target: Target) -> None:
        """Begin to sample a launch."""
        self._stop.clear()
        self._threads = [threading.Thread(target=self._machine, args=(target,))]
        if target.metrics_url is not None:
            self._threads.append(
                threading.Thread(target=self._metrics, args=(target.metrics_url,))
            )
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def stop(self) -> None:
        """End and wait for the last sample."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _METRICS_TIMEOUT_S)
        self._threads = []

    def _machine(self, target: Target) -> None:
        interval = round(self._plan.interval_s * 1e9)
        processes = Processes(target.roots, target.role)
        at = next_process = self._clock.now_ns()
        while True:
            found: list[Sample] = []
            if target.here:
                if self._gpus is not None:
                    found += self._gpus.sample(self._clock.now_ns())
                found.append(host_sample(self._clock.now_ns()))
            if at >= next_process:
                found += processes.sample(self._clock.now_ns())
                next_process += max(_PROCESS_INTERVAL_NS, interval)
            if not self._kept(self._sink.put_samples, found):
                return
            at, wait_s = next_tick(at, interval, self._clock.now_ns())
            if self._stop.wait(wait_s):
                return

    def _metrics(self, url: str) -> None:
        interval = round(self._plan.metrics_interval_s * 1e9)
        at = self._clock.now_ns()
        while True:
            asked = self._clock.now_ns()
            answer = get(url, timeout_s=_METRICS_TIMEOUT_S)
            if answer is not None and answer[0] == 200:
                text = answer[1].decode("utf-8", "replace")
                if not self._kept(self._sink.put_metrics_text, asked, text):
                    return
            at, wait_s = next_tick(at, interval, self._clock.now_ns())
            if self._stop.wait(wait_s):
                return

    def _kept(self, put: Callable[..., None], *what: object) -> bool:
        try:
            put(*what)
        except OSError as error:
            self.error = error
            return False
        return True


def next_tick(last_ns: int, interval_ns: int, now_ns: int) -> tuple[int, float]:
    """Return the next instant of the schedule and the seconds until then.

    Ticks that were missed are left out: a late sample is not followed by a burst.
    """
    behind = max(0, now_ns - last_ns)
    at = last_ns + interval_ns * (behind // interval_ns + 1)
    return at, (at - now_ns) / 1e9
