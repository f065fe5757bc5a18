"""The summary on a terminal: 80 columns, the verdict first."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.records import Board
from stepscope.findings import Finding
from stepscope.report.boots import boots, startup_lines
from stepscope.report.cells import UNKNOWN, shown, state
from stepscope.report.content import findings
from stepscope.report.experiments import experiment_rows
from stepscope.report.nexts import what_next
from stepscope.run.run import Run

_N_FINDINGS = 5
_N_NEXT = 3
_N_FIXES = 3
_N_SETTLED = 4
#: TPOT is told by its mean and TTFT by its median, as on the page.
_HEADERS = (
    "C", "tok/s", "TPOT ms\nmean", "p99", "TTFT ms\nmedian", "p99", "util %", "W",
)  # fmt: skip
_STYLE = {"error": "red", "warning": "yellow", "info": "dim"}


def print_summary(console: Console, run: Run, analysis: Analysis, board: Board) -> None:
    """Print verdict, cells, the gravest findings and what to run next.

    Args:
        console: Where to; it decides on width and colour.
        run: The run.
        analysis: Its figures.
        board: Its verdict.
    """
    for sentence in board.sentences:
        console.print(Text(sentence, style="bold"), soft_wrap=False)
    if not run.complete:
        console.print(Text("This run was cut short.", style="yellow"))
    _boots(console, run, analysis)
    if analysis.cells:
        console.print()
        console.print(_cells(analysis.cells))
    for cell in analysis.cells:
        if not cell.valid:
            reasons = ", ".join(cell.void_reasons) or cell.status
            console.print(Text(f"{cell.name} is void: {reasons}", style="dim"))
    _experiments(console, board)
    _findings(console, findings(run, analysis, board))
    _next(console, run, analysis, board)


def _cells(cells: Sequence[CellResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=False)
    table.add_column("cell", overflow="fold", max_width=22)
    for header in _HEADERS:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for cell in cells:
        telemetry = cell.telemetry
        rate = cell.request_rate
        values = (
            cell.concurrency if rate is None else f"{rate:g}/s",
            cell.output_tokens_per_s,
            cell.tpot_ms.mean,
            cell.tpot_ms.p99,
            cell.ttft_ms.median,
            cell.ttft_ms.p99,
            telemetry.util_pct if telemetry is not None else None,
            telemetry.power_w if telemetry is not None else None,
        )
        told = state(cell)
        table.add_row(
            Text(cell.name),
            *(shown(v) if v is not None else UNKNOWN for v in values),
            Text(told),
            style="dim" if told else None,
        )
    return table


def _boots(console: Console, run: Run, analysis: Analysis) -> None:
    """Print why a launch did not come up and what helps, and what starts take."""
    for boot in boots(run, analysis):
        if boot.ready:
            continue
        console.print(
            Text(
                f"{boot.launch}: {boot.why or boot.failure or boot.outcome} {boot.note}"
            )
        )
        for fix in boot.fixes[:_N_FIXES]:
            console.print(Text(f"- {fix}"))
    for line in startup_lines(analysis):
        console.print(Text(f"{line}."))


def _experiments(console: Console, board: Board) -> None:
    """Print what each experiment says, and what it did to the board."""
    for row in experiment_rows(board):
        console.print()
        console.print(Text(row.title, style="bold"))
        for line in (*row.moved, *row.said, *row.chosen):
            console.print(Text(f"- {line}"))


def _findings(console: Console, every: Sequence[Finding]) -> None:
    top = [f for f in every if f.severity != "info"][:_N_FINDINGS]
    if not top:
        return
    console.print()
    for finding in top:
        where = finding.cell or finding.launch
        head = Text(f"{finding.severity} ", style=_STYLE[finding.severity])
        head.append(finding.code, style="bold")
        head.append(f" {where}" if where else "")
        head.append(f": {finding.message}", style="default")
        console.print(head)
    rest = len(every) - len(top)
    if rest:
        console.print(Text(f"{rest} more in the report.", style="dim"))


def _next(console: Console, run: Run, analysis: Analysis, board: Board) -> None:
    """Print what the page's plan begins with, and what tells all of it."""
    todo = what_next(run, analysis, board)
    chosen = [m for m in todo.measurements if m.in_recipe] or todo.measurements
    if not chosen:
        return
    console.print()
    console.print(Text("What to run next", style="bold"))
    for one in chosen[:_N_NEXT]:
        takes = "" if one.alone == UNKNOWN else f" ({one.alone} minutes)"
        how = "decides" if one.decides else "bears on"
        what = one.decides or one.bears_on
        more = f" and {len(what) - _N_SETTLED} more" if len(what) > _N_SETTLED else ""
        settles = f"{how} {'; '.join(what[:_N_SETTLED])}{more}"
        console.print(Text(f"- {one.title}{takes}: {settles}"))
    console.print(
        Text("stepscope plan ranks them all and writes the recipe.", style="dim")
    )
