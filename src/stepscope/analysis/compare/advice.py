"""What would settle a comparison that is open, with minutes and money."""

from collections.abc import Sequence

from stepscope.analysis.compare.compare import Compared
from stepscope.analysis.compare.decide import tolerated
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.compare.rows import units_needed
from stepscope.analysis.compare.standing import rows_text
from stepscope.analysis.compare.table import METRICS
from stepscope.findings import Finding

#: More repeats than this are no plan but a sign that something else moves.
_NO_PLAN = 30


def what_to_run(of: Compared, metric: str, margin: float | None = None) -> str:
    """Return in one line what would settle the open rows of a metric."""
    names = ", ".join(of.bs)
    if of.refused:
        return (
            f"Measure {of.a} in the session of {names} too, first and last,"
            " as an anchor; or both in one run, as baseline and patch"
        )
    for b in of.bs:
        if lost := of.table.rows_lost(of.a, b):
            return (
                f"Find why no cell of {b} stands at {rows_text(lost)}, where {of.a} has"
                " a figure, and measure it there again"
            )
    return _for_rows(of, metric, margin)


def _for_rows(of: Compared, metric: str, margin: float | None) -> str:
    """Return what would settle rows that were compared."""
    rows = [c for c in of.comparisons if c.metric == metric]
    mine = [c for c in rows if c.verdict == "undetermined"]
    bare = [b for b in of.bs if not any(c.b == b for c in rows)]
    if bare:
        return _for_none(of, metric, bare)
    if not mine and margin is not None:
        return _which_side(of, metric, margin)
    if all(c.ci95_pct is None for c in mine):
        why = dict.fromkeys(
            c.reason.partition(": no interval")[0] for c in mine if c.reason
        )
        return (
            "Measure both in one run, as baseline and [[patch]] of a recipe, with"
            f" n_launches = 3: {'; '.join(why)}"
        )
    known = [c for c in mine if c.runs_needed is not None]
    if not known:
        return (
            "No number of repeats up to 1,000 settles it: find what moves the figures"
            " of one configuration first"
        )
    return _priced(known)


def _for_none(of: Compared, metric: str, bare: Sequence[str]) -> str:
    """Return what would give configurations without a row one."""
    have = {reading.arm for reading in of.table.readings}
    without = [arm for arm in (of.a, *bare) if arm not in have]
    if without:
        return (
            f"Measure {', '.join(without)} again: no cell of it supports a figure, and"
            " left_out says why"
        )
    if any(c.b in bare for c in of.comparisons):
        return f"Take {metric} of both: at no common workload point is it known of both"
    return "Measure both at the same workload points with one recipe"


def _which_side(of: Compared, metric: str, margin: float) -> str:
    """Return how many units tell whether a loss is tolerated."""
    needed = [
        units_needed(
            abs(METRICS[metric] * j.value + tolerated(f, margin)), one, j.error, j.df
        )
        for f in of.families
        if f.metric == metric
        for one, j in zip(f.rows, f.judged, strict=True)
        if j is not None
    ]
    known = [n for n in needed if n is not None]
    each = f"{max(known)} units" if known else "many more units"
    return (
        f"Take {each} of each, on starts of their own: the difference is shown, but not"
        f" on which side of {100 * margin:g} % it lies"
    )


def _priced(known: Sequence[Comparison]) -> str:
    """Return how many more units settle rows, with minutes and money.

    A launch measures all rows, so the neediest row decides.
    """
    most = max(known, key=lambda c: (c.runs_needed or 0) - min(c.n_a, c.n_b))
    more = (most.runs_needed or 0) - min(most.n_a, most.n_b)
    text = f"{more} more {most.unit}{_plural(most.unit, more)} of each"
    if most.unit == "run":
        text += f", each on a start of its own (n_launches = {more + 1})"
    if most.minutes_needed is not None:
        text += f", about {most.minutes_needed:.1f} minutes"
    if most.usd_needed is not None:
        text += f" and {most.usd_needed:.2f} USD"
    if more > _NO_PLAN:
        return (
            "Find what makes one configuration differ by itself first: as it is,"
            f" {text} would settle it with 80 % power"
        )
    return f"Take {text}: that settles it with 80 % power"


def _plural(unit: str, n: int) -> str:
    ending = "es" if unit == "launch" else "s"
    return "" if n == 1 else ending


def other_metrics(of: Compared, metric: str) -> list[Finding]:
    """Say where a figure that does not decide is shown to be slower."""
    slower: dict[tuple[str, str], list[str]] = {}
    for c in of.comparisons:
        if c.metric != metric and c.verdict == "slower":
            at = f"{c.concurrency} ({c.delta_pct:+.1f} %)"
            slower.setdefault((c.b, c.metric), []).append(at)
    return [
        Finding(
            code="other-metric-worse",
            severity="warning",
            message=f"{b} is slower than {of.a} in {name} at concurrency"
            f" {', '.join(where)}, while {metric} decides",
            hint=f"Let it decide: --metric {name}.",
        )
        for (b, name), where in slower.items()
    ]
