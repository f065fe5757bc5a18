"""rank-wait, imbalance, communication: what several ranks do to each other.

A rank that waits inside a collective is busy, so neither utilization nor its spread
over GPUs can decide any of these; only arrival times in matched collectives can.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.records import TracedStep
from stepscope.board.hypotheses.absent import ONE_RANK
from stepscope.board.opinion import (
    AT_LEAST_PCT,
    AT_MOST_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.timelines import beside, decided, host_idle_ms, traced
from stepscope.board.view import CellView
from stepscope.run.stepbudget import RankBudget

_ON_HOST = (
    "collectives on the CPU without an annotation; of those with one (gloo), how long"
    " the device idles for them, but for two ends"
)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Milliseconds of a step that a cause takes: surely, and at most."""

    low_ms: float
    high_ms: float
    words: str


def _waiting(step: TracedStep) -> _Ends | None:
    waits = [r.communication_wait_ms for r in step.ranks]
    known = [w for w in waits if w is not None]
    if len(known) < len(waits):
        return None
    words = (
        f"mean over {len(known)} ranks of the time from a rank's arrival to the last's"
    )
    hosts = [_while_idle(rank, rank.host_wait_ms) for rank in step.ranks]
    if any(rank.host_wait_ms for rank in step.ranks):
        most = max(rank.host_wait_ms or 0.0 for rank in step.ranks)
        words += (
            f"; hosts wait up to {most:.3g} ms in collectives of the processors, which"
            f" the device idles for by {min(h.low_ms for h in hosts):.3g} to"
            f" {max(h.high_ms for h in hosts):.3g} ms"
        )
    low = float(np.mean([w + h.low_ms for w, h in zip(known, hosts, strict=True)]))
    high = max(w + h.high_ms for w, h in zip(known, hosts, strict=True))
    return _Ends(low, high, words)


def _while_idle(rank: RankBudget, host_ms: float | None) -> _Ends:
    """Return for how much of what a host spends in collectives its device idles.

    The two lie in one step: at most the shorter of them, and at least what does not
    fit into the rest of the step.
    """
    if not host_ms:
        return _Ends(0.0, 0.0, "")
    idle = host_idle_ms(rank)
    return _Ends(max(host_ms + idle - rank.step_ms, 0.0), min(host_ms, idle), "")


def _moving(step: TracedStep) -> _Ends | None:
    """Return transfer; where waiting can not be told from it, all communication."""
    every = [r.communication_ms for r in step.ranks]
    waits = [r.communication_wait_ms for r in step.ranks]
    known = [w for w in waits if w is not None]
    if len(known) < len(waits):
        words = "waiting can not be told from transfer, and is in the upper end"
        return _Ends(0.0, max(every), words)
    moved = [c - w for c, w in zip(every, known, strict=True)]
    words = "from the last arrival to the end of a collective, where no kernel hides it"
    hosts = [_while_idle(rank, rank.host_transfer_ms) for rank in step.ranks]
    if any(rank.host_transfer_ms for rank in step.ranks):
        words += "; collectives of the processors too, as far as the device may idle"
    return _Ends(
        min(m + h.low_ms for m, h in zip(moved, hosts, strict=True)),
        max(m + h.high_ms for m, h in zip(moved, hosts, strict=True)),
        words,
    )


def _more_work(step: TracedStep) -> _Ends | None:
    """Return what the straggler computes more than the median of the others.

    It can not cost more than the others wait, and it costs nothing for sure where the
    rank is late for another reason than its work.
    """
    waiting = _waiting(step)
    if waiting is None:
        return None
    mine = [r for r in step.ranks if r.rank == step.straggler_rank]
    others = [r.compute_ms for r in step.ranks if r.rank != step.straggler_rank]
    more = 0.0
    if mine and others and _by_work(step.straggler_reason):
        more = max(mine[0].compute_ms - float(np.median(others)), 0.0)
    words = step.straggler_reason or "no rank is waited for"
    if mine:
        words = f"rank {step.straggler_rank}: {words}"
    return _Ends(min(more, waiting.high_ms), waiting.high_ms, words)


def _by_work(reason: str | None) -> bool:
    """Whether the timelines say that the straggler is late by its work."""
    what = (reason or "").partition(":")[0]
    return what.startswith("by ") and "work" in what


def _by_timelines(
    view: CellView, quantity: str, ends: Callable[[TracedStep], _Ends | None]
) -> Opinion | None:
    step = traced(view)
    if step is None or view.n_ranks in (None, 1) or step.n_ranks != view.n_ranks:
        return None
    found, took, untraced = ends(step), step.traced_step_ms, step.untraced_step_ms
    if found is None or not took or not untraced:
        return None
    low, high = 100 * found.low_ms / took, 100 * found.high_ms / untraced
    why = f"{found.words}; at most {high:.3g} %; {beside(step)}"
    item = seen(view, quantity, low, "% of the step", why)
    return decided(step, low, high, item, quantity)


def _timeline_rule(
    quantity: str, ends: Callable[[TracedStep], _Ends | None], blind: str
) -> Rule:
    return Rule(
        name="timelines",
        measurement="timelines of all ranks over the same steps",
        threshold=f"supported: at least {AT_LEAST_PCT:.0f} % of the traced step, and"
        " that is within 15 % of the untraced one; ruled out: at most, below"
        f" {AT_MOST_PCT:.0f} % of the untraced step, and surely below 10 %",
        blind=blind,
        test=lambda view: _by_timelines(view, quantity, ends),
    )


def _spread(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.util_spread_points is None or view.n_ranks == 1:
        return None
    item = seen(
        view,
        "spread of utilization over GPUs",
        telemetry.util_spread_points,
        "points",
        "rules nothing out: a rank that waits in a collective reads busy",
    )
    return Opinion(status="standing", evidence=(item,))


_SPREAD = Rule(
    name="utilization-spread",
    measurement="mean utilization of each GPU",
    threshold="decides nothing, however small or large",
    blind="waiting, which reads as busy",
    test=_spread,
)


_TAKE_TIMELINES = (
    'One timeline of every rank over the same steps: capture = ["trace"] in the'
    " recipe (stepscope run); arrival times in matched collectives split waiting from"
    " transfer and name the late rank."
)


def _would_decide(changed: str) -> Callable[[CellView], str]:
    """Return what to run next; ``changed`` moves the cause where it was measured."""

    def next_run(view: CellView) -> str:
        step = traced(view)
        if step is None or step.n_ranks != view.n_ranks or _waiting(step) is None:
            return _TAKE_TIMELINES
        if step.match == "stretched":
            return (
                "Timelines of all ranks that the profiler does not lengthen: fewer"
                " steps, without stacks and shapes (capture in the recipe; stepscope"
                " run)."
            )
        return (
            f"{changed} (a patch in the recipe; stepscope run). The timelines of all"
            " ranks are here: it is neither most of the step nor surely a small part."
        )

    return next_run


RANK_WAIT = Hypothesis(
    id="rank-wait",
    claim="Ranks wait for each other inside collectives.",
    rules=(
        ONE_RANK,
        _timeline_rule(
            "waiting inside collectives",
            _waiting,
            _ON_HOST,
        ),
        _SPREAD,
    ),
    would_decide=_would_decide(
        "The same load without what keeps the late rank, traced: its work, its host's"
        " cores or its link; what the others wait falls by as much as it cost"
    ),
)
IMBALANCE = Hypothesis(
    id="imbalance",
    claim="One rank has more work than the others, such as hotter experts.",
    rules=(
        ONE_RANK,
        _timeline_rule(
            "more work on one rank",
            _more_work,
            "imbalance that moves from rank to rank",
        ),
        _SPREAD,
    ),
    would_decide=_would_decide(
        "The same load with its work spread, traced: experts (--enable-eplb of vLLM) or"
        " requests; what the others wait falls by as much as it cost"
    ),
)
COMMUNICATION = Hypothesis(
    id="communication",
    claim="Moving data between ranks takes the time.",
    rules=(
        ONE_RANK,
        _timeline_rule("transfer in collectives", _moving, _ON_HOST),
        _SPREAD,
    ),
    would_decide=_would_decide(
        "The same load with another all-to-all backend or layout, traced: transfer"
        " changes by what that moves"
    ),
)
