"""What a rule says, how a hypothesis holds its rules, and how rules are weighed."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stepscope.board.records import Evidence, Status
from stepscope.board.view import CellView

#: A cause "takes the larger part of the step" only above this share; a measurement
#: that bounds its share below ``AT_MOST_PCT`` rules it out. Between the two it stands.
AT_LEAST_PCT = 70.0
AT_MOST_PCT = 40.0

#: Chunks a token: at or above it tokens arrive one by one. One in fifty merged is
#: what a busy but sound frontend shows in passing.
UNMERGED = 0.98

#: A thread, or a process of one busy thread, at this share of a core has no room left.
FULL_CORE_PCT = 90.0
#: A thread that was ready and had no core for this share of the window was starved.
STARVED_PCT = 10.0

_NO_SHARE = (
    "No share of the step: what was measured says that it acts, not how much it takes."
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one rule says of one cell.

    ``supported`` and ``ruled-out`` decide; ``standing`` is a measurement that bears
    on the hypothesis without deciding it.

    Attributes:
        status: Never ``untestable``: a rule without its measurement says nothing.
        evidence: What was measured and what it can not see.
        share_pct: Share of the step, percent; a lower bound when it supports, an
            upper bound when it rules out.
        headline: For ``supported``: what may be said of it in one clause, without
            numbers: the share and the scope are told beside it.
        contradicts: For ``standing``: its measurements exclude each other, so that no
            other rule may decide what rests on one of them.
        no_share: For ``supported`` without a share: why it has none, and what would
            give it one.
    """

    status: Status
    evidence: tuple[Evidence, ...]
    share_pct: float | None = None
    headline: str | None = None
    contradicts: bool = False
    no_share: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to test a hypothesis.

    Attributes:
        name: Unique within its hypothesis.
        measurement: What it needs.
        threshold: When it decides, with the source of the number.
        blind: What it can not see.
        test: Gives its opinion of a cell; None where the measurement is missing.
        of_cell: False when it reads the layout or the boot: then it holds for void
            cells and for configurations without cells too.
    """

    name: str
    measurement: str
    threshold: str
    blind: str
    test: Callable[[CellView], Opinion | None]
    of_cell: bool = True


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A candidate cause.

    Attributes:
        id: One of ``HYPOTHESES``.
        claim: What it says, in one sentence.
        rules: In order of strength.
        would_decide: The measurement that would decide it and the command for it.
        share_of: What its shares are a share of.
        when_void: What to measure where every cell is void, when there is more to say
            than to repeat it.
    """

    id: str
    claim: str
    rules: tuple[Rule, ...]
    would_decide: Callable[[CellView], str]
    share_of: str = "the step"
    when_void: Callable[[CellView], str | None] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A hypothesis judged on one cell or one concurrency."""

    status: Status
    evidence: tuple[Evidence, ...] = ()
    share_pct: float | None = None
    would_decide: str | None = None
    headlines: tuple[str, ...] = field(default=())


def seen(
    view: CellView, quantity: str, value: float | str | None, unit: str, reasoning: str
) -> Evidence:
    """Return evidence whose source is the view's cell; numbers to four digits."""
    if isinstance(value, float):
        value = float(f"{value:.4g}")
    return Evidence(
        source=view.source,
        quantity=quantity,
        value=value,
        unit=unit,
        reasoning=reasoning,
    )


def weigh(opinions: Sequence[Opinion], would_decide: str) -> Verdict:
    """Weigh opinions given in order of strength.

    Deciding measurements that contradict each other decide nothing: both are shown
    and the hypothesis stands. The share is the strongest opinion's.
    """
    deciding = [o for o in opinions if o.status in ("supported", "ruled-out")]
    evidence = _unique([e for o in opinions for e in o.evidence])
    statuses = {o.status for o in deciding}
    contradiction = len(statuses) > 1 or any(o.contradicts for o in opinions)
    if statuses and not contradiction:
        status = deciding[0].status
        share = next((o.share_pct for o in deciding if o.share_pct is not None), None)
        return Verdict(
            status=status,
            evidence=evidence,
            share_pct=share,
            would_decide=_no_share(deciding)
            if status == "supported" and share is None
            else None,
            headlines=tuple(o.headline for o in deciding if o.headline)[:1],
        )
    if contradiction:
        return Verdict(
            status="standing",
            evidence=evidence,
            would_decide=f"The measurements contradict each other. {would_decide}",
        )
    if opinions:
        shares = [o.share_pct for o in opinions if o.share_pct is not None]
        return Verdict(
            status="standing",
            evidence=evidence,
            share_pct=shares[0] if shares else None,
            would_decide=would_decide,
        )
    return Verdict(status="untestable", would_decide=would_decide)


def _no_share(deciding: Sequence[Opinion]) -> str:
    """Return why a supported cause has no share of the step."""
    return told_once(o.no_share for o in deciding if o.no_share) or _NO_SHARE


def join(verdicts: Sequence[Verdict]) -> Verdict:
    """Join the verdicts of repeats at one concurrency.

    Repeats that could not be judged do not weaken those that could; repeats that
    decide differently leave the hypothesis standing.
    """
    told = [v for v in verdicts if v.status != "untestable"]
    if not told:
        return verdicts[0]
    statuses = {v.status for v in told}
    evidence = _unique([e for v in told for e in v.evidence])
    decide = told_once(v.would_decide for v in verdicts if v.would_decide)
    shares = [v.share_pct for v in told if v.share_pct is not None]
    if len(statuses) == 1:
        status = told[0].status
        share = _bound(status, shares)
        wanted = status == "standing" or (status == "supported" and share is None)
        return Verdict(
            status=status,
            evidence=evidence,
            share_pct=share,
            would_decide=decide if wanted else None,
            headlines=tuple(dict.fromkeys(h for v in told for h in v.headlines)),
        )
    return Verdict(
        status="standing",
        evidence=evidence,
        would_decide="Repeats at this concurrency disagree: repeat it more often"
        + (f". {decide}" if decide else "."),
    )


def told_once(texts: Iterable[str]) -> str | None:
    """Return texts as one, each sentence once; None: there are none.

    A sentence that another one begins with says nothing more than that does.
    """
    every = dict.fromkeys(s for text in texts for s in _SENTENCE.split(text.strip()))
    kept = [
        sentence
        for sentence in every
        if not any(
            other != sentence and re.match(rf"{re.escape(sentence[:-1])}(?!\w)", other)
            for other in every
        )
    ]
    return " ".join(kept) or None


def _bound(status: Status, shares: Sequence[float]) -> float | None:
    """Return what all shares allow: at least (supported), at most (ruled out)."""
    if not shares:
        return None
    return max(shares) if status == "ruled-out" else min(shares)


def _unique(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    seen: dict[tuple[object, ...], Evidence] = {}
    for item in evidence:
        seen.setdefault((item.source, item.quantity, item.value, item.reasoning), item)
    return tuple(seen.values())
