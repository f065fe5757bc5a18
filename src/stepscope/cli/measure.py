"""What `run` and `demo` share: execute a plan, then explain and show it."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from stepscope.cli.output import write_whole
from stepscope.cli.readers import read_or_not
from stepscope.clock import SystemClock
from stepscope.recipe.records import Plan
from stepscope.session.halt import Halt


def measure(plan: Plan, text: str, out: Path, *, resume: bool) -> NoReturn:
    """Run a plan, write the page, print the summary, exit.

    Exit codes: 0 something was measured; 3 nothing was; 130 interrupted.
    """
    from stepscope.analysis.boot.diagnose import diagnose
    from stepscope.cli.progress import make_observer
    from stepscope.session.execute import Order, execute

    clock, halt = SystemClock(), Halt()
    _halt_on_signals(halt)
    observer = make_observer(clock)
    try:
        order = Order(
            plan,
            text,
            out,
            resume=resume,
            doctor=lambda log, exit_code: diagnose(log, exit_code=exit_code),
        )
        outcome = execute(order, clock=clock, observer=observer, halt=halt)
        if plan.recipe.explain is not None:
            from stepscope.cli.explain import explain

            outcome = explain(order, outcome, clock=clock, observer=observer, halt=halt)
    finally:
        observer.close()
    if not outcome.interrupted:
        show(outcome.path)
    if outcome.interrupted:
        print(
            f"{outcome.path}: interrupted; what was measured is kept. Go on with"
            f" --resume --out {outcome.path}",
            file=sys.stderr,
        )
        sys.exit(130)
    if not outcome.n_measured:
        print(
            f"{outcome.path}: nothing was measured; the reasons stand above and in the"
            " report. Mend it and go on with --resume",
            file=sys.stderr,
        )
        sys.exit(3)
    sys.exit(0)


def show(path: Path) -> None:
    """Explain what was measured: summary on stdout, page beside the run."""
    from rich.console import Console

    from stepscope.analysis.analyze import analyze
    from stepscope.board.judge import judge
    from stepscope.cli.trace_page import pictures_of
    from stepscope.importers.open import open_any
    from stepscope.report.page import html
    from stepscope.report.terminal import print_summary

    run = open_any(path)
    analysis = analyze(run)
    board = judge(run, analysis)
    page = path / "report.html"
    text = html(run, analysis, board, pictures=pictures_of(run))
    write_whole(page, text)
    with read_or_not():
        print_summary(Console(highlight=False), run, analysis, board)
        print(f"\nReport: {page}\nRun:    {path}")


def _halt_on_signals(halt: Halt) -> None:
    """Ask the session to stop; the third signal leaves and the guard cleans up."""

    def handle(number: int, frame: FrameType | None) -> None:
        if halt.hurry.is_set():
            raise KeyboardInterrupt
        halt.ask()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
