"""One cell as analysis sees it: its record, columns, windows and server side."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.cell.columns import Columns, columns
from stepscope.analysis.cell.engine import (
    EngineSteps,
    steps_from_log,
    steps_from_metrics,
)
from stepscope.analysis.cell.little import Little, little
from stepscope.analysis.cell.server import ServerSide, server_side
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.cell.window import Window, cell_span, telemetry_window
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.serverlog import LogEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A cell and all that its figures and findings are taken from.

    ``span`` and what depends on it are None where nothing was answered.
    """

    cell: Cell
    launch: Launch | None
    columns: Columns
    span: Window | None
    window: Window | None
    little: Little | None
    server: ServerSide
    steps: EngineSteps | None
    machine: Machine
    events: Sequence[LogEvent]

    @property
    def concurrency(self) -> int | None:
        """Slots of the closed loop."""
        return self.cell.workload.concurrency


def measured(cell: Cell, run: Run, machine: Machine) -> Measured:
    """Gather what bears on one cell."""
    launch = next((x for x in run.launches if x.name == cell.launch), None)
    rows = columns(cell.requests)
    span = cell_span(rows, cell.clock_slack_ns) if rows.n else None
    n_ok = int(rows.ok.sum())
    if cell.summary is not None:
        n_ok = cell.summary.n_completed
    events = launch.log.events if launch is not None and launch.log else ()
    law = window = steps = None
    if span is not None:
        window = telemetry_window(rows, span, cell.workload.concurrency)
        whole = cell.workload.n_prompts if cell.status == "done" else None
        law = little(rows, span, whole)
        steps = steps_from_log(events, span) or steps_from_metrics(
            run.samples.metrics, span
        )
    return Measured(
        cell=cell,
        launch=launch,
        columns=rows,
        span=span,
        window=window,
        little=law,
        server=server_side(cell.metrics_before, cell.metrics_after, n_ok),
        steps=steps,
        machine=machine,
        events=events,
    )
