"""Which stretch of time a figure is taken over."""

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.cell.columns import Columns
from stepscope.recipe.records import Workload

#: From this many waves on, telemetry leaves out the first wave and the drain.
WAVES_FOR_INNER_WINDOW = 4


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the run's timeline, nanoseconds.

    ``slack_ns``: the true stretch may lie up to this much earlier.
    """

    from_ns: int
    to_ns: int
    slack_ns: int = 0

    @property
    def length_ns(self) -> int:
        """Return its length."""
        return self.to_ns - self.from_ns

    def earlier(self, by_ns: int) -> "Window":
        """Return the window moved ``by_ns`` towards the past."""
        return Window(self.from_ns - by_ns, self.to_ns - by_ns)


def cell_span(columns: Columns, slack_ns: int = 0) -> Window | None:
    """Return first send to last content; None where nothing was answered.

    All requests count, failed ones too; a failed request moves the end only by the
    content that it did send, so that one hung request does not stretch the cell.

    Args:
        columns: The cell's requests.
        slack_ns: How much earlier all of them may lie (``Cell.clock_slack_ns``).
    """
    if not columns.has_content.any():
        return None
    start = int(columns.sent.min())
    end = int(columns.last[columns.has_content].max())
    return Window(start, end, slack_ns) if end > start else None


def slots_of(workload: Workload) -> int | None:
    """Return the slots of a closed loop; None for an open one, capped or not."""
    open_loop = workload.arrival is not None or workload.request_rate is not None
    return None if open_loop else workload.concurrency


def open_window(columns: Columns) -> Window | None:
    """Return the steady stretch of an open loop: filled, until the last arrival.

    A system that starts empty has filled once as much time has passed as a request
    stays: nine in ten of those that came in the first quarter. None where that takes
    more than half of the arrivals' time.
    """
    due = columns.due_at
    begin, end = int(due.min()), int(due.max())
    early = due <= begin + (end - begin) // 4
    stay = columns.left[early] - due[early]
    filled = begin + int(np.quantile(stay, 0.9))
    return Window(filled, end) if filled - begin <= (end - begin) // 2 else None


def waves(n_requests: int, concurrency: int | None) -> float | None:
    """Return requests over concurrency; None for an open loop."""
    return n_requests / concurrency if concurrency else None


def telemetry_window(columns: Columns, span: Window, concurrency: int | None) -> Window:
    """Return the stretch that utilization, power and counters are taken over.

    The cell span below four waves; from four waves on, first send of the second wave
    to the last send, which leaves out the first wave's common prefill and the drain.
    Of an open loop its steady stretch, or the span where it has none.
    """
    if columns.due is not None:
        steady = open_window(columns)
        if steady is None:
            return span
        return Window(steady.from_ns, steady.to_ns, span.slack_ns)
    n_waves = waves(columns.n, concurrency)
    if concurrency is None or n_waves is None or n_waves < WAVES_FOR_INNER_WINDOW:
        return span
    inner = Window(int(columns.sent[concurrency]), int(columns.sent[-1]), span.slack_ns)
    return inner if inner.length_ns > 0 else span
