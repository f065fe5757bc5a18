"""Did the baseline stand still, and did the order of launches allow for it?"""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from scipy import stats

from stepscope.analysis.compare.contrasts import Rows
from stepscope.analysis.compare.judge import LEAST_EFFECT
from stepscope.analysis.compare.rows import percent
from stepscope.analysis.compare.table import Start, Table
from stepscope.findings import Finding
from stepscope.recipe.records import Workload

#: A drift that leaks into a difference by more than this part is worth a warning.
_LEAK = 0.15
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def order_findings(of: Table, rows: Rows, a: str, bs: Sequence[str]) -> list[Finding]:
    """Return what the order of the launches lets through, and the baseline's drift.

    Source: a drift linear in time adds to a difference the part of itself by which
        the arms' mean instants differ: nothing for A B B A, a third for A B A B.
    """
    used = {reading.launch for reading in of.readings}
    starts = [s for s in of.starts if s.name in used and s.arm in (a, *bs)]
    if any(s.started_at_ns is None for s in starts) or len(starts) < 2:
        return []
    found = []
    for session, of_session in groupby(
        sorted(starts, key=lambda s: s.session), key=lambda s: s.session
    ):
        here = sorted(of_session, key=lambda s: s.started_at_ns or 0)
        found += _leaks(here, a, bs)
        found += _drift(of, rows, here, a, session)
    return found


def letters(starts: Sequence[Start], a: str, bs: Sequence[str]) -> str:
    """Return an order such as ``A B B A``, the baseline being A."""
    names = {arm: _LETTERS[i % 26] for i, arm in enumerate((a, *bs))}
    return " ".join(names[s.arm] for s in starts)


def _leaks(here: Sequence[Start], a: str, bs: Sequence[str]) -> list[Finding]:
    instants = {
        arm: [s.started_at_ns or 0 for s in here if s.arm == arm] for arm in (a, *bs)
    }
    span = max(s.started_at_ns or 0 for s in here) - min(
        s.started_at_ns or 0 for s in here
    )
    if not instants[a] or not span:
        return []
    leaks = {
        b: float(np.mean(instants[b]) - np.mean(instants[a])) / span
        for b in bs
        if instants[b]
    }
    bad = {b: leak for b, leak in leaks.items() if abs(leak) > _LEAK}
    if not bad:
        return []
    worst = max(abs(leak) for leak in bad.values())
    return [
        Finding(
            code="order-unbalanced",
            severity="warning",
            message=f"the launches ran in the order {letters(here, a, bs)} (A is {a}):"
            f" a drift of 1 % from the first to the last would read as a difference of"
            f" {worst:.2f} % of {', '.join(bad)}",
            hint="Take turns there and back: n_launches = 2 and --order abba.",
        )
    ]


def _drift(
    of: Table, rows: Rows, here: Sequence[Start], a: str, session: str
) -> list[Finding]:
    mine = [s.name for s in here if s.arm == a]
    if len(mine) < 2 or rows.unit != "launch":
        return []
    first, last = (_means(of, rows, name) for name in (mine[0], mine[-1]))
    common = [row for row in first if row in last]
    known = rows.spread((session,))
    if not common or known is None:
        return []
    value = float(np.mean([last[row] - first[row] for row in common]))
    # Against the spread inside launches: one launch that moved is itself most of the
    # spread between launches, and would excuse itself.
    error = float(np.sqrt(2 * known.inner_ms / len(common)))
    half = float(stats.t.ppf(0.975, known.inner_df)) * error
    low, high = percent(value - half), percent(value + half)
    moved = abs(value) > max(half, float(np.log1p(LEAST_EFFECT)))
    told = (
        "more than rows vary inside a launch: a drift, or a spread from start to start"
        if moved
        else "no more than rows vary inside a launch"
    )
    return [
        Finding(
            code="baseline-drift",
            severity="warning" if moved else "info",
            message=f"{a} read {percent(value):+.1f} % in its last launch against its"
            f" first (95 % interval {low:+.1f} to {high:+.1f} %, {_over(common)}),"
            f" {told}",
            hint="Differences keep their intervals if the order is balanced; find what"
            " moved."
            if moved
            else "",
        )
    ]


def _over(rows: Sequence[Workload]) -> str:
    return "one row" if len(rows) == 1 else f"mean over {len(rows)} rows"


def _means(of: Table, rows: Rows, launch: str) -> dict[Workload, float]:
    found: dict[Workload, list[float]] = {}
    for reading in of.readings:
        if reading.launch == launch and rows.metric in reading.values:
            logs = found.setdefault(reading.row, [])
            logs.append(float(np.log(reading.values[rows.metric])))
    return {row: float(np.mean(logs)) for row, logs in found.items()}
