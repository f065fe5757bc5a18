"""Capture: a kernel timeline of a load that is driven for it alone.

On a launch for traces every load comes first without the profiler and then with it.
While the second is carried, the profiler is switched on in the middle of a wave, where
all sequences decode, and off again after the asked number of steps. Whatever goes wrong
is recorded and fails nothing else.
"""

import contextlib
import math
import shutil
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepscope.archive.cells import requests_of
from stepscope.archive.layout import LAUNCHES, SERVER_LOG
from stepscope.engines.definition import TraceOrder
from stepscope.findings import Finding, Severity
from stepscope.parse.serverlog import parse_log
from stepscope.recipe.records import CellPlan, LaunchPlan
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch, TraceRef
from stepscope.session.context import Context
from stepscope.session.phases.cell import measured
from stepscope.session.phases.recording import Recorder
from stepscope.session.phases.switches import no_tool, order_of, switch_of
from stepscope.session.phases.tracefiles import Written
from stepscope.session.server import Server
from stepscope.units import NS_PER_MS, ns

#: Where no untraced load was measured before.
_STEP_NS = 20 * NS_PER_MS
_LOG_HEAD_BYTES = 1 << 20


def trace_order(context: Context, plan: LaunchPlan) -> TraceOrder | None:
    """Return where a launch is to write timelines; None: it takes none."""
    if not plan.traced:
        return None
    folder = context.book.writer.trace_dir(plan.name).absolute()
    return order_of(context.recipe, plan, folder, _version(context))


def not_traceable(context: Context, plan: LaunchPlan) -> str | None:
    """Return why a launch for timelines is not worth its boot; None: it is."""
    return no_tool(context.recipe) if plan.traced else None


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

    def __init__(
        self,
        context: Context,
        launch: Launch,
        server: Server,
        order: TraceOrder | None,
    ) -> None:
        self._context, self._launch, self._server = context, launch, server
        self._order = order
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
        asked, order = context.recipe.tracing, self._order
        assert asked is not None
        assert order is not None
        switch = switch_of(context, order, context.launch_folder(launch))
        usual_ns = max(asked.steps * pace.step_ns, switch.least_window_ns)
        window_ns = ns(asked.seconds) if asked.seconds else usual_ns
        # Half a wave, less half of the recording: the context is that of mid-answer.
        lead_ns = max((pace.wave_ns - window_ns) // 2, pace.wave_ns // 4)
        recorder = Recorder(context, switch, lead_ns, window_ns)
        plan = _lasting(plan, pace, lead_ns + window_ns + switch.slack_ns)
        recorder.begin()
        try:
            cell = measured(
                context, launch, plan, self._server, on_progress=recorder.hear
            )
        finally:
            recorder.load_ended.set()
        if not recorder.joined(self._server):
            switch.cancel()
            self._not_taken(plan, "the server ended, or the run was stopped")
            return self._given_up(cell)
        if recorder.began:
            layout = context.engine.layout(self._flags())
            n_ranks = layout.tp * layout.dp * layout.pp
            self._keep(plan, switch.written(n_ranks), n_ranks, recorder.why)
            with contextlib.suppress(OSError):  # It holds what came before or too late.
                Path(order.folder).rmdir()
        else:
            self._not_taken(plan, recorder.why or "the profiler was not started")
        return cell

    def _given_up(self, cell: Cell) -> Cell:
        """Return the cell so that a run that is gone on with takes its timeline."""
        if cell.status == "done" and self._context.halt.asked.is_set():
            why = "stopped while its timeline was written"
            cell = msgspec.structs.replace(cell, status="interrupted", failure=why)
            self._context.book.put_cell(cell)
        return cell

    def _keep(
        self, plan: CellPlan, found: Written, n_ranks: int, why: str | None
    ) -> None:
        """Move what was written into the run, and say what is missing.

        Args:
            plan: The cell.
            found: What was written.
            n_ranks: Ranks of which it should be.
            why: What went wrong while it was recorded; None: nothing.
        """
        context = self._context
        kept = self._moved(plan, found)
        wrong = [x for x in (why, found.why) if x]
        if not kept:
            told = "; ".join(wrong) or "no timeline was written"
            self._not_taken(plan, told, found.hint)
        elif wrong or found.n_ranks < n_ranks:
            wrong.append(f"{found.n_ranks} of {n_ranks} ranks are in it")
            message = f"timeline of {plan.name}: {'; '.join(wrong)}"
            self._find("trace-incomplete", plan, message, found.hint)
        if found.note is not None:
            hint = "Start stepscope without them to keep it."
            self._find("report-not-kept", plan, found.note, hint, "info")
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
            of = "timeline" if rank is None else f"timeline of rank {rank}"
            context.observer.note("info", f"{plan.name}: {of} kept")

    def _flags(self) -> dict[str, str | int | float | bool | None]:
        name = self._launch.configuration
        return next(
            c.flags for c in self._context.recipe.configurations if c.name == name
        )

    def _moved(self, plan: CellPlan, found: Written) -> list[tuple[int | None, str]]:
        writer = self._context.book.writer
        folder = writer.trace_dir(plan.name)
        for path in found.others:
            shutil.move(path, folder / path.name)
        kept = []
        for rank, path in found.traces:
            target = Path(shutil.move(path, folder / path.name))
            kept.append((rank, target.relative_to(writer.path).as_posix()))
        return kept

    def _not_taken(self, plan: CellPlan, why: str, hint: str | None = None) -> None:
        self._find("trace-not-taken", plan, f"no timeline of {plan.name}: {why}", hint)

    def _find(
        self,
        code: str,
        plan: CellPlan,
        message: str,
        hint: str | None = None,
        severity: Severity = "warning",
    ) -> None:
        self._context.book.put_finding(
            Finding(
                code=code,
                severity=severity,
                message=message,
                hint=hint or "The server's log of this launch may say why.",
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
