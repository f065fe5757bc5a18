"""Cells of one run or several, laid out to be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from stepscope.analysis.across.points import figures_of, readable, value_of
from stepscope.analysis.compare.measured import Measured
from stepscope.analysis.compare.readings import (
    Reading,
    bare_row,
    joined,
    without_copies,
)
from stepscope.analysis.compare.records import LeftOut
from stepscope.analysis.compare.sessions import SessionKey, session_key, what_runs
from stepscope.analysis.records import CellResult
from stepscope.recipe.records import Workload
from stepscope.run.run import Launch

#: metric -> +1 where more is better.
METRICS = {"output_tokens_per_s": 1, "tpot_ms": -1, "ttft_ms": -1}

#: What results are called whose configuration nobody named.
_UNNAMED = "imported"
#: What a schedule sets where there is one: no figure of the server.
RATE = "output_tokens_per_s"


@dataclass(frozen=True, slots=True)
class Start:
    """One launch: when it ran, how long, and of which arm; instants since 1970."""

    name: str
    arm: str
    session: str
    launch: Launch
    started_at_ns: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Table:
    """What can be compared.

    Attributes:
        readings: Cells that may support a figure.
        left_out: Cells that may not, or that others of their point stand in for.
        starts: Launches in order of time where it is known.
        sessions: By key.
        same: (arm, session) to what ran; None where it is not known.
        lost: (arm, row) of cells that were run and may not support a figure.
    """

    readings: tuple[Reading, ...]
    left_out: tuple[LeftOut, ...]
    starts: tuple[Start, ...]
    sessions: Mapping[str, SessionKey]
    same: Mapping[tuple[str, str], str | None]
    lost: frozenset[tuple[str, Workload]] = frozenset()

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of what was measured, in order of the runs."""
        return tuple(dict.fromkeys(arm for arm, _ in self.same))

    def rows_lost(self, a: str, b: str) -> tuple[Workload, ...]:
        """Return where a has a reading and all that b ran there came to nothing."""
        mine, theirs = (
            {r.row for r in self.readings if r.arm == arm} for arm in (a, b)
        )
        bare = {row for arm, row in self.lost if arm == b}
        return tuple(
            sorted(
                (row for row in mine - theirs if bare_row(row) in bare),
                key=lambda r: (r.concurrency or 0, r.request_rate or 0),
            )
        )

    def changes(self, arm: str) -> frozenset[tuple[str, ...]]:
        """Return the different sets of flags that an arm's servers took to boot."""
        used = {reading.launch for reading in self.readings}
        found = frozenset(
            tuple(sorted(f"--{f.flag} {f.value}" for f in s.launch.applied_fixes))
            for s in self.starts
            if s.arm == arm and s.name in used
        )
        return found or frozenset({()})


def arm_name(of: Measured, configuration: str, several: bool) -> str:
    """Return what a configuration is called: with its run where there are several."""
    if several and configuration == _UNNAMED:
        return of.label
    return f"{of.label}:{configuration}" if several else configuration


@dataclass(slots=True)
class _Making:
    readings: list[Reading] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    sessions: dict[str, SessionKey] = field(default_factory=dict)
    same: dict[tuple[str, str], str | None] = field(default_factory=dict)
    lost: set[tuple[str, Workload]] = field(default_factory=set)


def table(measured: Sequence[Measured]) -> Table:
    """Lay out the cells of runs.

    Within one run a session is what the run says it is, and one name is one
    configuration; over several runs machines and commands decide.

    Args:
        measured: One run, or several with labels of their own.
    """
    made = _Making()
    several = len(measured) > 1
    for of in measured:
        _add(made, of, several)
    made.readings, copies = without_copies(joined(made.readings))
    made.left_out += copies
    _drop_anomalous(made)
    known = all(s.started_at_ns is not None for s in made.starts)
    starts = made.starts
    if known:
        starts = sorted(starts, key=lambda s: s.started_at_ns or 0)
    return Table(
        readings=tuple(made.readings),
        left_out=tuple(made.left_out),
        starts=tuple(starts),
        sessions=made.sessions,
        same=made.same,
        lost=frozenset(made.lost),
    )


def _add(made: _Making, of: Measured, several: bool) -> None:
    run = of.run
    launches = {launch.name: launch for launch in run.launches}
    cells = {cell.name: cell for cell in run.cells}
    keys: dict[str, str] = {}
    for name in dict.fromkeys(result.session for result in of.cells):
        key = SessionKey(name, True, name)
        if several:
            key = session_key(run, name, of.label)
        made.sessions[key.name] = key
        keys[name] = key.name
    good = {result.name for result in readable(of.cells)}
    for result in of.cells:
        arm = arm_name(of, result.configuration, several)
        launch = launches.get(result.launch)
        session = keys[result.session]
        if launch is not None:
            _start(made, of, launch, arm, session)
        where = (arm, session)
        made.same.setdefault(where, _what(of, result, launch, several))
        if result.warm_up:
            continue
        row = row_of(cells[result.name].workload)
        if result.name not in good:
            made.left_out.append(_void(result, arm))
            made.lost.add((arm, bare_row(row)))
            continue
        figures = {
            m: value_of(result, m) for m in METRICS if m != RATE or not is_open(row)
        }
        made.readings.append(
            Reading(
                arm=arm,
                session=session,
                launch=f"{of.label}/{result.launch}",
                row=row,
                cell=result.name,
                values={m: v for m, v in figures.items() if v is not None and v > 0},
                seconds=result.duration_s,
                anomalous=result.name in of.anomalous,
                replaceable=result.name in of.replaceable,
                counted=_counted(result),
                mark=figures_of(result),
            )
        )


def _counted(result: CellResult) -> tuple[float | None, float | None]:
    """Return mean tokens of a prompt and of an answer."""
    n = result.n_requests - result.n_failed
    totals = (result.input_tokens, result.output_tokens)
    into, out = (None if t is None or n < 1 else t / n for t in totals)
    return into, out


def row_of(workload: Workload) -> Workload:
    """Return the workload point of a cell: everything that was asked but the seed.

    A file of prompts is known by its content where that was recorded.
    """
    path = None if workload.dataset_sha256 else workload.dataset_path
    return msgspec.structs.replace(workload, seed=None, dataset_path=path)


def is_open(row: Workload) -> bool:
    """Tell whether requests came by a schedule, whatever the server did.

    All at once is no schedule: then the throughput is the server's.
    """
    return row.arrival is not None or row.request_rate is not None


def deciding(of: Table) -> str:
    """Return the figure that decides where nobody names one.

    Throughput; TPOT where every row is an open loop.
    """
    rows = {reading.row for reading in of.readings}
    return "tpot_ms" if rows and all(map(is_open, rows)) else RATE


def _what(
    of: Measured, result: CellResult, launch: Launch | None, several: bool
) -> str | None:
    """Return what ran: within a run its name stands for it where no command does."""
    known = None if launch is None else what_runs(of.run, launch)
    if known is None and not several:
        return f"named {result.configuration}"
    return known


def _start(made: _Making, of: Measured, launch: Launch, arm: str, session: str) -> None:
    name = f"{of.label}/{launch.name}"
    if any(start.name == name for start in made.starts):
        return
    mine = [c for c in of.run.cells if c.launch == launch.name]
    began = [c.started_at_ns for c in mine if c.started_at_ns is not None]
    ended = [c.ended_at_ns for c in mine if c.ended_at_ns is not None]
    first, last = launch.started_at_ns, launch.stopped_at_ns
    first = min(began, default=None) if first is None else first
    last = max(ended, default=None) if last is None else last
    timeline = of.run.timeline
    at_ns = first
    if first is not None and timeline.anchor_at_ns is not None:
        at_ns = first - timeline.anchor_at_ns + (timeline.anchor_unix_ns or 0)
    took = None if first is None or last is None else (last - first) / 1e9
    made.starts.append(Start(name, arm, session, launch, at_ns, took))


def _void(result: CellResult, arm: str) -> LeftOut:
    reason = ", ".join(result.void_reasons)
    if not reason and result.status != "done":
        reason = result.status
    if not reason:
        reason = f"{result.n_failed} of {result.n_requests} requests failed"
    return LeftOut(
        cell=result.name,
        configuration=arm,
        concurrency=result.concurrency,
        reason=reason,
    )


def _drop_anomalous(made: _Making) -> None:
    """Leave anomalous cells out where their point has others."""
    _drop(made, lambda r: r.anomalous, "a stall, a contaminated first run or a figure"
          " out of order")  # fmt: skip
    _drop(made, lambda r: r.replaceable, "one event made some of its first tokens late")


def _drop(made: _Making, odd: Callable[[Reading], bool], reason: str) -> None:
    sound = {(r.arm, r.session, r.row) for r in made.readings if not odd(r)}
    kept = []
    for reading in made.readings:
        if odd(reading) and (reading.arm, reading.session, reading.row) in sound:
            made.left_out.append(
                LeftOut(
                    cell=reading.cell,
                    configuration=reading.arm,
                    concurrency=reading.row.concurrency,
                    reason=reason,
                )
            )
        else:
            kept.append(reading)
    made.readings = kept
