"""Holes of a number: what a finding takes from it, and what would settle that."""

from collections.abc import Sequence

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.claims import at, number, repeats
from stepscope.findings import Finding

#: An interval this wide, percent to either side, supports no number.
WIDE_PCT = 15.0
#: finding code -> what would close the hole. Only these make a number not solid.
SETTLES: dict[str, str] = {
    "client-bound": "Repeat it with a client that keeps up (stepscope run or bench).",
    "little-violated": "Repeat it and keep all per-request records.",
    "token-count-mismatch": "Fix the token counts at the server and repeat it.",
    "clock-step": "Repeat it with a monotonic clock (stepscope run uses one).",
    "partial-waves": "Repeat it with whole waves: n_prompts a multiple of concurrency.",
    "not-steady": "Repeat it with more waves.",
    "warmup-not-converged": "Warm up longer (warm_up.max_blocks) and repeat it.",
    "first-run-contaminated": "Repeat it on the warm server.",
    "jit-during-measurement": "Repeat it on the warm server.",
    "stall": "Repeat it; if the stall returns, capture a timeline of it.",
    "bimodal-ttft": "Repeat it and look at its TTFTs over time.",
    "ttft-not-monotone": "Repeat it and its neighbours.",
    "cpu-starved": "Repeat it with processors that nothing else uses (cpus).",
    "prefix-cache-hits": "Repeat it with prefix caching off or other prompts.",
    "preemptions": "Repeat it with more KV memory or fewer requests in flight.",
    "failed-requests": "Find out why requests failed, and repeat it.",
    "early-stop": "Repeat it with ignore_eos.",
    "outputs-differ": "Repeat both with the same number of output tokens.",
    "cross-session": "Measure one anchor cell in both sessions.",
    "server-restarted": "Repeat it on one server.",
    "clocks-disagree": "Repeat it with more requests, and check both clocks.",
    "shared-baseline": "Measure a baseline for each comparison.",
}
TELEMETRY_SETTLES: dict[str, str] = {
    "telemetry-window-mismatch": "Sample on the same clock as the client.",
    "gpus-not-told": "Measure where no other program uses a GPU.",
    "telemetry-too-sparse": "Sample more often, or measure for longer.",
}


def holes_of(
    cell: CellResult,
    findings: Sequence[Finding],
    codes: Sequence[str],
    group: RepeatGroup | None = None,
) -> list[tuple[str, str]]:
    """Return the holes that findings leave in a number: (why, what settles it).

    Args:
        cell: The cell that it is from.
        findings: Of the run and of its analysis.
        codes: Which findings bear on this number.
        group: The repeats that it is the mean of; then each of them counts.
    """
    names = (cell.name,) if group is None else group.cells
    told = {**SETTLES, **TELEMETRY_SETTLES}
    return [
        (f"{f.code}: {f.message.rstrip('.')}", told[f.code])
        for f in findings
        if f.code in codes
        and (f.cell in names or (f.cell is None and f.launch == cell.launch))
    ]


def holes_of_repeats(
    cell: CellResult, analysis: Analysis, metric: str
) -> tuple[RepeatGroup | None, list[tuple[str, str]]]:
    """Return the repeats behind a number, or the holes of a single run."""
    group = repeats(cell, analysis, metric)
    if group is not None:
        return group, _of_spread(group, cell)
    hole = ("one run, so it has no interval", f"Repeat it three times {where(cell)}.")
    # Repeats that agree show a settled server; a single run does not.
    unknown = [
        (f"{f.code}: {f.message.rstrip('.')}", "Warm up for six blocks or more.")
        for f in analysis.findings
        if f.code == "warmup-unknown" and f.launch in (None, cell.launch)
    ]
    return None, [hole, *unknown]


def _of_spread(group: RepeatGroup, cell: CellResult) -> list[tuple[str, str]]:
    """Return the hole of repeats that disagree."""
    spread = spread_pct(group.ci95, group.mean)
    if spread <= WIDE_PCT:
        return []
    values = f"{number(min(group.values))} to {number(max(group.values))}"
    why = (
        f"its {len(group.values)} repeats, {values}, leave an interval of"
        f" {number(spread)} % to either side"
    )
    return [(why, f"Find what differs between them; repeat it more {where(cell)}.")]


def spread_pct(interval: tuple[float, float] | None, middle: float) -> float:
    """Return half an interval's width over its middle, percent."""
    if interval is None or not middle:
        return float("inf")
    return 50 * (interval[1] - interval[0]) / abs(middle)


def where(cell: CellResult) -> str:
    """Return where to repeat a cell, as the recipe says it."""
    if cell.concurrency is None:
        return "in the same open loop (stepscope run)"
    return f'at {at(cell)} (concurrency = ["{cell.concurrency}x3"] in the recipe)'
