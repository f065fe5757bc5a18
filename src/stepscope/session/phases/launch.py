"""One launch: boot, probe, its cells, stop; its server is ended whatever happens."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from stepscope.archive.layout import SERVER_LOG
from stepscope.recipe.records import CellPlan, LaunchPlan
from stepscope.run.run import Launch
from stepscope.session.context import Context
from stepscope.session.phases.asking import asked
from stepscope.session.phases.boot import boot
from stepscope.session.phases.capturing import (
    Capturing,
    not_traceable,
    trace_order,
)
from stepscope.session.phases.cell import died, measured, not_measured
from stepscope.session.phases.probing import probed
from stepscope.session.phases.retry import (
    Attempt,
    booted,
    first_attempt,
    next_attempt,
)
from stepscope.session.phases.stop import before_boot, keep_foreign_log, stopped
from stepscope.session.phases.switches import wrapped
from stepscope.session.phases.warming import Warming
from stepscope.session.server import RunningServer, Server, ServerOrder


@dataclass(slots=True)
class Tally:
    """What came of the launches so far.

    Attributes:
        n_cells: Cells of the whole run, warm-ups too.
        n_begun: Cells whose turn has come.
        n_measured: Cells that were measured or traced to their end.
        failures: What went wrong, one line each.
    """

    n_cells: int
    n_begun: int = 0
    n_measured: int = 0
    failures: list[str] = field(default_factory=list)


def run_launch(context: Context, plan: LaunchPlan, session: str, tally: Tally) -> None:
    """Run one launch from boot to stop, again where the recipe lets it be retried.

    Raises:
        OSError: The disk failed or is full; the server has been ended.
    """
    why = not_traceable(context, plan)
    if why is not None:
        _give_up(context, plan, plan.cells, why, tally)
        _failed(context, f"{plan.name}: {why}", tally)
        return
    attempt: Attempt | None = first_attempt(context, plan)
    while attempt is not None:
        attempt = _run(context, attempt, session, tally)


def _run(
    context: Context, attempt: Attempt, session: str, tally: Tally
) -> Attempt | None:
    """Run one start of a launch's server; return what to start in its stead."""
    plan = attempt.plan
    launch, server = _launch(context, attempt, session), _server(context, plan)
    before = before_boot(context)
    try:
        launch, why = boot(context, launch, server)
        if why is None:
            booted(context, attempt)
            launch, why = probed(context, launch, plan.cells[0], server)
        if why is None:
            launch = asked(context, launch, plan.cells[0], server)
            launch = _cells(context, launch, plan, server, tally)
        else:
            launch = msgspec.structs.replace(launch, failure=why)
            context.book.put_launch(launch)
    finally:
        context.watcher.stop()
        ended = stopped(context, launch, server, before)
    if why is None:
        return None
    again = None
    if not launch.ready:
        again = next_attempt(context, attempt, launch, ended.oom_kills)
    if again is None:
        _give_up(context, plan, plan.cells, f"launch failed: {why}", tally)
        _failed(context, f"{launch.name}: {why}", tally)
    return again


def _launch(context: Context, attempt: Attempt, session: str) -> Launch:
    engine, recipe, plan = context.engine, context.recipe, attempt.plan
    trace = trace_order(context, plan)
    folder = context.book.writer.launch_dir(plan.name).name
    log = f"launches/{folder}/{SERVER_LOG}"
    return Launch(
        name=plan.name,
        configuration=plan.configuration.name,
        session=session,
        command=engine.command(recipe, plan.configuration, context.port or 0, trace),
        environment=engine.environment(recipe, plan.configuration, trace),
        cpus=plan.configuration.cpus,
        base_url=context.base_url,
        log_path=log if engine.boots else None,
        retry_of=attempt.retry_of,
        applied_fixes=attempt.fixes,
        experiment=plan.experiment,
        wrapper=() if trace is None else trace.wrapper,
    )


def _server(context: Context, plan: LaunchPlan) -> Server:
    engine, recipe = context.engine, context.recipe
    if not engine.boots:
        return RunningServer(recipe.server.pids if recipe.server else ())
    trace = trace_order(context, plan)
    order = ServerOrder(
        command=engine.command(recipe, plan.configuration, context.port or 0, trace),
        environment=engine.environment(recipe, plan.configuration, trace),
        log=context.book.writer.launch_dir(plan.name) / SERVER_LOG,
        cpus=plan.configuration.cpus,
    )
    return context.site.server(wrapped(order, trace))


def _cells(
    context: Context, launch: Launch, plan: LaunchPlan, server: Server, tally: Tally
) -> Launch:
    """Measure the cells in order until the server dies or we are asked to stop.

    Warm-up goes on until it has settled. Returns the launch with what came of that.
    """
    warming, left = Warming(context, launch, plan), deque(plan.cells)
    capturing = Capturing(context, launch, server, trace_order(context, plan))
    while left:
        if context.halt.asked.is_set():
            _give_up(context, plan, left, "stopped before it began", tally)
            return warming.launch
        end = died(context, launch, server)
        if end is not None:
            _give_up(context, plan, left, end, tally)
            _failed(context, f"{launch.name}: {end}", tally)
            return warming.launch
        cell = left.popleft()
        tally.n_begun += 1
        context.observer.phase(_phase(cell), cell.name)
        context.observer.cell(
            cell.name, tally.n_begun, tally.n_cells, cell.workload.n_prompts
        )
        if cell.capture is None:
            result = measured(context, launch, cell, server)
        else:
            result = capturing.run(cell)
        if result.status == "failed":
            _failed(context, f"{cell.name}: {result.failure}", tally)
        elif result.status == "done" and cell.wanted:
            tally.n_measured += 1
        more = warming.after(cell, result)
        if more is not None:
            left.appendleft(more)
            tally.n_cells += 1
    keep_foreign_log(context, launch)
    return warming.launch


def _phase(cell: CellPlan) -> str:
    if cell.capture is not None:
        return "trace"
    return "warm-up" if cell.warm_up else "measure"


def _give_up(
    context: Context,
    plan: LaunchPlan,
    cells: Iterable[CellPlan],
    why: str,
    tally: Tally,
) -> None:
    """Record cells as not measured."""
    for cell in cells:
        tally.n_begun += 1
        not_measured(context, cell, plan.name, why)


def _failed(context: Context, line: str, tally: Tally) -> None:
    tally.failures.append(line)
    context.observer.note("error", line)
