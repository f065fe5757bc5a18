"""Live progress of a session on stderr: one line that moves, or plain lines."""

import sys

from stepscope.clock import Clock
from stepscope.load.spec import LoadProgress

#: A log needs no line a second.
_PLAIN_INTERVAL_NS = 15_000_000_000


class PlainObserver:
    """Plain lines, no control codes: for logs and pipes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_at_ns = 0
        self._total = 0

    def phase(self, name: str, detail: str) -> None:
        """Print the phase, except the cells' own, which ``cell`` prints."""
        if name not in ("measure", "warm-up"):
            print(f"[{name}] {detail}", file=sys.stderr, flush=True)

    def cell(self, name: str, number: int, total: int, n_requests: int) -> None:
        """Print the cell."""
        text = f"[cell {number}/{total}] {name}: {n_requests} requests"
        print(text, file=sys.stderr, flush=True)
        self._said_at_ns, self._total = self._clock.now_ns(), n_requests

    def progress(self, progress: LoadProgress) -> None:
        """Print a line now and then."""
        now = self._clock.now_ns()
        if now - self._said_at_ns < _PLAIN_INTERVAL_NS:
            return
        self._said_at_ns = now
        done = progress.n_done + progress.n_failed
        print(f"  {done}/{self._total} requests", file=sys.stderr, flush=True)

    def note(self, severity: str, text: str) -> None:
        """Print it."""
        print(f"{severity}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is open."""


class LiveObserver:
    """One moving line: phase, cell, requests done, tokens/s now, time left."""

    def __init__(self, clock: Clock) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._clock = clock
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, rate="")
        self._progress.start()
        self._began_at_ns = 0

    def phase(self, name: str, detail: str) -> None:
        """Show the phase."""
        text = f"{name} {detail}"[:48]
        self._progress.reset(self._task, total=None, description=text, rate="")

    def cell(self, name: str, number: int, total: int, n_requests: int) -> None:
        """Show the cell."""
        text = f"[{number}/{total}] {name}"[:48]
        self._progress.reset(self._task, total=n_requests, description=text, rate="")
        self._began_at_ns = self._clock.now_ns()

    def progress(self, progress: LoadProgress) -> None:
        """Move the line."""
        # Only ended requests are counted, so the rate is that of the cell so far.
        took_s = max(self._clock.now_ns() - self._began_at_ns, 1) / 1e9
        done = progress.n_done + progress.n_failed
        text = f"{progress.output_tokens / took_s:,.0f} tok/s"
        self._progress.update(self._task, completed=done, rate=text)

    def note(self, severity: str, text: str) -> None:
        """Print above the moving line."""
        self._console.print(f"{severity}: {text}", markup=False)

    def close(self) -> None:
        """Take the line away."""
        self._progress.stop()


def make_observer(clock: Clock) -> PlainObserver | LiveObserver:
    """Return the live one on a terminal, else the plain one."""
    return LiveObserver(clock) if sys.stderr.isatty() else PlainObserver(clock)
