"""Capture: a kernel timeline of a load that is driven for it alone.

On a launch for traces every load comes first without the profiler and then with it.
While the second is carried, the profiler is switched on in the middle of a wave, where
all sequences decode, and off again after the asked number of steps. Whatever goes wrong
is recorded and fails nothing else.
"""

import contextlib
import math
import statistics
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope.archive.cells import requests_of
from stepscope.archive.layout import LAUNCHES, SERVER_LOG
from stepscope.engines.definition import TraceOrder
from stepscope.findings import Finding
from stepscope.load.spec import LoadProgress
from stepscope.parse.serverlog import parse_log
from stepscope.recipe.records import CellPlan, LaunchPlan, Tracing
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, TraceRef
from stepscope.session.context import Context
from stepscope.session.phases.cell import measured
from stepscope.session.phases.tracefiles import Written, written
from stepscope.session.server import Server
from stepscope.units import NS_PER_MS, NS_PER_S, ns, seconds

_POLL_S = 0.05
_START_TIMEOUT_S = 120.0
#: What a load must outlast beside the recording: the profiler's own start.
_SLACK_NS = 2 * NS_PER_S
#: Where no untraced load was measured before.
_STEP_NS = 20 * NS_PER_MS
_LOG_HEAD_BYTES = 1 << 20


def trace_order(context: Context, plan: LaunchPlan) -> TraceOrder | None:
    """Return where a launch is to write timelines; None: it takes none."""
    if not plan.traced:
        return None
    folder = context.book.writer.trace_dir(plan.name).absolute()
    return TraceOrder(folder=str(folder), version=_version(context))


def _version(context: Context) -> str | None:
    """Return the engine's version as a log of this run has it."""
    for log in sorted((context.book.writer.path / LAUNCHES).glob(f"*/{SERVER_LOG}")):
        with log.open("rb") as stream:
            head = stream.read(_LOG_HEAD_BYTES)
        version = parse_log(head, context.engine.log_format).version
        if version is not None:
            return version
    return None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a load went: nanoseconds of a step and of a whole wave."""

    step_ns: int
    wave_ns: int


def pace_of(requests: Iterable[Request]) -> Pace | None:
    """Return the pace of a load, by its requests; None where none tells.

    Medians of TPOT and of end-to-end latency: the client's own start is in neither.
    """
    steps, waves = [], []
    for request in requests:
        first, last = request.first_content_at_ns, request.last_content_at_ns
        tokens = request.output_tokens or 0
        if request.ok and first is not None and last is not None and tokens > 1:
            steps.append((last - first) // (tokens - 1))
            waves.append(last - request.sent_at_ns)
    if not steps:
        return None
    step_ns, wave_ns = statistics.median(steps), statistics.median(waves)
    return Pace(step_ns=max(round(step_ns), 1), wave_ns=max(round(wave_ns), 1))


class Capturing:
    """The cells of one launch that take a timeline, or prepare one."""

    def __init__(self, context: Context, launch: Launch, server: Server) -> None:
        self._context, self._launch, self._server = context, launch, server
        self._paces: dict[int | None, Pace] = {}

    def run(self, plan: CellPlan) -> Cell:
        """Carry an untraced or a traced load.

        Raises:
            OSError: The disk failed or is full.
        """
        concurrency = plan.workload.concurrency
        if plan.capture != "traced":
            cell = measured(self._context, self._launch, plan, self._server)
            folder = self._context.book.writer.cell_dir(plan.name)
            pace = pace_of(requests_of(folder)) if cell.status == "done" else None
            if pace is not None:
                self._paces[concurrency] = pace
            return cell
        tokens = plan.workload.output_tokens or 1
        usual = Pace(step_ns=_STEP_NS, wave_ns=tokens * _STEP_NS)
        return self._traced(plan, self._paces.get(concurrency, usual))

    def _traced(self, plan: CellPlan, pace: Pace) -> Cell:
        context, launch = self._context, self._launch
        order = TraceOrder(
            folder=str(context.book.writer.trace_dir(launch.name).absolute())
        )
        asked = context.recipe.tracing
        assert asked is not None
        window_ns = ns(asked.seconds) if asked.seconds else asked.steps * pace.step_ns
        recorder = _Recorder(context, order, asked, pace, window_ns)
        plan = _lasting(plan, pace, recorder.lead_ns + window_ns + _SLACK_NS)
        before = frozenset(Path(order.folder).iterdir())
        recorder.begin()
        try:
            cell = measured(
                context, launch, plan, self._server, on_progress=recorder.hear
            )
        finally:
            recorder.load_ended.set()
        if not recorder.joined(self._server):
            self._not_taken(plan, "the server ended, or the run was stopped")
            return cell
        if recorder.began:
            self._keep(plan, order, before, recorder.why)
        else:
            self._not_taken(plan, recorder.why or "the profiler was not started")
        return cell

    def _keep(
        self,
        plan: CellPlan,
        order: TraceOrder,
        before: frozenset[Path],
        why: str | None,
    ) -> None:
        """Move what was written into the run, and say what is missing.

        Args:
            plan: The cell.
            order: Where the server wrote.
            before: What lay there before.
            why: What went wrong while it was recorded; None: nothing.
        """
        context = self._context
        layout = context.engine.layout(self._flags())
        n_ranks = layout.tp * layout.dp * layout.pp
        found = written(context, Path(order.folder), before, n_ranks)
        kept = self._moved(plan, found)
        with contextlib.suppress(OSError):  # It holds what came before or too late.
            Path(order.folder).rmdir()
        why = why or found.why
        if not kept:
            self._not_taken(plan, why or "no timeline was written")
        elif why is not None or len(kept) < n_ranks:
            told = why or f"{len(kept)} of {n_ranks} ranks wrote one"
            self._find("trace-incomplete", plan, f"timeline of {plan.name}: {told}")
        for rank, path in kept:
            context.book.put_trace(
                TraceRef(
                    path=path,
                    concurrency=plan.workload.concurrency,
                    rank=rank,
                    cell=plan.name,
                    launch=self._launch.name,
                )
            )
            context.observer.note("info", f"{plan.name}: timeline of rank {rank} kept")

    def _flags(self) -> dict[str, str | int | float | bool | None]:
        name = self._launch.configuration
        return next(
            c.flags for c in self._context.recipe.configurations if c.name == name
        )

    def _moved(self, plan: CellPlan, found: Written) -> list[tuple[int, str]]:
        writer = self._context.book.writer
        folder = writer.trace_dir(plan.name)
        for path in found.others:
            path.rename(folder / path.name)
        kept = []
        for rank, path in found.traces:
            target = path.rename(folder / path.name)
            kept.append((rank, target.relative_to(writer.path).as_posix()))
        return kept

    def _not_taken(self, plan: CellPlan, why: str) -> None:
        self._find("trace-not-taken", plan, f"no timeline of {plan.name}: {why}")

    def _find(self, code: str, plan: CellPlan, message: str) -> None:
        self._context.book.put_finding(
            Finding(
                code=code,
                severity="warning",
                message=message,
                hint="The server's log of this launch may say why.",
                cell=plan.name,
                launch=self._launch.name,
            )
        )


def _lasting(plan: CellPlan, pace: Pace, least_ns: int) -> CellPlan:
    """Return the cell with as many whole waves as last for ``least_ns``."""
    work = plan.workload
    n_waves = math.ceil(least_ns / max(pace.wave_ns, 1))
    n_prompts = max(work.n_prompts, n_waves * (work.concurrency or 1))
    return msgspec.structs.replace(
        plan, workload=msgspec.structs.replace(work, n_prompts=n_prompts)
    )


class _Recorder:
    """Switches the profiler on and off beside the load, from a thread of its own.

    Attributes:
        lead_ns: From the first wave in flight to the start: half a wave, less half of
            the recording, so that the context is that of mid-answer.
        began: The profiler was started.
        why: What went wrong; None: nothing.
    """

    def __init__(
        self,
        context: Context,
        order: TraceOrder,
        asked: Tracing,
        pace: Pace,
        window_ns: int,
    ) -> None:
        self._context, self._order, self._asked = context, order, asked
        self._window_s = seconds(window_ns)
        self.lead_ns = max((pace.wave_ns - window_ns) // 2, pace.wave_ns // 4)
        self.began = False
        self.why: str | None = None
        self.load_ended = threading.Event()
        self._in_flight = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def hear(self, progress: LoadProgress) -> None:
        if progress.n_sent:
            self._in_flight.set()
        self._context.observer.progress(progress)

    def joined(self, server: Server) -> bool:
        """Wait for the end of the recording; False where it will not come."""
        while self._thread.is_alive():
            self._thread.join(_POLL_S)
            if self._context.halt.asked.is_set() or server.exit_code() is not None:
                return False
        return True

    def _run(self) -> None:
        while not self._in_flight.wait(_POLL_S):
            if self.load_ended.is_set():
                self.why = "the load ended before it was in flight"
                return
        if self.load_ended.wait(seconds(self.lead_ns)):
            self.why = "the load ended before the profiler was to start"
            return
        profiler = self._context.engine.profiler
        assert profiler is not None
        body = profiler.start_body(self._order)
        self.why = self._posted(profiler.start_path, body, _START_TIMEOUT_S)
        if self.why is not None:
            return
        self.began = True
        if self.load_ended.wait(self._window_s):
            self.why = "the load ended while it was recorded"
        stop = self._posted(profiler.stop_path, b"", self._asked.stop_timeout_s)
        self.why = stop or self.why

    def _posted(self, path: str, body: bytes, timeout_s: float) -> str | None:
        """Post to the server; return what went wrong."""
        url = f"{self._context.base_url.rstrip('/')}{path}"
        self._context.observer.note("info", f"POST {path}")
        answer = self._context.site.post(url, body, timeout_s=timeout_s)
        if answer is None:
            return f"POST {path}: no answer within {timeout_s:g} s"
        if answer[0] >= 300:
            told = " ".join(answer[1].decode("utf-8", "replace").split())
            return f"POST {path}: HTTP {answer[0]} {told[:200]}".rstrip()
        return None
