"""Configurations of one run, or of several, against one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stepscope.analysis.compare.answers import answer_findings
from stepscope.analysis.compare.contrasts import Contrast, Rows, contrasts
from stepscope.analysis.compare.judge import Family, family
from stepscope.analysis.compare.measured import Measured
from stepscope.analysis.compare.notes import (
    across_findings,
    launch_findings,
    left_out_findings,
    no_common_row,
    noisy,
    open_loops,
    shared_baseline,
    unknown_sessions,
)
from stepscope.analysis.compare.order import order_findings
from stepscope.analysis.compare.records import Comparison, LeftOut, PooledComparison
from stepscope.analysis.compare.rows import Prices, comparisons, pooled
from stepscope.analysis.compare.standing import (
    carried,
    copied,
    rows_alone,
    unlike_models,
)
from stepscope.analysis.compare.table import (
    METRICS,
    Table,
    arm_name,
    deciding,
    table,
)
from stepscope.findings import Finding


@dataclass(frozen=True, slots=True)
class Compared:
    """Everything that was found.

    Attributes:
        a: The baseline.
        bs: What was compared with it.
        table: What lay before.
        families: A pair and metric each.
        comparisons: A row each.
        pooled: A mean over rows each.
        left_out: Cells of these configurations that were not compared.
        refused: Rows of different sessions without an anchor.
        findings: What must be known besides.
    """

    a: str
    bs: tuple[str, ...]
    table: Table
    families: tuple[Family, ...]
    comparisons: tuple[Comparison, ...]
    pooled: tuple[PooledComparison, ...]
    left_out: tuple[LeftOut, ...]
    refused: tuple[Contrast, ...]
    findings: tuple[Finding, ...]


def within(measured: Measured, order: Sequence[str]) -> Compared | None:
    """Compare all configurations of a run with the first; None for a single one.

    Args:
        measured: The run.
        order: Its configurations, the baseline first.
    """
    if len(order) < 2:
        return None
    return compare((measured,), order[0], order[1:])


def compare(
    measured: Sequence[Measured],
    a: str,
    bs: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    raw_where_unknown: bool = False,
) -> Compared:
    """Compare ``bs`` with ``a``.

    Source: see ``contrasts``, ``spread``, ``judge`` and docs/compare.md.

    Args:
        measured: Where they were measured.
        a: Name of the baseline, as ``Table.arms`` has it.
        bs: Names of the others.
        metrics: What is compared.
        raw_where_unknown: Return the bare difference, never with an interval, of rows
            whose sessions nothing is known of.
    """
    laid = table(measured)
    prices = Prices(laid, _prices(measured))
    families: list[Family] = []
    found: list[Comparison] = []
    means: list[PooledComparison] = []
    refused: list[Contrast] = []
    for metric in metrics:
        rows = Rows(laid, metric)
        pairs = {b: contrasts(laid, rows, a, b, metric) for b in bs}
        if raw_where_unknown:
            pairs = {b: [_raw(laid, c) for c in some] for b, some in pairs.items()}
        refused += [c for some in pairs.values() for c in some if c.value is None]
        usable = {b: [c for c in x if c.value is not None] for b, x in pairs.items()}
        shares = [_share(x) for x in usable.values() if any(c.error for c in x)]
        for ones in usable.values():
            if ones:
                families.append(family(ones, rows, shares))
                found += comparisons(families[-1], rows, prices)
                means += [m for m in [pooled(families[-1])] if m is not None]
    return Compared(
        a=a,
        bs=tuple(bs),
        table=laid,
        families=tuple(families),
        comparisons=tuple(found),
        pooled=tuple(means),
        left_out=tuple(x for x in laid.left_out if x.configuration in (a, *bs)),
        refused=tuple(refused),
        findings=(
            *no_common_row(laid, a, bs),
            *_of_cells(measured, laid, a, bs),
            *across_findings(laid, refused),
            *unknown_sessions(families),
            *launch_findings(laid, found),
            *carried(measured, laid, a, bs),
            *shared_baseline(found, a),
            *_of_arms(laid, a, bs),
        ),
    )


def _of_cells(
    measured: Sequence[Measured], laid: Table, a: str, bs: Sequence[str]
) -> list[Finding]:
    """Return findings on which cells the sides have, and whether they are alike."""
    return [
        *unlike_models(measured, a, bs),
        *rows_alone(laid, a, bs),
        *copied(laid, a, bs),
        *open_loops(laid),
    ]


def _of_arms(laid: Table, a: str, bs: Sequence[str]) -> list[Finding]:
    """Return findings on the arms themselves, whatever their differences came to."""
    rate = Rows(laid, deciding(laid))
    return [
        *left_out_findings(laid, a, bs),
        *noisy(rate, tuple(laid.sessions)),
        *order_findings(laid, rate, a, bs),
        *answer_findings(laid, a, bs),
    ]


def _share(ones: Sequence[Contrast]) -> float:
    """Return the baseline's part of a pair's variance, mean over rows."""
    known = [c.share for c in ones if c.error]
    return sum(known) / len(known)


def _raw(laid: Table, one: Contrast) -> Contrast:
    """Return a refused contrast with its bare value where no session is known."""
    if one.value is not None or any(laid.sessions[s].known for s in one.sessions):
        return one
    b, a = one.terms
    why = "sessions unknown, so no interval"
    return replace(one, value=b.mean - a.mean, why_not=why, raw=True)


def _prices(measured: Sequence[Measured]) -> Mapping[str, float]:
    several = len(measured) > 1
    return {
        arm_name(of, cell.configuration, several): of.run.cost.usd_per_hour
        for of in measured
        if of.run.cost is not None
        for cell in of.run.cells
    }
