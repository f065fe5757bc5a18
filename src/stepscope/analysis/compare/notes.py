"""What a reader of comparisons must know besides the numbers."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.compare.contrasts import STARTS, Contrast, Rows
from stepscope.analysis.compare.judge import SAME, Family
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.compare.rows import ONE_START
from stepscope.analysis.compare.standing import rows_text
from stepscope.analysis.compare.table import RATE, Table, is_open
from stepscope.findings import Finding

#: A server alone on its machine repeats within 1 %.
_NOISY = 0.05
_UNITS = {"launch": "launches", "run": "runs"}


def across_findings(of: Table, refused: Sequence[Contrast]) -> list[Finding]:
    """Say which pairs were measured in different sessions without an anchor."""
    pairs: dict[tuple[str, str], list[Contrast]] = defaultdict(list)
    for one in refused:
        if one.metric == RATE or not any(r.metric == RATE for r in refused):
            pairs[(one.a, one.b)].append(one)
    found = []
    for (a, b), ones in pairs.items():
        here = " and ".join(of.sessions[s].text for s in ones[0].sessions)
        rows = rows_text([r.row for r in ones])
        found.append(
            Finding(
                code="cross-session",
                severity="warning",
                message=f"{a} and {b} were measured in different sessions ({here}), and"
                f" nothing was measured in both at {rows}: their figures are not"
                " compared, since sessions differ by more than most flags do",
                hint=f"Measure {a} in the session of {b} too, first and last, as an"
                " anchor; or both in one run, as baseline and patch.",
            )
        )
    return found


def unknown_sessions(families: Sequence[Family]) -> list[Finding]:
    """Say which differences are bare: nothing tells on what machine they were taken."""
    pairs = {(f.a, f.b) for f in families if any(c.raw for c in f.rows)}
    return [
        Finding(
            code="session-unknown",
            severity="warning",
            message=f"nothing says that {a} and {b} were measured on one machine in one"
            " session: the differences are bare, without an interval, and decide"
            " nothing",
            hint="Measure both in one run, as baseline and patch; or name one [run]"
            " session in the import.toml of both, if it was one.",
        )
        for a, b in sorted(pairs)
    ]


def launch_findings(of: Table, found: Sequence[Comparison]) -> list[Finding]:
    """Say beside a verdict, or the lack of one, what was started only once."""
    decided = [c for c in found if c.verdict != "undetermined" or c.reason == ONE_START]
    arms = dict.fromkeys(arm for c in decided for arm in (c.b, c.a))
    starts: dict[str, set[str]] = defaultdict(set)
    for reading in of.readings:
        starts[reading.arm].add(reading.launch)
    alone = [arm for arm in arms if len(starts[arm]) < 2]
    if not alone:
        return []
    return [
        Finding(
            code="one-launch",
            severity="warning",
            message=f"{', '.join(alone)}: measured on a single server start; repeats"
            " on one start hold the spread from run to run, not from start to start"
            f"{_taken(decided)}",
            hint="Start each configuration again, in the order A B B A:"
            " n_launches = 2.",
        )
    ]


def _taken(decided: Sequence[Comparison]) -> str:
    """Return what is assumed of starts where none was repeated."""
    if any(c.unit == "launch" for c in decided):
        return ""
    return (
        f". Starts are taken to differ by {100 * STARTS:g} % (standard deviation),"
        " which nobody measured here: no verdict counts less than that"
    )


def shared_baseline(found: Sequence[Comparison], base: str) -> list[Finding]:
    """Say when unrelated configurations move alike against one baseline row.

    Where an interval settles the row, the baseline's own error is inside it.
    """
    rows: dict[object, list[Comparison]] = defaultdict(list)
    for one in found:
        if one.metric == RATE and one.delta_pct is not None:
            key = (one.session, one.concurrency, one.input_tokens, one.output_tokens,
                   one.n_prompts, one.request_rate)  # fmt: skip
            rows[key].append(one)
    notes = []
    for here in rows.values():
        moves = [c.delta_pct for c in here if c.delta_pct is not None]
        alike = all(m > 100 * SAME for m in moves) or all(
            m < -100 * SAME for m in moves
        )
        if len(moves) > 1 and alike and all(c.verdict == "undetermined" for c in here):
            shown = ", ".join(f"{c.b} {c.delta_pct:+.1f} %" for c in here)
            at = here[0].concurrency
            notes.append(
                Finding(
                    code="shared-baseline",
                    severity="warning",
                    message=f"at concurrency {at} all configurations move alike against"
                    f" {base} ({shown}): the baseline's row is what they share",
                    hint=f"Measure {base} at {at} again, before and after.",
                )
            )
    return notes


def noisy(rows: Rows, sessions: Sequence[str]) -> list[Finding]:
    """Say where repeats alone will not help: the machine itself is restless."""
    known = rows.spread(sessions)
    if known is None or known.sd < _NOISY:
        return []
    return [
        Finding(
            code="noisy-repeats",
            severity="warning",
            message=f"{_UNITS[rows.unit]} of one configuration at one workload point"
            f" differ by {100 * float(np.expm1(known.sd)):.0f} % in {rows.metric}"
            " (standard deviation)",
            hint="Find what else uses the machine before you add repeats.",
        )
    ]


def left_out_findings(of: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Say what is not compared, and whether one arm lost more than another."""
    mine = [x for x in of.left_out if x.configuration in (a, *bs)]
    if not mine:
        return []
    counts = {arm: sum(x.configuration == arm for x in mine) for arm in (a, *bs)}
    uneven = len(set(counts.values())) > 1
    each = ", ".join(f"{n} of {arm}" for arm, n in counts.items())
    cells = "; ".join(f"{x.cell} ({x.reason})" for x in mine[:6])
    more = f" and {len(mine) - 6} more" if len(mine) > 6 else ""
    return [
        Finding(
            code="left-out",
            severity="warning" if uneven else "info",
            message=f"not compared: {each}: {cells}{more}",
            hint="What voids more cells of one configuration may be its effect: read"
            " those cells before the differences."
            if uneven
            else "",
        )
    ]


def open_loops(of: Table) -> list[Finding]:
    """Say why the throughput of an open loop is not compared."""
    if not any(is_open(reading.row) for reading in of.readings):
        return []
    return [
        Finding(
            code="open-loop-rate",
            severity="info",
            message="where requests come by a schedule the throughput is the"
            " schedule's: there only latencies are compared",
        )
    ]


def no_common_row(of: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Say which pairs share no workload point."""
    rows: dict[str, set[object]] = defaultdict(set)
    for reading in of.readings:
        rows[reading.arm].add(reading.row)
    return [
        Finding(
            code="no-common-row",
            severity="warning",
            message=f"{a} and {b} have no workload point in common: concurrency, number"
            " of prompts, lengths and data must all be the same",
            hint="Measure both with one recipe.",
        )
        for b in bs
        if rows[a] and rows[b] and not rows[a] & rows[b]
    ]
