"""One cell as analysis sees it: its record, columns, windows and server side."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.cell.columns import Columns, columns
from stepscope.analysis.cell.engine import (
    EngineSteps,
    steps_from_log,
    steps_from_metrics,
)
from stepscope.analysis.cell.little import Little, little, replayed_occupancy
from stepscope.analysis.cell.open_loop import OpenLoop, open_loop
from stepscope.analysis.cell.steady import Steady, steady
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.cell.window import (
    Window,
    cell_span,
    slots_of,
    telemetry_window,
)
from stepscope.run.run import Cell, Launch, Run, Summary
from stepscope.run.server import ServerSide, n_beside, server_side
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
    expected_occupancy: tuple[float, float] | None
    server: ServerSide
    steps: EngineSteps | None
    machine: Machine
    events: Sequence[LogEvent]
    steady: Steady | None = None
    open_loop: OpenLoop | None = None

    @property
    def concurrency(self) -> int | None:
        """Slots of the closed loop; None for an open one."""
        return slots_of(self.cell.workload)

    @property
    def other_requests(self) -> int:
        """Requests that the server finished beside those of the client."""
        counted = self.server.n_requests
        return 0 if counted is None else n_beside(counted, self.n_ok, spare=1)

    @property
    def n_ok(self) -> int:
        """Requests that succeeded."""
        summary = self.cell.summary
        if summary is not None and not self.cell.requests:
            return summary.n_completed
        return int(self.columns.timed.sum())


def summary_e2el_ms(summary: Summary) -> float | None:
    """Return the mean E2EL of a foreign result: its own, or TTFT + TPOT (n - 1)."""
    own = summary.stats.get("e2el_ms", {}).get("mean")
    if own is not None:
        return own
    ttft = summary.stats.get("ttft_ms", {}).get("mean")
    tpot = summary.stats.get("tpot_ms", {}).get("mean")
    tokens, n = summary.output_tokens, summary.n_completed
    if ttft is None or tpot is None or not tokens or not n:
        return None
    return ttft + tpot * (tokens / n - 1)


def summary_in_flight(summary: Summary) -> float | None:
    """Return throughput x mean E2EL: with no records it is all that is known.

    It is an occupancy, not a check of Little's law.
    """
    e2el = summary_e2el_ms(summary)
    if e2el is None or not summary.duration_s:
        return None
    return summary.n_completed * e2el / 1e3 / summary.duration_s


def measured(cell: Cell, run: Run, machine: Machine) -> Measured:
    """Gather what bears on one cell."""
    launch = next((x for x in run.launches if x.name == cell.launch), None)
    rows = columns(cell.requests, cell.chunks)
    span = cell_span(rows, cell.clock_slack_ns) if rows.n else None
    n_ok = int(rows.ok.sum())
    n_single = int((rows.ok & rows.has_tokens & (rows.tokens < 2)).sum())
    if cell.summary is not None and not cell.requests:
        n_ok = cell.summary.n_completed
    events = launch.log.events if launch is not None and launch.log else ()
    law = window = steps = None
    slots = slots_of(cell.workload)
    if span is not None:
        window = telemetry_window(rows, span, slots)
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
        expected_occupancy=_expected_occupancy(rows, slots),
        server=server_side(cell.metrics_before, cell.metrics_after, n_ok, n_single),
        steps=steps,
        machine=machine,
        events=events,
        steady=None if span is None else steady(rows, slots),
        open_loop=_open_loop(cell, rows),
    )


def _open_loop(cell: Cell, rows: Columns) -> OpenLoop | None:
    """Return how a whole open loop of one rate went."""
    if rows.due is None or cell.workload.ramp_rps is not None or cell.status != "done":
        return None
    return open_loop(rows)


def _expected_occupancy(
    rows: Columns, concurrency: int | None
) -> tuple[float, float] | None:
    if not concurrency or not rows.timed.any():
        return None
    return replayed_occupancy(rows.e2el_ns().astype(float), rows.n, concurrency)
