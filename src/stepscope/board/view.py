"""A cell with everything that bears on it, gathered once for all rules."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.records import FloorPoint, RepeatGroup
from stepscope.analysis.across.stepmodel import step_ms
from stepscope.analysis.cell.columns import columns
from stepscope.analysis.degrees import told_degrees
from stepscope.analysis.records import Analysis, CellResult, CellTelemetry
from stepscope.board.doubts import Doubt, floor_doubts
from stepscope.board.experiments.pairs import Pair, pairs_of
from stepscope.findings import Finding
from stepscope.run.run import Cell, Launch, Run
from stepscope.run.samples import MetricsSnapshot, MetricValue

#: Fewer samples than this in the window are no mean of anything.
MIN_SAMPLES = 8
#: Degrees of parallelism that make ranks: tensor, data, pipeline.
_N_DEGREES = 3


def has_gpu(run: Run) -> bool | None:
    """Return whether GPUs take part in a run; None where nothing says so.

    A server that names an attention of the CPU computes there.
    """
    if run.n_gpus or run.gpu or run.samples.gpu:
        return True
    if run.n_gpus == 0 or run.engine == "embedded":
        return False
    logs = [x.log for x in run.launches if x.log is not None]
    backends = [str(log.resolved.get("attention_backend", "")) for log in logs]
    return False if any(b.startswith("CPU") for b in backends) else None


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell (or, with ``result`` None, a configuration that measured nothing).

    Attributes:
        run: The run.
        analysis: What was computed from it.
        configuration: Name of the configuration.
        result: The cell's figures; None where no cell was measured.
        cell: Its record.
        launch: The launch it ran on.
        pairs: All experiments of the run; those of this cell are found by its name.
        doubts: What speaks against the configuration's byte floor.
    """

    run: Run
    analysis: Analysis
    configuration: str
    result: CellResult | None
    cell: Cell | None
    launch: Launch | None
    pairs: tuple[Pair, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def source(self) -> str:
        """Name of the cell, or of the launch where there is none."""
        if self.result is not None:
            return self.result.name
        return self.launch.name if self.launch is not None else self.configuration

    @property
    def telemetry(self) -> CellTelemetry | None:
        """Telemetry of the window when it holds enough samples to be read."""
        telemetry = self.result.telemetry if self.result is not None else None
        if telemetry is None or (telemetry.n_samples_in_window or 0) < MIN_SAMPLES:
            return None
        return telemetry

    @property
    def step_ms(self) -> float | None:
        """Engine step time; else what the server's TPOT comes to, else the client's.

        None where a step gives several tokens and nobody says how many.
        """
        result = self.result
        if result is None:
            return None
        counted = result.tokens_per_step_and_sequence is not None
        if result.engine_step_ms is None and not counted and self.speculative:
            return None
        return step_ms(result)

    @property
    def floor(self) -> FloorPoint | None:
        """Byte floor at this configuration and concurrency."""
        result = self.result
        if result is None:
            return None
        return next(
            (
                point
                for point in self.analysis.floor
                if point.configuration == result.configuration
                and point.concurrency == result.concurrency
            ),
            None,
        )

    @property
    def speculative(self) -> bool | None:
        """True when steps may give a sequence several tokens; None: not known."""
        result = self.result
        if result is not None and result.tokens_per_step_and_sequence is not None:
            return result.tokens_per_step_and_sequence > 1.05
        log = self.launch.log if self.launch is not None else None
        if log is not None and "speculative_config" in log.resolved:
            return log.resolved["speculative_config"] not in (None, "None")
        return False if self.run.engine == "embedded" else None

    @property
    def has_gpu(self) -> bool | None:
        """Whether GPUs take part; None where nothing says so."""
        return has_gpu(self.run)

    @property
    def n_ranks(self) -> int | None:
        """Ranks that share one step; None where the layout was not recorded.

        One run may hold configurations of several layouts, so that what the server's
        log or command says of more ranks goes before what the run says. None too where
        the run names several and the server others.
        """
        layout = self.run.layout
        n = layout.tp * layout.dp * layout.pp
        told = {} if self.launch is None else told_degrees(self.launch)
        known = {"tp": layout.tp, "dp": layout.dp, "pp": layout.pp, **told}
        own = int(np.prod(list(known.values())))
        if own != n and n > 1:
            return None
        complete = len(told) == _N_DEGREES
        if own > 1 or complete or self.run.n_gpus == 1 or self.has_gpu is False:
            return own
        return None

    def findings(self, *codes: str) -> tuple[Finding, ...]:
        """Return findings of this cell, or of its launch, that have these codes."""
        launch = self.launch.name if self.launch is not None else None
        name = self.result.name if self.result is not None else None
        return tuple(
            finding
            for finding in (*self.run.findings, *self.analysis.findings)
            if finding.code in codes
            and (
                (finding.cell is not None and finding.cell == name)
                or (
                    finding.cell is None
                    and finding.launch is not None
                    and finding.launch == launch
                )
            )
        )

    def group(self, metric: str) -> RepeatGroup | None:
        """Return the repeats that this cell belongs to."""
        if self.result is None:
            return None
        return next(
            (
                group
                for group in self.analysis.groups
                if group.metric == metric and self.result.name in group.cells
            ),
            None,
        )

    def span_ns(self) -> tuple[int, int] | None:
        """First send to last content; None without single requests."""
        requests = self.cell.requests if self.cell is not None else ()
        ends = [
            r.last_content_at_ns for r in requests if r.last_content_at_ns is not None
        ]
        if not ends:
            return None
        return min(r.sent_at_ns for r in requests), max(ends)

    def gauge(self, *names: str) -> tuple[float, ...]:
        """Return a gauge inside the cell span: largest value of each snapshot."""
        found = (_named(snapshot, names) for snapshot in self._inside())
        return tuple(max(values) for values in found if values)

    def gauges(
        self, one: Sequence[str], other: Sequence[str]
    ) -> tuple[tuple[float, float], ...]:
        """Return two gauges as the snapshots inside the cell span hold them at once."""
        found = ((_named(s, one), _named(s, other)) for s in self._inside())
        return tuple((max(a), max(b)) for a, b in found if a and b)

    def _inside(self) -> Iterator[MetricsSnapshot]:
        span = self.span_ns()
        if span is not None:
            for snapshot in self.run.samples.metrics:
                if span[0] <= snapshot.at_ns <= span[1]:
                    yield snapshot

    def counter_delta(self, *names: str) -> float | None:
        """Return a counter's growth over the cell, all labels; None: not exposed."""
        cell = self.cell
        if cell is None or cell.metrics_before is None or cell.metrics_after is None:
            return None
        before = _named(cell.metrics_before, names)
        after = _named(cell.metrics_after, names)
        if not before or not after:
            return None
        delta = sum(after) - sum(before)
        return delta if delta >= 0 else None

    def short_gap_pct(self) -> float | None:
        """Return the share of gaps between chunks below a tenth of the step, percent.

        It is what a reader that wakes late leaves: several chunks with one stamp.
        """
        step = self.result.server_tpot_ms if self.result is not None else None
        if step is None or self.cell is None:
            return None
        n = n_short = 0
        chunks = columns(self.cell.requests, self.cell.chunks).chunks
        for piece in chunks.pieces():
            gaps = np.diff(piece.offsets)[piece.follows[1:]]
            n += gaps.size
            n_short += int(np.count_nonzero(gaps < step * 1e6 / 10))
        return 100 * (n_short / n) if n else None


def core_pct(telemetry: CellTelemetry, role: str) -> float | None:
    """Return how full a role's core was: its busiest thread, else its process."""
    thread = telemetry.busiest_thread_cpu_pct.get(role)
    return telemetry.process_cpu_pct.get(role) if thread is None else thread


def _named(snapshot: MetricsSnapshot, names: Iterable[str]) -> list[float]:
    """Return the values of the first of these names that the snapshot has."""
    for name in names:
        values: list[MetricValue] = [v for v in snapshot.values if v.name == name]
        if values:
            return [v.value for v in values]
    return []


def views(run: Run, analysis: Analysis) -> tuple[CellView, ...]:
    """Return a view of every cell that is a measurement, in the analysis' order.

    Of a configuration that was started for timelines alone, the load that was driven
    on it while nobody traced takes their place.
    """
    read = [r for r in analysis.cells if r.n_requests > r.n_failed]
    told = {r.configuration for r in read if not r.warm_up}
    cells = {cell.name: cell for cell in run.cells}
    launches = {launch.name: launch for launch in run.launches}
    pairs = pairs_of(run, analysis)
    doubts = {
        name: floor_doubts(run, analysis, name)
        for name in dict.fromkeys(r.configuration for r in read)
    }
    return tuple(
        CellView(
            run=run,
            analysis=analysis,
            configuration=result.configuration,
            result=result,
            cell=cells.get(result.name),
            launch=launches.get(result.launch),
            pairs=pairs,
            doubts=doubts[result.configuration],
        )
        for result in read
        if not result.warm_up
        or (result.capture == "untraced" and result.configuration not in told)
    )
