"""One launch: boot, probe, its cells, stop."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope.archive.layout import METRICS_AFTER, METRICS_BEFORE, SERVER_LOG
from stepscope.archive.writer import RunWriter
from stepscope.clock import Clock
from stepscope.engines.definition import EngineDef
from stepscope.errors import SessionError, StepscopeError
from stepscope.findings import Finding
from stepscope.load.drive import drive
from stepscope.load.probe import ProbeResult, probe
from stepscope.load.spec import LoadResult, LoadSpec
from stepscope.parse.prometheus import parse_metrics
from stepscope.recipe.records import CellPlan, LaunchPlan, Recipe
from stepscope.run.run import Cell, Launch
from stepscope.run.samples import MetricsSnapshot
from stepscope.session.http import get
from stepscope.session.nvml import Gpus
from stepscope.session.observer import Observer
from stepscope.session.sampler import Sampler
from stepscope.session.server import LocalServer, RunningServer, Server

_POLL_NS = 100_000_000
_PROBE_TOKENS = 16
_GPU_BACK_NS = 20_000_000_000
_GPU_SLACK_BYTES = 512 << 20
_LOG_TAIL_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every launch of a session shares."""

    writer: RunWriter
    lock: threading.Lock
    sampler: Sampler
    clock: Clock
    observer: Observer
    stop: threading.Event
    gpus: Gpus | None


def make_server(
    engine: EngineDef,
    recipe: Recipe,
    launch: LaunchPlan,
    port: int,
    folder: Path,
    clock: Clock,
) -> Server:
    """Return the server of a launch: a process of ours, or one that runs already."""
    if not engine.boots:
        return RunningServer(recipe.server.pids if recipe.server else ())
    return LocalServer(
        engine.command(recipe, launch.configuration, port),
        engine.environment(recipe, launch.configuration),
        folder / SERVER_LOG,
        launch.configuration.cpus,
        clock,
    )


class LaunchRunner:
    """Runs launches one after the other and counts what came of them."""

    def __init__(
        self,
        tools: Tools,
        engine: EngineDef,
        recipe: Recipe,
        port: int | None,
        server_maker: Callable[..., Server],
        done: set[str],
    ) -> None:
        self._t, self._engine, self._recipe = tools, engine, recipe
        self._port, self._maker, self._done = port, server_maker, done
        self.n_measured = 0
        self.failures: list[str] = []
        self.interrupted = False

    def run(self, plan: LaunchPlan) -> None:
        """Run one launch; whatever happens, its server is ended."""
        cells = [c for c in plan.cells if c.warm_up or c.name not in self._done]
        if all(c.warm_up for c in cells) and self._done:
            return
        record = self._record(plan)
        folder = self._t.writer.launch_dir(plan.name)
        port = self._port or 0
        server = self._maker(
            self._engine, self._recipe, plan, port, folder, self._t.clock
        )
        used_before = None if self._t.gpus is None else self._t.gpus.used_bytes()
        try:
            record, why = self._boot(plan, record, server, folder)
            if why is None:
                record, why = self._probed(record, plan)
            if why is not None:
                self._failed(record, cells, why)
                return
            self._measure(record, cells, server, folder)
        finally:
            self._t.sampler.stop()
            self._end(record, server, used_before)

    def _record(self, plan: LaunchPlan) -> Launch:
        engine, recipe = self._engine, self._recipe
        base = f"http://{recipe.host}:{self._port}"
        if recipe.server is not None:
            base = recipe.server.base_url
        return Launch(
            name=plan.name,
            configuration=plan.configuration.name,
            command=engine.command(recipe, plan.configuration, self._port or 0),
            environment=engine.environment(recipe, plan.configuration),
            cpus=plan.configuration.cpus,
            base_url=base,
            log_path=f"launches/{plan.name}/{SERVER_LOG}" if engine.boots else None,
        )

    def _put(self, launch: Launch) -> None:
        with self._t.lock:
            self._t.writer.put_launch(launch)

    # -- boot -------------------------------------------------------------------
    def _boot(
        self, plan: LaunchPlan, record: Launch, server: Server, folder: Path
    ) -> tuple[Launch, str | None]:
        clock = self._t.clock
        self._t.observer.phase("boot", f"{plan.name}: {self._engine.name}")
        started = clock.now_ns()
        record = msgspec.structs.replace(record, started_at_ns=started)
        self._put(record)
        try:
            server.start()
        except SessionError as error:
            return record, str(error)
        self._t.sampler.start(self._engine, server.roots, self._metrics_url(record))
        why = self._wait_ready(record, server, folder)
        ready = None if why else clock.now_ns()
        record = msgspec.structs.replace(
            record, ready=why is None, ready_at_ns=ready, exit_code=server.exit_code()
        )
        if why is None:
            took = (clock.now_ns() - started) / 1e9
            self._t.observer.note(f"{plan.name} ready after {took:.1f} s")
        self._put(record)
        return record, why

    def _wait_ready(self, record: Launch, server: Server, folder: Path) -> str | None:
        clock = self._t.clock
        until = clock.now_ns() + round(self._recipe.readiness_timeout_s * 1e9)
        while clock.now_ns() < until:
            if self._t.stop.is_set():
                return "interrupted while it booted"
            code = server.exit_code()
            if code is not None:
                return f"exit code {code} before it was ready: {last_line(folder)}"
            answer = get(f"{record.base_url}{self._engine.ready_path}", timeout_s=2.0)
            if answer is not None and answer[0] == 200 and self._log_says(folder):
                return None
            if not self._engine.boots and answer is None:
                return f"nothing answers at {record.base_url}"
            if not self._engine.boots:
                return None
            clock.sleep_until(clock.now_ns() + _POLL_NS)
        return f"not ready after {self._recipe.readiness_timeout_s:.0f} s"

    def _log_says(self, folder: Path) -> bool:
        word = self._engine.ready_log
        if word is None:
            return True
        try:
            return word.encode() in (folder / SERVER_LOG).read_bytes()
        except OSError:
            return False

    # -- probe ------------------------------------------------------------------
    def _probed(self, record: Launch, plan: LaunchPlan) -> tuple[Launch, str | None]:
        first = plan.cells[0]
        self._t.observer.phase("probe", plan.name)
        spec = msgspec.structs.replace(
            self._spec(record, first),
            n_prompts=1,
            concurrency=1,
            output_tokens=min(_PROBE_TOKENS, first.workload.output_tokens or 1),
        )
        result = probe(spec, self._t.clock)
        name = first.name
        (self._t.writer.cell_dir(name) / "probe.raw").write_bytes(result.raw)
        record = msgspec.structs.replace(
            record,
            probe={
                k: v
                for k, v in msgspec.to_builtins(result).items()
                if k != "raw" and not isinstance(v, bytes)
            },
        )
        self._put(record)
        for finding in _probe_findings(record.name, result, spec):
            with self._t.lock:
                self._t.writer.put_finding(finding)
            self._t.observer.note(f"{finding.severity}: {finding.message}")
        if result.failure is not None and result.failure != "no-usage":
            status = f" (HTTP {result.http_status})" if result.http_status else ""
            return record, f"probe{status}: {result.failure}: {result.failure_detail}"
        if not result.usage:
            return record, "probe: no usage record came, so tokens can not be counted"
        return record, None

    def _spec(self, record: Launch, cell: CellPlan) -> LoadSpec:
        work, recipe, engine = cell.workload, self._recipe, self._engine
        return LoadSpec(
            base_url=record.base_url or "",
            endpoint=work.endpoint,
            model=engine.request_model(recipe) or "",
            n_prompts=work.n_prompts,
            concurrency=work.concurrency or 1,
            input_tokens=work.input_tokens or 1,
            output_tokens=work.output_tokens or 1,
            ignore_eos=work.ignore_eos,
            temperature=work.temperature,
            seed=work.seed or 0,
            token_ids=engine.accepts_token_ids(work.endpoint),
            vocab_size=engine.n_vocabulary,
            extra_body={
                k: v
                for k, v in engine.extra_body.items()
                if v is None or isinstance(v, str | int | float | bool)
            },
            api_key_env=recipe.api_key_env,
            header_timeout_s=recipe.request_timeout_s,
            stall_timeout_s=recipe.stall_timeout_s,
        )

    # -- measure ----------------------------------------------------------------
    def _measure(
        self, record: Launch, cells: list[CellPlan], server: Server, folder: Path
    ) -> None:
        died: str | None = None
        for number, cell in enumerate(cells, 1):
            if died is not None or self._t.stop.is_set():
                why = died or "interrupted before it began"
                self._put_cell(
                    cell, status="failed" if died else "interrupted", why=why
                )
                self.interrupted |= died is None
                continue
            self._t.observer.phase("warm-up" if cell.warm_up else "measure", cell.name)
            self._t.observer.cell(
                cell.name, number, len(cells), cell.workload.n_prompts
            )
            died = self._cell(record, cell, server, folder)
            if self._t.sampler.error is not None:
                raise self._t.sampler.error

    def _cell(
        self, record: Launch, plan: CellPlan, server: Server, folder: Path
    ) -> str | None:
        """Measure one cell; return why the server is gone, or None while it lives."""
        t = self._t
        where = t.writer.cell_dir(plan.name)
        url = self._metrics_url(record)
        before = self._metrics(url, where / METRICS_BEFORE)
        base = Cell(
            name=plan.name,
            configuration=plan.configuration,
            launch=plan.launch,
            workload=plan.workload,
            repeat=plan.repeat,
            warm_up=plan.warm_up,
            status="interrupted",
            metrics_before=before,
            started_at_ns=t.clock.now_ns(),
            raw_path=f"cells/{plan.name}",
        )
        with t.lock:
            t.writer.put_cell(base)
        watch = _Watch(server, t.stop)
        try:
            result = drive(
                self._spec(record, plan),
                where,
                clock=t.clock,
                on_progress=t.observer.progress,
                stop=watch.event,
            )
        except StepscopeError as error:
            watch.close()
            self._put_cell(plan, status="failed", why=str(error))
            self.failures.append(f"{plan.name}: {error}")
            return None
        died = watch.close()
        why = None if died is None else f"server died, exit {died}: {last_line(folder)}"
        after = None if died is not None else self._metrics(url, where / METRICS_AFTER)
        self._ended(base, after, result, why)
        return why

    def _ended(
        self,
        base: Cell,
        after: MetricsSnapshot | None,
        result: LoadResult,
        why: str | None,
    ) -> None:
        t = self._t
        status = "done"
        if why is not None:
            status = "failed"
        elif result.stopped:
            status = "interrupted"
            self.interrupted = True
        elif not result.n_ok:
            status = "failed"
            why = f"all {result.n_failed} requests failed"
        cell = msgspec.structs.replace(
            base,
            status=status,
            metrics_after=after,
            ended_at_ns=t.clock.now_ns(),
            client=result.health,
            failure=why,
        )
        with t.lock:
            t.writer.close_cell(base.name)
            t.writer.put_cell(cell)
        if why is not None:
            self.failures.append(f"{base.name}: {why}")
            t.observer.note(f"error: {base.name}: {why}")
        elif status == "done" and not base.warm_up:
            self.n_measured += 1

    def _metrics_url(self, record: Launch) -> str | None:
        server = self._recipe.server
        if server is not None and server.metrics_url is not None:
            return server.metrics_url
        if self._engine.metrics_path is None:
            return None
        return f"{record.base_url}{self._engine.metrics_path}"

    def _metrics(self, url: str | None, body: Path) -> MetricsSnapshot | None:
        if url is None:
            return None
        at = self._t.clock.now_ns()
        answer = get(url)
        if answer is None or answer[0] != 200:
            return None
        body.write_bytes(answer[1])
        text = answer[1].decode("utf-8", "replace")
        return MetricsSnapshot(at_ns=at, values=parse_metrics(text))

    # -- failure and end --------------------------------------------------------
    def _failed(self, record: Launch, cells: list[CellPlan], why: str) -> None:
        record = msgspec.structs.replace(record, failure=why)
        self._put(record)
        status = "interrupted" if self._t.stop.is_set() else "failed"
        self.interrupted |= status == "interrupted"
        for cell in cells:
            self._put_cell(cell, status=status, why=f"launch failed: {why}")
        self.failures.append(f"{record.name}: {why}")
        self._t.observer.note(f"error: {record.name}: {why}")

    def _put_cell(self, plan: CellPlan, *, status: str, why: str) -> None:
        cell = Cell(
            name=plan.name,
            configuration=plan.configuration,
            launch=plan.launch,
            workload=plan.workload,
            repeat=plan.repeat,
            warm_up=plan.warm_up,
            status="failed" if status == "failed" else "interrupted",
            failure=why,
        )
        with self._t.lock:
            self._t.writer.put_cell(cell)

    def _end(
        self, record: Launch, server: Server, used_before: list[int | None] | None
    ) -> None:
        self._t.observer.phase("stop", record.name)
        left = server.stop()
        findings = [
            Finding(
                code="orphan-process",
                severity="error",
                message=f"process {pid} of {record.name} did not end",
                hint=f"End it by hand: kill -9 {pid}",
                launch=record.name,
            )
            for pid in sorted(left)
        ]
        if used_before is not None and self._engine.boots:
            findings += self._gpu_left(record, used_before)
        latest = self._latest(record, server)
        with self._t.lock:
            for finding in findings:
                self._t.writer.put_finding(finding)
            self._t.writer.put_launch(latest)

    def _latest(self, record: Launch, server: Server) -> Launch:
        """Return the record with its end; what the phases added is in ``_records``."""
        from stepscope.archive.reader import read_records

        known = {x.name: x for x in read_records(self._t.writer.path).launches}
        return msgspec.structs.replace(
            known.get(record.name, record),
            stopped_at_ns=self._t.clock.now_ns(),
            exit_code=server.exit_code(),
        )

    def _gpu_left(self, record: Launch, before: list[int | None]) -> list[Finding]:
        """Wait for the memory to come back; name a GPU where it does not."""
        assert self._t.gpus is not None
        clock = self._t.clock
        until = clock.now_ns() + _GPU_BACK_NS
        while True:
            pairs = list(zip(before, self._t.gpus.used_bytes(), strict=True))
            held = [
                i
                for i, (old, new) in enumerate(pairs)
                if old is not None and new is not None and new > old + _GPU_SLACK_BYTES
            ]
            if not held or clock.now_ns() > until:
                break
            clock.sleep_until(clock.now_ns() + _POLL_NS)
        return [
            Finding(
                code="orphan-process",
                severity="error",
                message=f"GPU {i} still holds memory that {record.name} took",
                hint="nvidia-smi lists the process; end it before the next boot.",
                launch=record.name,
            )
            for i in held
        ]


class _Watch:
    """Sets ``event`` when the server dies or the session is told to stop."""

    def __init__(self, server: Server, stop: threading.Event) -> None:
        self.event = threading.Event()
        self._server, self._stop = server, stop
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            if self._stop.is_set() or self._server.exit_code() is not None:
                self.event.set()
                return

    def close(self) -> int | None:
        """Stop watching; return the server's exit code, None while it lives."""
        self._over.set()
        self._thread.join()
        return self._server.exit_code()


def last_line(folder: Path) -> str:
    """Return the last telling line of a server's log: an error before a mere line."""
    with contextlib.suppress(OSError):
        path = folder / SERVER_LOG
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
        lines = [" ".join(x.split()) for x in text.splitlines() if x.strip()]
        telling = [x for x in lines if "rror" in x]
        if telling or lines:
            return (telling or lines)[-1][:300]
    return "its log is empty"


def _probe_findings(launch: str, result: ProbeResult, spec: LoadSpec) -> list[Finding]:
    found = []
    if result.streams is False:
        found.append(
            Finding(
                code="not-streaming",
                severity="warning",
                message=f"{result.output_tokens} tokens came in one chunk: the server"
                " does not stream, so TTFT and TPOT mean nothing",
                hint="Turn streaming on in the server or in the proxy before it.",
                launch=launch,
            )
        )
    asked = spec.output_tokens
    if result.output_tokens is not None and result.output_tokens != asked:
        found.append(
            Finding(
                code="early-stop",
                severity="warning",
                message=f"the probe asked for {asked} tokens and got"
                f" {result.output_tokens}: ignore_eos may not be honoured",
                launch=launch,
            )
        )
    if (
        spec.token_ids
        and result.prompt_tokens is not None
        and result.prompt_tokens != spec.input_tokens
    ):
        found.append(
            Finding(
                code="token-count-mismatch",
                severity="warning",
                message=f"the server counts {result.prompt_tokens} tokens in a prompt"
                f" of {spec.input_tokens} token ids",
                launch=launch,
            )
        )
    return found
