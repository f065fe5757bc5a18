"""Numbers as people say them, for the board's sentences."""

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis, CellResult


def number(value: float) -> str:
    """Return a number to three significant digits, thousands apart: 11,200; 6.30."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value))))
        return f"{round(value, 3 - digits):,.0f}"
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:#.3g}"


def repeats(cell: CellResult, analysis: Analysis, metric: str) -> RepeatGroup | None:
    """Return the repeats that a cell belongs to; None where they give no interval."""
    return next(
        (
            group
            for group in analysis.groups
            if group.metric == metric
            and cell.name in group.cells
            and group.ci95 is not None
        ),
        None,
    )


def at(cell: CellResult) -> str:
    """Return where a cell was measured: ``concurrency 64``."""
    if cell.concurrency is None and cell.request_rate is not None:
        return f"{cell.request_rate:g} requests/s"
    if cell.concurrency is None:
        return "an open loop"
    return f"concurrency {cell.concurrency}"


def span(low: int | None, high: int | None) -> str:
    """Return a range of concurrency in words."""
    if low is None or high is None:
        return "in an open loop"
    return f"at concurrency {low}" if low == high else f"at concurrency {low} to {high}"
