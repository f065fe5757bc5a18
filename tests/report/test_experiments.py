"""Experiments on the page and on a terminal."""

from io import StringIO

from rich.console import Console

from stepscope.analysis.records import Analysis
from stepscope.board.records import Board, Chosen, ExperimentResult, Moved, Told
from stepscope.report.experiments import experiment_rows
from stepscope.report.page import html
from stepscope.report.terminal import print_summary
from stepscope.run.run import Run, Timeline


def told(status: str, share: float | None = None) -> Told:
    return Told(
        hypothesis="launch",
        configuration="eager",
        concurrency_from=8,
        concurrency_to=64,
        status=status,  # type: ignore[arg-type]
        share_of_step_pct=share,
    )


ONE = ExperimentResult(
    change="graphs",
    title="graphs against eager",
    light="baseline",
    heavy="eager",
    session="s0",
    moved=(
        Moved(
            concurrency=8,
            request_rate=None,
            light_ms=9.06,
            heavy_ms=56.7,
            delta_pct=525.8,
            ci95_pct=None,
            n_light=1,
            n_heavy=1,
            outcome="longer",
            why="n = 1: far",
        ),
    ),
    said=(told("supported", 84.0),),
    moves="<one> call",
    cannot_see="gaps",
    chosen=Chosen(
        number=0,
        title="without graphs",
        launches=("baseline-graphs-x0",),
        splits=("launch",),
        before=(told("standing"),),
        after=(told("supported", 84.0),),
        eliminated=(),
        supported=("launch at concurrency 8 to 64",),
        minutes=2.5,
        usd=0.15,
    ),
)
BOARD = Board(sentences=(), entries=(), solid=(), not_solid=(), experiments=(ONE,))
RUN = Run(id="r", engine="vllm", timeline=Timeline(kind="monotonic"))

LINES = [
    "at concurrency 8: 9.06 ms (baseline), 56.7 ms (eager), +526 %: moved (n = 1: far)",
    "launch of eager supported (at least 84.0 % of the step) at concurrency 8 to 64",
    "experiment 0, chosen to decide launch (baseline-graphs-x0; 2.5 minutes, 0.15 USD)",
    "before: launch standing at concurrency 8 to 64",
    "after: launch supported (at least 84.0 % of the step) at concurrency 8 to 64",
    "eliminated: nothing",
    "supported: launch at concurrency 8 to 64",
]


def test_a_row_holds_figures_verdicts_cost_and_the_board_before_and_after() -> None:
    (row,) = experiment_rows(BOARD)
    assert row.title == "graphs against eager: baseline against eager"
    assert [*row.moved, *row.said, *row.chosen] == LINES


def test_page_and_terminal_say_the_same() -> None:
    page = html(RUN, Analysis(cells=()), BOARD)
    out = StringIO()
    print_summary(Console(file=out, width=400), RUN, Analysis(cells=()), BOARD)
    for line in LINES:
        assert line in page
        assert f"- {line}" in out.getvalue()
    assert "&lt;one&gt; call" in page


def test_a_run_without_experiments_says_nothing_of_them() -> None:
    empty = Board(sentences=(), entries=(), solid=(), not_solid=())
    page = html(RUN, Analysis(cells=()), empty)
    assert "Experiments" not in page
