"""The board at a glance: for each configuration, hypotheses over loads."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.claims import number
from stepscope.board.records import HYPOTHESES, Board, BoardEntry
from stepscope.report.content import only_void

#: Load of a cell: requests in flight, or requests a second of an open loop.
Load = tuple[int | None, float | None]


@dataclass(frozen=True, slots=True)
class Status:
    """One square; empty where nothing was judged."""

    status: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """One configuration's statuses: a row a hypothesis, a column a load."""

    configuration: str
    loads: tuple[str, ...]
    rows: dict[str, tuple[Status, ...]]


def grids(board: Board, analysis: Analysis) -> list[Grid]:
    """Return a grid for each configuration that the board speaks of."""
    told = [e for e in board.entries if not only_void(e, analysis)]
    names = dict.fromkeys(entry.scope.configuration for entry in told)
    return [
        _grid(name, [e for e in told if e.scope.configuration == name], analysis)
        for name in names
    ]


def _grid(name: str, entries: Sequence[BoardEntry], analysis: Analysis) -> Grid:
    loads = sorted(
        {
            _load(cell)
            for cell in analysis.cells
            if cell.configuration == name and not cell.warm_up
        },
        key=lambda load: (load[0] is None, load[0] or 0, load[1] or 0.0),
    )
    return Grid(
        configuration=name,
        loads=tuple(_said(load) for load in loads) or ("all",),
        rows={
            hypothesis: tuple(
                _status([e for e in entries if e.hypothesis == hypothesis], load)
                for load in loads or [(None, None)]
            )
            for hypothesis in HYPOTHESES
        },
    )


def _load(cell: CellResult) -> Load:
    if cell.request_rate is not None:
        return None, cell.request_rate
    return cell.concurrency, None


def _said(load: Load) -> str:
    concurrency, rate = load
    if concurrency is not None:
        return str(concurrency)
    return "open loop" if rate is None else f"{rate:g}/s"


def _status(entries: Sequence[BoardEntry], load: Load) -> Status:
    for entry in entries:
        if _holds(entry, load):
            share = entry.share_of_step_pct
            bound = "at most" if entry.status == "ruled-out" else "at least"
            return Status(
                entry.status, "" if share is None else f"{bound} {number(share)} %"
            )
    return Status()


def _holds(entry: BoardEntry, load: Load) -> bool:
    concurrency, rate = load
    scope = entry.scope
    if concurrency is not None and scope.concurrency_from is not None:
        last = scope.concurrency_to or scope.concurrency_from
        return scope.concurrency_from <= concurrency <= last
    if rate is not None and scope.request_rate_from is not None:
        top = scope.request_rate_to or scope.request_rate_from
        return scope.request_rate_from <= rate <= top
    return scope.concurrency_from is None and scope.request_rate_from is None


def tally(entries: Sequence[BoardEntry]) -> str:
    """Return how many ranges have which status: ``2 ruled out, 1 standing``."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.status] = counts.get(entry.status, 0) + 1
    return ", ".join(f"{n} {status.replace('-', ' ')}" for status, n in counts.items())
