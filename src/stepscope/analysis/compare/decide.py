"""One answer for a program that waits: worse, not worse, or not known."""

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.compare.compare import Compared
from stepscope.analysis.compare.contrasts import STARTS
from stepscope.analysis.compare.judge import Family, Judged, holm, verdict
from stepscope.analysis.compare.many import p_value
from stepscope.analysis.compare.records import Verdict
from stepscope.analysis.compare.table import METRICS

#: verdict of the whole -> exit code of the contract.
EXIT_CODES: dict[Verdict, int] = {
    "faster": 0,
    "same": 0,
    "slower": 1,
    "undetermined": 5,
}
Told = tuple[Verdict, int]
#: Verdict and exit code, the worst first.
_ORDER: tuple[Told, ...] = (
    ("slower", 1),
    ("undetermined", 5),
    ("slower", 0),
    ("same", 0),
    ("faster", 0),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer.

    Attributes:
        verdict: Over all rows and configurations; ``slower`` and 0 together: a loss
            that is shown to be tolerated.
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
    one-sided 95 % bound. Where a has a figure and all that b ran there came to
    nothing, b is no better than not known. Several configurations: the worst of them.

    Args:
        of: What was compared.
        metric: Which figure decides.
        margin: The loss that is tolerated, as a part of one; None: none.
    """
    families = [f for f in of.families if f.metric == metric]
    unknown: Told = ("undetermined", 5)
    told = dict.fromkeys(of.bs, unknown) | {
        f.b: _against_margin(f, margin) if margin is not None else _bare(f)
        for f in families
    }
    for b, (_, exit_code) in told.items():
        if not exit_code and of.table.rows_lost(of.a, b):
            told[b] = unknown
    worst, code = min(told.values(), key=_ORDER.index)
    which = ", ".join(b for b, told_ in told.items() if told_ == (worst, code))
    why = _why(which, (worst, code), of.a, metric, margin)
    if worst != "undetermined" and any(f.code == "one-launch" for f in of.findings):
        assumed = any(f.rows[0].starts for f in families)
        why += (
            f", on a single start of each, taken to differ by {100 * STARTS:g} %"
            if assumed
            else ", on a single start of one"
        )
    return Decision(worst, code, why)


def _bare(of: Family) -> Told:
    found = _verdict(of)
    return found, EXIT_CODES[found]


def _verdict(of: Family) -> Verdict:
    sign = METRICS[of.metric]
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


def tolerated(of: Family, margin: float) -> float:
    """Return the tolerated loss as a difference of logs."""
    return float(-np.log1p(-margin) if METRICS[of.metric] > 0 else np.log1p(margin))


def _against_margin(of: Family, margin: float) -> Told:
    sign, limit = METRICS[of.metric], tolerated(of, margin)
    mean = of.pooled if of.rows_agree else None
    known = [j for j in (*of.judged, mean) if j is not None]
    if any(x.holds for x in holm([_beyond(j, sign, limit) for j in known])):
        return "slower", 1

    def bounded(j: Judged | None) -> bool:
        return j is not None and -sign * j.value + j.half_one_sided < limit

    if bounded(mean) or all(bounded(j) for j in of.judged):
        found = _verdict(of)
        return ("same" if found == "undetermined" else found), 0
    return "undetermined", 5


def _beyond(j: Judged, sign: int, limit: float) -> Judged:
    """Return a difference as it is tested against the margin.

    Its p doubles the one-sided one, so that a loss counts as strictly as a difference.
    """
    excess = -sign * j.value - limit
    p = p_value(excess / j.error, j.df, j.shares) if excess > 0 else 1.0
    return Judged(excess, j.error, j.df, j.shares, p, j.starts)


def _why(which: str, told: Told, a: str, metric: str, margin: float | None) -> str:
    worst, code = told
    by = "" if margin is None else f" by more than {100 * margin:g} %"
    if code == 1:
        return f"{which} is worse than {a}{by} in {metric}"
    if code == 5:
        return f"{which} against {a}: not decided in {metric}"
    if margin is not None:
        shown = "is worse, but" if worst == "slower" else "is"
        return f"{which} {shown} not worse than {a}{by} in {metric}"
    word = "the same as" if worst == "same" else "faster than"
    return f"{which} is {word} {a} in {metric}"
