"""One answer for a program that waits: worse, not worse, or not known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.compare.compare import Compared
from stepscope.analysis.compare.contrasts import STARTS
from stepscope.analysis.compare.judge import Family, Judged, holm, verdict
from stepscope.analysis.compare.many import p_value
from stepscope.analysis.compare.records import Comparison, Verdict
from stepscope.analysis.compare.table import METRICS
from stepscope.findings import Finding

#: More repeats than this are no plan but a sign that something else moves.
_NO_PLAN = 30
#: verdict of the whole -> exit code of the contract.
EXIT_CODES: dict[Verdict, int] = {
    "faster": 0,
    "same": 0,
    "slower": 1,
    "undetermined": 5,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer.

    Attributes:
        verdict: Over all rows and configurations.
        exit_code: 0 same or better, 1 worse, 5 undetermined.
        why: One sentence.
    """

    verdict: Verdict
    exit_code: int
    why: str


def decide(of: Compared, metric: str, margin: float | None = None) -> Decision:
    """Return the answer by one metric.

    Without a margin a pair is worse where any row, or the mean of rows that agree, is
    slower; it is not worse where that mean is same or faster, or every row is. With a
    margin it is worse only where a loss above the margin holds after Holm, and not
    worse where every row, or the mean of rows that agree, is shown to lose less: by a
    one-sided 95 % bound. Several configurations: the worst of them.

    Args:
        of: What was compared.
        metric: Which figure decides.
        margin: The loss that is tolerated, as a part of one; None: none.
    """
    families = [f for f in of.families if f.metric == metric]
    told = {f.b: _verdict(f, margin) for f in families}
    for b in of.bs:
        told.setdefault(b, "undetermined")
    order: tuple[Verdict, ...] = ("slower", "undetermined", "same", "faster")
    worst = next(v for v in order if v in told.values())
    why = _why(of, told, worst, metric, margin)
    if worst != "undetermined" and any(f.code == "one-launch" for f in of.findings):
        assumed = any(f.rows[0].starts for f in families)
        why += (
            f", on a single start of each, taken to differ by {100 * STARTS:g} %"
            if assumed
            else ", on a single start of one"
        )
    return Decision(worst, EXIT_CODES[worst], why)


def _verdict(of: Family, margin: float | None) -> Verdict:
    sign = METRICS[of.metric]
    if margin is not None:
        return _against_margin(of, sign, margin)
    rows: list[Verdict] = [
        "undetermined" if j is None else verdict(j, sign) for j in of.judged
    ]
    mean: Verdict | None = None
    if of.pooled is not None and of.rows_agree:
        mean = verdict(of.pooled, sign)
    if "slower" in rows or mean == "slower":
        return "slower"
    if mean in ("faster", "same"):
        return mean
    if "undetermined" in rows:
        return "undetermined"
    return "faster" if "faster" in rows else "same"


def _against_margin(of: Family, sign: int, margin: float) -> Verdict:
    limit = -np.log1p(-margin) if sign > 0 else np.log1p(margin)
    mean = of.pooled if of.rows_agree else None
    known = [j for j in (*of.judged, mean) if j is not None]
    if any(x.holds for x in holm([_beyond(j, sign, float(limit)) for j in known])):
        return "slower"

    def bounded(j: Judged | None) -> bool:
        return j is not None and -sign * j.value + j.half_one_sided < limit

    if bounded(mean) or all(bounded(j) for j in of.judged):
        better = mean if bounded(mean) else None
        rows = [better] if better is not None else list(of.judged)
        told = {verdict(j, sign) for j in rows if j is not None}
        return "faster" if told == {"faster"} else "same"
    return "undetermined"


def _beyond(j: Judged, sign: int, limit: float) -> Judged:
    """Return a difference as it is tested against the margin.

    Its p doubles the one-sided one, so that a loss counts as strictly as a difference.
    """
    excess = -sign * j.value - limit
    p = p_value(excess / j.error, j.df, j.shares) if excess > 0 else 1.0
    return Judged(excess, j.error, j.df, j.shares, p, j.starts)


def _why(
    of: Compared,
    told: dict[str, Verdict],
    worst: Verdict,
    metric: str,
    margin: float | None,
) -> str:
    which = ", ".join(b for b, v in told.items() if v == worst)
    by = "" if margin is None else f" by more than {100 * margin:g} %"
    if worst == "slower":
        return f"{which} is worse than {of.a}{by} in {metric}"
    if worst == "undetermined":
        return f"{which} against {of.a}: not decided in {metric}"
    if margin is not None:
        return f"{which} is not worse than {of.a}{by} in {metric}"
    word = "the same as" if worst == "same" else "faster than"
    return f"{which} is {word} {of.a} in {metric}"


def what_to_run(of: Compared, metric: str) -> str:
    """Return in one line what would settle the open rows of a metric."""
    names = ", ".join(of.bs)
    if of.refused:
        return (
            f"Measure {of.a} in the session of {names} too, first and last,"
            " as an anchor; or both in one run, as baseline and patch"
        )
    mine = [
        c for c in of.comparisons if c.metric == metric and c.verdict == "undetermined"
    ]
    if not mine and any(c.metric != metric for c in of.comparisons):
        return f"Take {metric} of both: at no common workload point is it known of both"
    if not mine:
        return "Measure both at the same workload points with one recipe"
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
