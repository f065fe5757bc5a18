"""What the page says, as plain data: the template only places it."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.claims import number
from stepscope.board.records import HYPOTHESES, Board, BoardEntry, Evidence
from stepscope.board.rules import RULES
from stepscope.findings import Finding
from stepscope.report.cells import (
    SUMMARY,
    UNKNOWN,
    Column,
    groups,
    latencies,
    shown,
    state,
)
from stepscope.run.run import Cell, Launch, Run

_SECRET = re.compile(r"key|token|secret|password|passwd|credential", re.IGNORECASE)
_NOT_SECRET = re.compile(r"tokenizer|max|num|batched|token-ids|tokens", re.IGNORECASE)
HIDDEN = "(hidden)"

_ORDER = {"error": 0, "warning": 1, "info": 2}


def path_link(path: str | None, home: str | None = "") -> str | None:
    """Return a path of a run's directory as a relative link.

    Args:
        path: Inside the run's directory.
        home: From the page's folder to that directory, as a quoted relative link;
            None where no link leads there.

    Returns:
        None where the path leads out of the run, or no link can.
    """
    if home is None or not path or path.startswith(("/", "\\")):
        return None
    if ".." in path.split("/") or not re.fullmatch(r"[\w./-]+", path):
        return None
    return f"{home.rstrip('/')}/{path}" if home else path


def trace_file(path: str) -> str:
    """Return a timeline's file as a page names it: inside the run, else by its name.

    A page is sent to others; where its maker keeps his runs is not theirs to read.
    """
    inside = re.search(r"(?:^|/)((?:traces|foreign)/.+)", path)
    return inside[1] if inside is not None else path.rsplit("/", 1)[-1]


def command_line(launch: Launch) -> str:
    """Return a launch's command as one shell line, secrets hidden."""
    words: list[str] = []
    hide = False
    for word in (*launch.wrapper, *launch.command):
        name, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(name)) and not _NOT_SECRET.search(name)
        if hide:
            words.append(HIDDEN)
            hide = False
        elif word.startswith("-") and secret and equals:
            words.append(f"{name}={HIDDEN}")
        else:
            words.append(shlex.quote(word))
            hide = word.startswith("-") and secret
    return " ".join(words)


def environment(launch: Launch) -> list[tuple[str, str]]:
    """Return the launch's own environment, secrets hidden."""
    return [
        (name, HIDDEN if _SECRET.search(name) else value)
        for name, value in sorted(launch.environment.items())
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """A cell in the table under the sweep."""

    name: str
    configuration: str
    state: str
    reason: str
    values: tuple[str, ...]


def columns_of(cells: Sequence[CellResult]) -> tuple[Column, ...]:
    """Return the columns of the table under the sweep that say anything."""
    always = ("concurrency", "output_tokens_per_s", "tpot_ms.mean")
    return tuple(
        column
        for column in SUMMARY
        if column.field in always or any(column.read(c) is not None for c in cells)
    )


def summary_rows(cells: Sequence[CellResult], columns: Sequence[Column]) -> list[Row]:
    """Return one row a cell, in the order in which they were measured."""
    return [
        Row(
            name=cell.name,
            configuration=cell.configuration,
            state=state(cell),
            reason=", ".join(cell.void_reasons),
            values=tuple(shown(column.read(cell)) for column in columns),
        )
        for cell in cells
    ]


def points(analysis: Analysis) -> dict[tuple[str, int], str]:
    """Return the first sound cell of each configuration and concurrency."""
    found: dict[tuple[str, int], str] = {}
    for cell in analysis.cells:
        if cell.concurrency is not None and cell.valid and not cell.warm_up:
            found.setdefault((cell.configuration, cell.concurrency), cell.name)
    return found


def scope(entry: BoardEntry) -> str:
    """Return where an entry holds."""
    low, high = entry.scope.concurrency_from, entry.scope.concurrency_to
    if low is None or high is None:
        slow, fast = entry.scope.request_rate_from, entry.scope.request_rate_to
        if slow is None or fast is None:
            return "all"
        both = f"{slow:g}" if slow == fast else f"{slow:g} to {fast:g}"
        return f"{both} requests/s"
    return str(low) if low == high else f"{low} to {high}"


_SHARE = {"supported": "at least ", "ruled-out": "at most ", "standing": "at least "}


def share(entry: BoardEntry) -> str:
    """Return an entry's share of the step with what kind of bound it is."""
    if entry.share_of_step_pct is None:
        return UNKNOWN
    bound = _SHARE.get(entry.status, "")
    return f"{bound}{number(entry.share_of_step_pct)} %"


def board_rows(board: Board) -> list[tuple[str, str, list[BoardEntry]]]:
    """Return (hypothesis, its claim, its entries) in the fixed order."""
    return [
        (name, RULES[name].claim, [e for e in board.entries if e.hypothesis == name])
        for name in HYPOTHESES
    ]


def void_points(analysis: Analysis) -> list[tuple[str, int | None, str]]:
    """Return (configuration, concurrency, reasons) where every cell is void."""
    points: dict[tuple[str, int | None], list[CellResult]] = {}
    for cell in analysis.cells:
        if not cell.warm_up:
            points.setdefault((cell.configuration, cell.concurrency), []).append(cell)
    return [
        (name, c, ", ".join(sorted({r for cell in cells for r in cell.void_reasons})))
        for (name, c), cells in points.items()
        if not any(cell.valid for cell in cells)
    ]


def only_void(entry: BoardEntry, analysis: Analysis) -> bool:
    """True for an entry that says no more than that its cells are void.

    One line under the board says that once for all of them.
    """
    voided = {(name, c) for name, c, _ in void_points(analysis)}
    low, high = entry.scope.concurrency_from, entry.scope.concurrency_to
    measured = {
        (cell.configuration, cell.concurrency)
        for cell in analysis.cells
        if not cell.warm_up
        and cell.configuration == entry.scope.configuration
        and (
            cell.concurrency == low
            if cell.concurrency is None or low is None or high is None
            else low <= cell.concurrency <= high
        )
    }
    return entry.status == "untestable" and bool(measured) and measured <= voided


def evidence(entry: BoardEntry) -> list[tuple[str, str, list[Evidence], str]]:
    """Return (quantity, unit, its values, reasoning): equal reasoning is said once."""
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    for item in entry.evidence:
        groups.setdefault((item.quantity, item.unit, item.reasoning), []).append(item)
    return [(q, unit, items, why) for (q, unit, why), items in groups.items()]


def findings(run: Run, analysis: Analysis, board: Board | None = None) -> list[Finding]:
    """Return all findings, worst first; the same finding once.

    Of equal severity those of warm-ups come last: nothing rests on them.
    """
    claims = board.findings if board is not None else ()
    every = dict.fromkeys((*claims, *run.findings, *analysis.findings))
    warm = {cell.name for cell in analysis.cells if cell.warm_up}
    return sorted(every, key=lambda f: (_ORDER[f.severity], f.cell in warm))


def cell_details(run: Run, analysis: Analysis) -> list[dict[str, object]]:
    """Return, for each cell, everything that is known of it."""
    cells = {cell.name: cell for cell in run.cells}
    told = findings(run, analysis)
    out: list[dict[str, object]] = []
    for result in analysis.cells:
        cell = cells.get(result.name)
        raw = cell.raw_path if cell is not None else None
        out.append(
            {
                "result": result,
                "state": state(result),
                "groups": groups(result),
                "latencies": latencies(result),
                "findings": [f for f in told if f.cell == result.name],
                "workload": _workload(cell.workload) if cell is not None else [],
                "raw": raw,
                "files": _raw_files(cell) if cell is not None else (),
                "source": cell.source if cell is not None else "",
                "failure": cell.failure if cell is not None else None,
                "client": _client(cell.client) if cell is not None else [],
            }
        )
    return out


def _raw_files(cell: Cell) -> tuple[str, ...]:
    """Return the files of a cell's own folder: docs/run-format.md."""
    if cell.source != "stepscope" or not cell.raw_path:
        return ()
    there = {
        "requests.parquet": bool(cell.requests),
        "metrics-before.txt": cell.metrics_before is not None,
        "metrics-after.txt": cell.metrics_after is not None,
    }
    return tuple(f"{cell.raw_path}/{name}" for name, is_ in there.items() if is_)


def _workload(workload: object) -> list[tuple[str, str]]:
    names = getattr(workload, "__struct_fields__", ())
    return [
        (name.replace("_", " ").removeprefix("n "), shown(getattr(workload, name)))
        for name in names
    ]


def _client(health: object) -> list[tuple[str, str]]:
    out = []
    for name in getattr(health, "__struct_fields__", ()):
        value = getattr(health, name)
        parts = getattr(value, "__struct_fields__", None)
        if parts is None:
            out.append((name, shown(value)))
        else:
            out.extend(
                (f"{name} {part}", shown(getattr(value, part))) for part in parts
            )
    return out


def provenance(run: Run) -> str:
    """Return who measured the run, in a sentence: stepscope, or what it was read from.

    A page of an import must not vouch for how its numbers were taken.
    """
    foreign = sorted({cell.source for cell in run.cells} - {"stepscope"})
    if foreign:
        return f"Measured elsewhere ({', '.join(foreign)}), read by stepscope."
    if not run.cells and run.tool_version is None:
        return "Recorded elsewhere, read by stepscope."
    version = "" if run.tool_version is None else f" {run.tool_version}"
    return f"Measured and written by stepscope{version}."


def machine(run: Run) -> list[tuple[str, str]]:
    """Return what is known of the machine, the software and the layout."""
    host = run.machine
    layout = run.layout
    memory = None if host.memory_bytes is None else host.memory_bytes / (1 << 30)
    rows: list[tuple[str, object]] = [
        ("run", run.id),
        ("stepscope", run.tool_version),
        ("engine", run.engine),
        ("engine version", run.engine_version),
        ("model", run.model),
        ("GPU", run.gpu),
        ("GPUs", run.n_gpus),
        ("layout", f"tp {layout.tp}, dp {layout.dp}, pp {layout.pp}, ep {layout.ep}"),
        ("host", host.host),
        ("kernel", host.kernel),
        ("CPU", host.cpu_model),
        ("CPU cores", host.n_cpus),
        ("memory (GiB)", memory),
        ("driver", host.driver),
        ("container", host.container),
    ]
    return [(name, shown(value)) for name, value in rows if value is not None]
