"""What a session did when: boot phases, warm-up, cells, stop, as spans of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.records import Analysis
from stepscope.run.run import Cell, Launch, Run
from stepscope.units import ns

#: kind of span -> what the legend calls it, in the order of a launch's life.
KINDS = {
    "boot": "boot, no phase logged",
    "phase": "boot phase",
    "failed": "boot, never ready",
    "warm-up": "warm-up",
    "cell": "cell",
    "void": "void cell",
    "traced": "profiler's cell",
    "stop": "stop",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a session.

    Attributes:
        lane: ``boot`` or ``load``.
        kind: A key of ``KINDS``.
        name: Of the launch, phase or cell.
        from_ns: Instant at which it begins.
        to_ns: Instant at which it ends.
        launch: Whose.
    """

    lane: str
    kind: str
    name: str
    from_ns: int
    to_ns: int
    launch: str


def sessions(run: Run) -> tuple[str, ...]:
    """Return the run's sessions in the order of their launches."""
    return tuple(dict.fromkeys(launch.session for launch in run.launches))


def spans(run: Run, analysis: Analysis, session: str) -> tuple[Span, ...]:
    """Return what is known of a session's course, in order of time.

    Phases lie on the server log's clock; its lines with an instant of the run's
    timeline place them. Most logs count whole seconds, and so do their phases.
    """
    boots = {boot.launch: boot for boot in analysis.boot}
    valid = {cell.name: cell.valid for cell in analysis.cells}
    found: list[Span] = []
    for launch in run.launches:
        if launch.session != session:
            continue
        cells = [cell for cell in run.cells if cell.launch == launch.name]
        found += _boot(launch, boots.get(launch.name), cells, _last_sample_ns(run))
        found += [span for cell in cells for span in _cell(cell, valid)]
        found += _stop(launch, cells)
    return tuple(sorted(found, key=lambda span: (span.from_ns, -span.to_ns)))


def _cell(cell: Cell, valid: dict[str, bool]) -> Iterator[Span]:
    if cell.started_at_ns is None or cell.ended_at_ns is None:
        return
    kind = "cell" if valid.get(cell.name, True) else "void"
    if cell.warm_up:
        kind = "warm-up"
    if cell.capture is not None:
        kind = "traced"
    yield Span(
        "load", kind, cell.name, cell.started_at_ns, cell.ended_at_ns, cell.launch
    )


def _boot(
    launch: Launch,
    boot: BootResult | None,
    cells: Sequence[Cell],
    last_sample_ns: int | None,
) -> Iterator[Span]:
    offset = _log_offset_ns(launch)
    begin, end = launch.started_at_ns, launch.ready_at_ns
    log = launch.log
    if begin is None and offset is not None and log and log.boot.first_at_s is not None:
        begin = offset + ns(log.boot.first_at_s)
        took = log.boot.seconds_to_ready
        end = begin + ns(took) if end is None and took is not None else end
    if begin is None:
        return
    first = min(
        (c.started_at_ns for c in cells if c.started_at_ns is not None), default=None
    )
    end = end if end is not None else first
    if end is None and offset is not None and log and log.boot.last_at_s is not None:
        end = offset + ns(log.boot.last_at_s)
    end = end if end is not None else launch.stopped_at_ns or last_sample_ns
    if end is None or end <= begin:
        return
    kind = "boot" if launch.ready else "failed"
    yield Span("boot", kind, launch.name, begin, end, launch.name)
    if offset is None or boot is None:
        return
    for phase in boot.phases:
        ends, took_s = phase.get("ends_at_s"), phase.get("seconds")
        if isinstance(ends, (int, float)) and isinstance(took_s, (int, float)):
            to = min(offset + ns(ends), end)
            since = max(to - ns(took_s), begin)
            if to > since:
                name = str(phase.get("name"))
                yield Span("boot", "phase", name, since, to, launch.name)


def _last_sample_ns(run: Run) -> int | None:
    """Return when a run that was cut off in a boot was last seen."""
    kinds = (run.samples.gpu, run.samples.host)
    return max((kind[-1].at_ns for kind in kinds if kind), default=None)


def _log_offset_ns(launch: Launch) -> int | None:
    """Return what turns the log's clock into instants; None: no line has both."""
    if launch.log is None:
        return None
    for event in launch.log.events:
        if event.at_ns is not None and event.at_s is not None:
            return event.at_ns - ns(event.at_s)
    return launch.log_offset_ns


def _stop(launch: Launch, cells: Sequence[Cell]) -> Iterator[Span]:
    """Yield the time from the last cell's end to the server's."""
    ended = [cell.ended_at_ns for cell in cells if cell.ended_at_ns is not None]
    last = max(ended, default=launch.ready_at_ns)
    if launch.stopped_at_ns is None or last is None or launch.stopped_at_ns <= last:
        return
    yield Span("boot", "stop", launch.name, last, launch.stopped_at_ns, launch.name)
