"""`compare --json`, and the same on a terminal."""

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepscope.analysis.compare.advice import other_metrics, what_to_run
from stepscope.analysis.compare.compare import Compared
from stepscope.analysis.compare.contrasts import unit_of
from stepscope.analysis.compare.decide import Decision
from stepscope.analysis.compare.order import letters
from stepscope.analysis.compare.records import Comparison, LeftOut, PooledComparison
from stepscope.findings import Finding
from stepscope.report.cells import UNKNOWN, shown

SCHEMA = 1
_STYLE = {"error": "red", "warning": "yellow", "info": "dim"}
_VERDICT_STYLE = {"slower": "red", "faster": "green", "same": "", "undetermined": "dim"}


class NotCompared(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A row of two sessions that nothing connects."""

    a: str
    b: str
    concurrency: int | None
    metric: str
    reason: str


class CompareDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Everything that a comparison says.

    Attributes:
        schema: Of this document.
        a: The baseline.
        b: What was compared with it.
        metric: Which figure decides.
        fail_if_worse_pct: The loss that is tolerated; None: none was named.
        verdict: Of the whole.
        exit_code: 0, 1 or 5.
        why: One sentence.
        what_to_run: What would settle it; None where it is settled.
        unit: What repeats.
        order: Launches in the order of time, the baseline being A; None: not known.
        sessions: Each configuration's sessions.
        comparisons: Rows.
        pooled: Means over rows.
        not_compared: Rows that nothing connects.
        left_out: Cells that are not compared.
        findings: What must be known besides.
    """

    schema: int
    a: str
    b: tuple[str, ...]
    metric: str
    fail_if_worse_pct: float | None
    verdict: str
    exit_code: int
    why: str
    what_to_run: str | None
    unit: str
    order: str | None
    sessions: dict[str, tuple[str, ...]]
    comparisons: tuple[Comparison, ...]
    pooled: tuple[PooledComparison, ...]
    not_compared: tuple[NotCompared, ...]
    left_out: tuple[LeftOut, ...]
    findings: tuple[Finding, ...]


def compare_document(
    of: Compared, decision: Decision, metric: str, margin: float | None
) -> CompareDocument:
    """Return the document of a comparison.

    Args:
        of: What was compared.
        decision: The answer.
        metric: Which figure decides.
        margin: The loss that is tolerated, as a part of one.
    """
    arms = (of.a, *of.bs)
    places: dict[str, dict[str, None]] = {arm: {} for arm in arms}
    for arm, session in of.table.same:
        if arm in places:
            places[arm][of.table.sessions[session].text] = None
    open_ = decision.verdict == "undetermined"
    return CompareDocument(
        schema=SCHEMA,
        a=of.a,
        b=of.bs,
        metric=metric,
        fail_if_worse_pct=None if margin is None else 100 * margin,
        verdict=decision.verdict,
        exit_code=decision.exit_code,
        why=decision.why,
        what_to_run=what_to_run(of, metric, margin) if open_ else None,
        unit=unit_of(of.table),
        order=_order(of),
        sessions={arm: tuple(found) for arm, found in places.items()},
        comparisons=of.comparisons,
        pooled=of.pooled,
        not_compared=tuple(
            NotCompared(
                a=one.a,
                b=one.b,
                concurrency=one.row.concurrency,
                metric=one.metric,
                reason=one.why_not or "",
            )
            for one in of.refused
        ),
        left_out=of.left_out,
        findings=(*of.findings, *other_metrics(of, metric)),
    )


def _order(of: Compared) -> str | None:
    used = {reading.launch for reading in of.table.readings}
    arms = (of.a, *of.bs)
    starts = [s for s in of.table.starts if s.name in used and s.arm in arms]
    if any(s.started_at_ns is None for s in starts):
        return None
    return letters(starts, of.a, of.bs) or None


def print_comparison(console: Console, found: CompareDocument) -> None:
    """Print the answer, the rows of each metric, and what must be known besides."""
    style = _VERDICT_STYLE[found.verdict]
    console.print(Text(f"{found.why}.", style=f"bold {style}".strip()))
    order = f", order {found.order}" if found.order else ""
    starts = " on one start of each: intervals are of these starts"
    starts = starts if found.unit == "run" and found.comparisons else ""
    console.print(Text(f"unit: {found.unit}{starts}{order}", style="dim"))
    if len({text for texts in found.sessions.values() for text in texts}) > 1:
        for arm, texts in found.sessions.items():
            console.print(Text(f"{arm}: {'; '.join(texts)}", style="dim"))
    for metric in dict.fromkeys(c.metric for c in found.comparisons):
        rows = [c for c in found.comparisons if c.metric == metric]
        means = [p for p in found.pooled if p.metric == metric]
        console.print()
        console.print(_table(metric, rows, means))
    for one in dict.fromkeys(
        (n.a, n.b, n.concurrency, n.reason) for n in found.not_compared
    ):
        a, b, concurrency, reason = one
        at = "" if concurrency is None else f" at {concurrency}"
        console.print(Text(f"{b} and {a}{at}: {reason}, not compared"))
    if found.findings:
        console.print()
    for finding in found.findings:
        head = Text(f"{finding.severity} ", style=_STYLE[finding.severity])
        head.append(finding.code, style="bold")
        head.append(f": {finding.message}. {finding.hint}".rstrip(), style="default")
        console.print(head)
    if found.what_to_run:
        console.print()
        console.print(Text(f"What to run next: {found.what_to_run}."))


def _table(
    metric: str, rows: Sequence[Comparison], means: Sequence[PooledComparison]
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
    table.title = metric
    several = len({c.b for c in rows}) > 1
    for header in ("", "C") if several else ("C",):
        table.add_column(header, overflow="fold", max_width=24)
    for header in ("A", "B", "delta", "95 % interval", "n"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for c in rows:
        table.add_row(
            *([Text(c.b)] if several else []),
            _load(c),
            *(UNKNOWN if v is None else shown(v) for v in (c.mean_a, c.mean_b)),
            _percent(c.delta_pct),
            _interval(c.ci95_pct),
            f"{c.n_a}+{c.n_b}",
            Text(_told(c), style=_VERDICT_STYLE[c.verdict]),
        )
    for p in means:
        told: str = p.verdict
        if p.rows_agree is False:
            told = "rows disagree: not one number"
        cells = ("all", "", "", _percent(p.delta_pct), _interval(p.ci95_pct), "")
        table.add_row(
            *([Text(p.b)] if several else []),
            *cells,
            Text(told, style=_VERDICT_STYLE[p.verdict]),
        )
    return table


def _load(c: Comparison) -> str:
    """Return the slots, the rate or both; a burst has neither."""
    rate = None if c.request_rate is None else f"{c.request_rate:g}/s"
    slots = None if c.concurrency is None else str(c.concurrency)
    return " ".join(text for text in (slots, rate) if text) or "at once"


def _told(c: Comparison) -> str:
    text: str = c.verdict
    if c.anchor is not None:
        text += f" (anchor {c.anchor})"
    if c.runs_needed is not None:
        units = "launches" if c.unit == "launch" else "runs"
        return f"{text}: {c.runs_needed} {units} needed"
    if c.reason is not None:
        return f"{text}: {c.reason}"
    return text


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2f} %"


def _interval(ci: tuple[float, float] | None) -> str:
    return "no interval" if ci is None else f"{ci[0]:+.2f} to {ci[1]:+.2f} %"
