"""One cell: metrics before, drive, metrics after; whatever happens is recorded."""

import threading
from pathlib import Path

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.archive.layout import METRICS_AFTER, METRICS_BEFORE, SERVER_LOG
from stepscope.errors import StepscopeError
from stepscope.load.journal import read_requests
from stepscope.load.spec import LoadResult
from stepscope.parse.prometheus import parse_metrics
from stepscope.recipe.records import CellPlan
from stepscope.run.run import Cell, CellStatus, Launch
from stepscope.run.samples import MetricsSnapshot
from stepscope.session.context import Context
from stepscope.session.phases.boot import ending, last_line
from stepscope.session.server import Server
from stepscope.session.site import OnProgress

_WATCH_S = 0.1
_METRICS_TIMEOUT_S = 5.0


def planned(cell: CellPlan, launch: str) -> Cell:
    """Return the record of a cell that has not begun."""
    return Cell(
        name=cell.name,
        configuration=cell.configuration,
        launch=launch,
        workload=cell.workload,
        repeat=cell.repeat,
        warm_up=cell.warm_up,
        capture=cell.capture,
        status="interrupted",
    )


def not_measured(context: Context, cell: CellPlan, launch: str, why: str) -> None:
    """Record a cell that never began: interrupted when we were asked to stop."""
    asked = context.halt.asked.is_set()
    status: CellStatus = "interrupted" if asked else "failed"
    context.book.put_cell(
        msgspec.structs.replace(planned(cell, launch), status=status, failure=why)
    )


def measured(
    context: Context,
    launch: Launch,
    plan: CellPlan,
    server: Server,
    *,
    on_progress: OnProgress | None = None,
) -> Cell:
    """Measure a cell and return it as it was recorded, without its requests.

    Args:
        context: The session.
        launch: The launch that it runs on.
        plan: What to drive.
        server: Its end ends the cell.
        on_progress: Hears of progress in place of the observer.

    Raises:
        OSError: The disk failed or is full.
    """
    book, clock = context.book, context.clock
    folder = book.writer.cell_dir(plan.name)
    cell = msgspec.structs.replace(
        planned(plan, launch.name),
        metrics_before=_metrics(context, folder / METRICS_BEFORE),
        started_at_ns=clock.now_ns(),
        raw_path=f"cells/{folder.name}",
    )
    book.put_cell(cell)
    watch = _Watch(context, server)
    try:
        result = context.site.drive(
            context.load_spec(launch, plan),
            folder,
            on_progress=on_progress or context.observer.progress,
            stop=watch.stop,
        )
    except StepscopeError as error:
        cell = msgspec.structs.replace(
            cell, status="failed", ended_at_ns=clock.now_ns(), failure=str(error)
        )
        book.close_cell(cell)
        return cell
    finally:
        watch.close()
    if context.watcher.error is not None:
        raise context.watcher.error
    code = server.exit_code()
    cell = msgspec.structs.replace(
        cell,
        metrics_after=None if code else _metrics(context, folder / METRICS_AFTER),
        ended_at_ns=clock.now_ns(),
        client=result.health,
    )
    cell = _judged(context, cell, result, died(context, launch, server))
    book.close_cell(cell)
    for finding in result.findings:
        book.put_finding(msgspec.structs.replace(finding, cell=plan.name))
    return cell


def died(context: Context, launch: Launch, server: Server) -> str | None:
    """Return how a server ended that should live; None: it lives."""
    code = server.exit_code()
    if code is None:
        return None
    log = context.launch_folder(launch) / SERVER_LOG
    return f"server died, {ending(code)}: {last_line(log)}"


def _judged(context: Context, cell: Cell, result: LoadResult, end: str | None) -> Cell:
    """Return the cell with its status: done only when all of it was carried."""
    status: CellStatus = "done"
    why: str | None = None
    if end is not None and (result.stopped or result.n_failed):
        status, why = "failed", end
    elif result.stopped:
        status, why = "interrupted", "stopped while it was measured"
    elif result.lost_workers:
        n = result.lost_workers
        status, why = "failed", f"{n} client process{'es' if n > 1 else ''} died"
    elif not result.n_ok:
        status, why = "failed", f"all {result.n_failed} requests failed"
        why += _first_failure(context.book.writer.cell_dir(cell.name))
    return msgspec.structs.replace(cell, status=status, failure=why)


def _first_failure(folder: Path) -> str:
    """Return how the first failed request of a cell failed, to be said on the spot."""
    failed = (r for r in read_requests(folder) if r.failure is not None)
    first = min(failed, key=lambda r: r.ended_at_ns, default=None)
    if first is None:
        return ""
    detail = " ".join((first.failure_detail or "").split())[:160]
    return f", the first by {first.failure}" + (f": {detail}" if detail else "")


def _metrics(context: Context, body: Path) -> MetricsSnapshot | None:
    """Fetch the engine's metrics and keep their text; None: it gave none."""
    if context.metrics_url is None:
        return None
    at_ns = context.clock.now_ns()
    answer = context.site.get(context.metrics_url, timeout_s=_METRICS_TIMEOUT_S)
    if answer is None or answer[0] != 200:
        return None
    write_bytes(body, answer[1])
    text = answer[1].decode("utf-8", "replace")
    return MetricsSnapshot(at_ns=at_ns, values=parse_metrics(text))


class _Watch:
    """Sets ``stop`` when the server dies, the disk fails or a person asks to stop."""

    def __init__(self, context: Context, server: Server) -> None:
        self.stop = threading.Event()
        self._context, self._server = context, server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        context = self._context
        while not self._over.wait(_WATCH_S):
            if (
                context.halt.asked.is_set()
                or context.watcher.error is not None
                or self._server.exit_code() is not None
            ):
                self.stop.set()
                return

    def close(self) -> None:
        self._over.set()
        self._thread.join()
