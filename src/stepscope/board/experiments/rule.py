"""The rule by which experiments enter the board: one for each hypothesis they reach."""

from dataclasses import replace

from stepscope.board.experiments.laws import LAWS, Case
from stepscope.board.experiments.pairs import Pair
from stepscope.board.opinion import (
    AT_LEAST_PCT,
    AT_MOST_PCT,
    Hypothesis,
    Opinion,
    Rule,
    weigh,
)
from stepscope.board.view import CellView

#: When each hypothesis is decided by an experiment, and what that can not see.
_SAYS: dict[str, tuple[str, str]] = {
    "launch": (
        f"supported: graphs take at least {AT_LEAST_PCT:.0f} % of the eager step away,"
        f" and a kernel was resident for at most {AT_MOST_PCT:.0f} % of it; ruled out:"
        " eager adds nothing, within a proven interval",
        "launching apart from host work that torch.compile saves",
    ),
    "scheduler": (
        f"ruled out: the whole step with graphs is below {AT_MOST_PCT:.0f} % of the"
        " eager one; or synchronous scheduling adds nothing, beside a byte floor that"
        " is longer",
        "a loop that takes longer because kernels are launched from it",
    ),
    "frontend": (
        f"supported: at least {AT_LEAST_PCT:.0f} % of the step is divided by more API"
        " servers; ruled out: nothing is, within a proven interval",
        "what the engine does to hand tokens over",
    ),
    "compute": (
        f"supported, where no GPU takes part: at least {AT_LEAST_PCT:.0f} % of the step"
        " is divided by more threads, whose CPU time says so too",
        "work of one thread alone; arithmetic against memory stalls",
    ),
    "host-memory": (
        f"supported: at least {AT_LEAST_PCT:.0f} % of the step is gone without"
        " offloading; ruled out: nothing is, within a proven interval",
        "transfers that overlap computing",
    ),
}


def with_experiment(hypothesis: Hypothesis) -> Hypothesis:
    """Return a hypothesis with its rule for experiments, where a law reaches it."""
    said = _SAYS.get(hypothesis.id)
    if said is None:
        return hypothesis
    rule = Rule(
        name="experiment",
        measurement="the same cell with and without one change, in one session",
        threshold=said[0],
        blind=said[1],
        test=lambda view: experiment_opinion(hypothesis.id, view),
    )
    return replace(hypothesis, rules=(*hypothesis.rules, rule))


def experiment_opinion(hypothesis: str, view: CellView) -> Opinion | None:
    """Return what all experiments that a cell takes part in say of a hypothesis."""
    found = [
        opinion
        for pair in view.pairs
        if (opinion := opinion_of(pair, hypothesis, view)) is not None
    ]
    if len(found) < 2:
        return found[0] if found else None
    joint = weigh(found, "")
    assert joint.status != "untestable"
    return Opinion(
        status=joint.status,
        evidence=joint.evidence,
        share_pct=joint.share_pct,
        headline=next(iter(joint.headlines), None),
    )


def opinion_of(pair: Pair, hypothesis: str, view: CellView) -> Opinion | None:
    """Return what one experiment says of a hypothesis at a cell; None: nothing."""
    law = LAWS.get(pair.change.id, {}).get(hypothesis)
    if law is None or view.result is None:
        return None
    for row in pair.rows:
        mine = any(c.name == view.result.name for c in (*row.light, *row.heavy))
        if mine and row.effect.settled:
            return law(Case(view, pair, row))
    return None
