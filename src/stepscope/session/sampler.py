"""Samples the machine on an absolute schedule while a launch lives, in one thread."""

import os
import threading
from collections.abc import Callable

from stepscope.archive.writer import RunWriter
from stepscope.clock import Clock
from stepscope.engines.definition import EngineDef
from stepscope.recipe.records import Telemetry
from stepscope.session.host import command_line, host_sample, process_sample, tree
from stepscope.session.http import get
from stepscope.session.nvml import Gpus

#: Processes come and go slowly, and reading /proc of many threads is not free.
_PROCESS_INTERVAL_NS = 500_000_000


class Sampler:
    """GPU, host, process and metrics samples into the archive.

    The archive's writer is not made for several threads: ``lock`` guards it, and the
    session takes the same one.
    """

    def __init__(
        self, writer: RunWriter, lock: threading.Lock, clock: Clock, plan: Telemetry
    ) -> None:
        self._writer, self._lock, self._clock, self._plan = writer, lock, clock, plan
        self._gpus = Gpus.open()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._roles: dict[int, str] = {}
        self.error: OSError | None = None

    @property
    def gpus(self) -> Gpus | None:
        """The machine's GPUs; None without an NVIDIA driver."""
        return self._gpus

    def start(
        self,
        engine: EngineDef,
        roots: Callable[[], set[int]],
        metrics_url: str | None,
    ) -> None:
        """Begin to sample a launch; ``roots`` gives the server's process ids."""
        self._stop.clear()
        self._roles.clear()
        self._thread = threading.Thread(
            target=self._run, args=(engine, roots, metrics_url), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End and wait for the last sample."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10.0)
            self._thread = None

    def close(self) -> None:
        """Release NVML."""
        self.stop()
        if self._gpus is not None:
            self._gpus.close()

    def _run(
        self,
        engine: EngineDef,
        roots: Callable[[], set[int]],
        metrics_url: str | None,
    ) -> None:
        interval = round(self._plan.interval_s * 1e9)
        metrics = round(self._plan.metrics_interval_s * 1e9)
        at = next_process = next_metrics = self._clock.now_ns()
        while not self._stop.is_set():
            try:
                self._once(at)
                if at >= next_process:
                    self._processes(engine, roots())
                    next_process = at + _PROCESS_INTERVAL_NS
                if metrics_url is not None and at >= next_metrics:
                    self._metrics(metrics_url)
                    next_metrics = at + metrics
            except OSError as error:
                # A full disk: the session sees it and ends the run.
                self.error = error
                return
            at = max(at + interval, self._clock.now_ns())
            self._stop.wait(max(0.0, (at - self._clock.now_ns()) / 1e9))

    def _once(self, at_ns: int) -> None:
        gpus = [] if self._gpus is None else self._gpus.sample(self._clock.now_ns())
        host = host_sample(self._clock.now_ns())
        with self._lock:
            for sample in gpus:
                self._writer.put_sample(sample)
            self._writer.put_sample(host)

    def _processes(self, engine: EngineDef, roots: set[int]) -> None:
        server = tree(roots)
        for pid in server:
            role = self._roles.get(pid)
            # vLLM gives its processes their titles only after they have started.
            if role in (None, "other", "api-server"):
                argv, name = command_line(pid)
                guard = "stepscope.session.guard" in argv
                self._roles[pid] = "guard" if guard else engine.role(argv, name)
        roles = {pid: self._roles[pid] for pid in server}
        for pid in tree({os.getpid()}) - server:
            argv = command_line(pid)[0]
            if pid == os.getpid() or "stepscope.load.worker" in argv:
                roles[pid] = "client"
        now = self._clock.now_ns()
        found = [process_sample(pid, role, now) for pid, role in roles.items()]
        with self._lock:
            for sample in found:
                if sample is not None:
                    self._writer.put_sample(sample)

    def _metrics(self, url: str) -> None:
        at = self._clock.now_ns()
        answer = get(url, timeout_s=2.0)
        if answer is None or answer[0] != 200:
            return
        with self._lock:
            self._writer.put_metrics_text(at, answer[1].decode("utf-8", "replace"))
