"""The experiments that a run holds: configurations that differ by one change."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from stepscope.analysis.cell.loop_rules import stalled_in_decode
from stepscope.analysis.cell.measured import measured
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.compare.compare import compare
from stepscope.analysis.compare.measured import Measured, anomalous
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.compare.table import row_of
from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.experiments.changes import CHANGES, Change, difference
from stepscope.board.experiments.effect import Effect, effect_of
from stepscope.recipe.records import Workload
from stepscope.run.run import Launch, Run

_METRIC = "tpot_ms"
#: Cells in which the server was not yet what it stays.
_COLD = frozenset({"jit-during-measurement", "first-run-contaminated"})
#: Changes that take processors away themselves.
_TAKES_CPU = frozenset({"cpus", "threads"})
_STARVED = "a cell's threads had no processor for a part of it (cpu-starved)"


@dataclass(frozen=True, slots=True)
class Row:
    """One workload point of a pair, with the cells of both sides."""

    workload: Workload
    effect: Effect
    light: tuple[CellResult, ...]
    heavy: tuple[CellResult, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two configurations of one session that differ by one change.

    Attributes:
        change: The change.
        light: The configuration without the burden, expected to be faster.
        heavy: The other one.
        amounts: The change's burdens, the lighter side's first.
        session: Where both were measured.
        rows: Points that both measured.
        also: What differs because of the change, in words.
    """

    change: Change
    light: str
    heavy: str
    amounts: tuple[float, float]
    session: str
    rows: tuple[Row, ...]
    also: str = ""


_Cells = Mapping[tuple[str, str], Mapping[Workload, tuple[CellResult, ...]]]


def pairs_of(run: Run, analysis: Analysis) -> tuple[Pair, ...]:
    """Return all pairs of configurations that differ by exactly one change.

    Both sides in one session; every launch of a side that measured something with the
    same settings. Void, anomalous and cold cells are left out.
    """
    cells = _sound(run, analysis)
    starts = _launches(run, cells)
    found: list[Pair] = []
    for (a, session), (b, other) in combinations(cells, 2):
        one, two = starts.get((a, session)), starts.get((b, other))
        if session != other or one is None or two is None:
            continue
        told = difference(run, one, two)
        if told is None:
            continue
        light, heavy = (b, a) if told.swapped else (a, b)
        rows = _rows(run, analysis, cells, (light, heavy, session))
        if told.change.id not in _TAKES_CPU:
            rows = _undisturbed(rows, analysis)
        if rows:
            also = _also(one, two)
            found.append(
                Pair(told.change, light, heavy, told.amounts, session, rows, also)
            )
    order = {change.id: i for i, change in enumerate(CHANGES)}
    return tuple(sorted(found, key=lambda p: order[p.change.id]))


def _also(a: Launch, b: Launch) -> str:
    if a.log is None or b.log is None:
        return ""
    modes = {str(x.log.resolved.get("compilation_mode")) for x in (a, b) if x.log}
    return "torch.compile" if len(modes) > 1 else ""


def _sound(run: Run, analysis: Analysis) -> _Cells:
    """Return the cells that may be compared, by configuration, session and point."""
    work = {cell.name: cell.workload for cell in run.cells}
    odd = _odd(run, analysis)
    found: dict[tuple[str, str], dict[Workload, list[CellResult]]] = {}
    for result in analysis.cells:
        if result.warm_up or not result.valid or result.name in odd:
            continue
        if result.n_requests <= result.n_failed or result.name not in work:
            continue
        rows = found.setdefault(
            (result.configuration, result.session), defaultdict(list)
        )
        rows[row_of(work[result.name])].append(result)
    return {
        place: {row: tuple(cells) for row, cells in rows.items()}
        for place, rows in found.items()
    }


def _odd(run: Run, analysis: Analysis) -> frozenset[str]:
    """Return cells whose TPOT is not that of a settled server.

    A stall before the first tokens lengthens TTFT and leaves TPOT as it was.
    """
    findings = (*run.findings, *analysis.findings)
    odd = {f.cell for f in findings if f.code in _COLD and f.cell}
    stalled = {f.cell for f in findings if f.code == "stall"}
    machine = Machine.of(run.samples) if stalled else None
    for cell in run.cells:
        if machine is not None and cell.name in stalled and not cell.warm_up:
            m = measured(cell, run, machine)
            odd |= {cell.name} if stalled_in_decode(m) else set()
    return frozenset(odd)


def _launches(run: Run, cells: _Cells) -> dict[tuple[str, str], Launch]:
    """Return a launch of each place; none where its launches differ in settings."""
    launches = {launch.name: launch for launch in run.launches}
    found: dict[tuple[str, str], Launch] = {}
    for place, rows in cells.items():
        names = dict.fromkeys(c.launch for row in rows.values() for c in row)
        used = [launches[name] for name in names if name in launches]
        same = {(x.command, tuple(sorted(x.environment.items())), x.cpus) for x in used}
        if used and len(same) == 1:
            found[place] = used[0]
    return found


def _rows(
    run: Run, analysis: Analysis, cells: _Cells, names: tuple[str, str, str]
) -> tuple[Row, ...]:
    light, heavy, session = names
    one, other = cells[(light, session)], cells[(heavy, session)]
    compared = _comparisons(run, analysis, light, heavy)
    rows = []
    for row in one:
        if row not in other:
            continue
        effect = effect_of(
            one[row], other[row], _matching(compared, row, session), analysis
        )
        if effect is not None:
            rows.append(Row(row, effect, one[row], other[row]))
    ordered = sorted(
        rows, key=lambda r: (r.workload.concurrency or 0, r.workload.request_rate or 0)
    )
    return tuple(ordered)


def _undisturbed(rows: Sequence[Row], analysis: Analysis) -> tuple[Row, ...]:
    """Return rows; one with a cell whose processors were held by others says nothing.

    Who held them the finding does not tell; it may be a second change.
    """
    starved = {f.cell for f in analysis.findings if f.code == "cpu-starved"}
    return tuple(
        replace(row, effect=replace(row.effect, moved="needs-launches", why=_STARVED))
        if any(c.name in starved for c in (*row.light, *row.heavy))
        else row
        for row in rows
    )


def _comparisons(
    run: Run, analysis: Analysis, light: str, heavy: str
) -> Sequence[Comparison]:
    """Return TPOT of the heavier side against the lighter one, rows of all sessions."""
    found = [
        c
        for c in analysis.comparisons
        if (c.a, c.b, c.metric) == (light, heavy, _METRIC)
    ]
    if found:
        return found
    odd = anomalous(analysis.findings)
    of = (Measured(run, analysis.cells, odd, run.id),)
    return compare(of, light, (heavy,), (_METRIC,)).comparisons


def _matching(
    found: Sequence[Comparison], row: Workload, session: str
) -> Comparison | None:
    asked = (
        row.concurrency, row.request_rate, row.input_tokens, row.output_tokens,
        row.n_prompts,
    )  # fmt: skip
    mine = [
        c
        for c in found
        if (
            c.concurrency, c.request_rate, c.input_tokens, c.output_tokens, c.n_prompts
        ) == asked
        and c.anchor is None
        and c.session == session
    ]  # fmt: skip
    return mine[0] if len(mine) == 1 else None
