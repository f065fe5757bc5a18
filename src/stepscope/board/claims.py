"""Numbers as people say them, for the board's sentences."""

from stepscope.analysis.records import CellResult


def number(value: float) -> str:
    """Return a number to three significant digits, thousands apart: 11,200; 6.31."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value))))
        return f"{round(value, 3 - digits):,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def at(cell: CellResult) -> str:
    """Return where a cell was measured: ``concurrency 64``."""
    if cell.concurrency is None:
        return "an open loop"
    return f"concurrency {cell.concurrency}"


def span(low: int | None, high: int | None) -> str:
    """Return a range of concurrency in words."""
    if low is None or high is None:
        return "in an open loop"
    return f"at concurrency {low}" if low == high else f"at concurrency {low} to {high}"
