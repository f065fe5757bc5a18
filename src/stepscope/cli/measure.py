"""What `run` and `demo` share: execute a plan, then explain and show it."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import NoReturn

from stepscope.clock import SystemClock
from stepscope.recipe.records import Plan
from stepscope.session.outcome import Outcome


def measure(plan: Plan, text: str, out: Path, *, resume: bool) -> NoReturn:
    """Run a plan, write the page, print the summary, exit.

    Exit codes: 0 something was measured; 3 nothing was; 130 interrupted.
    """
    from stepscope.cli.progress import make_observer
    from stepscope.session.execute import execute

    clock = SystemClock()
    stop = threading.Event()
    _stop_on_signals(stop)
    observer = make_observer(clock)
    try:
        outcome = execute(
            plan, text, out, clock=clock, observer=observer, resume=resume, stop=stop
        )
    except OSError as error:
        observer.close()
        where = error.filename or out
        reason = error.strerror or error
        print(
            f"{where}: {reason}; what was measured is kept. Make room and go on with"
            " --resume.",
            file=sys.stderr,
        )
        sys.exit(3)
    finally:
        observer.close()
    show(outcome)
    if outcome.interrupted:
        print(f"interrupted; go on with --resume --out {out}", file=sys.stderr)
        sys.exit(130)
    for line in outcome.failures:
        print(line, file=sys.stderr)
    sys.exit(0 if outcome.n_measured else 3)


def show(outcome: Outcome) -> None:
    """Explain what was measured: summary on stdout, page beside the run."""
    from rich.console import Console

    from stepscope.analysis.analyze import analyze
    from stepscope.archive.reader import open_run
    from stepscope.board.judge import judge
    from stepscope.report.page import html
    from stepscope.report.terminal import print_summary

    run = open_run(outcome.path)
    analysis = analyze(run)
    board = judge(run, analysis)
    page = outcome.path / "report.html"
    page.write_text(html(run, analysis, board), encoding="utf-8")
    print_summary(Console(highlight=False), run, analysis, board)
    print(f"\nReport: {page}\nRun:    {outcome.path}")


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            # Asked twice: leave at once; the guard ends the server.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
