"""What kernel timelines say of one cell, or of a cell between two that were traced.

An idle share has two ends. What the launch records name as a cause is its low end, over
the traced step; a profiler only adds to it, so the high end, with all idle time that
might be the cause's, is taken over the untraced step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.records import TracedStep
from stepscope.analysis.across.traces import decode_step_ms, is_step_of
from stepscope.board.opinion import AT_LEAST_PCT, AT_MOST_PCT, Opinion, seen
from stepscope.board.records import Evidence
from stepscope.board.view import CellView
from stepscope.run.stepbudget import RankBudget

#: A measured share from which a cause is a part of the step worth having.
_A_PART_PCT = 10.0
#: Between two traced concurrencies idle time is taken for at most this many times the
#: larger of the two, and only where they are alike within ``_ALIKE``.
_ALLOWED = 2.0
_ALIKE = 1.5
#: Beyond the highest traced concurrency: at most this many times as many sequences, and
#: only where idle time does not grow from one traced concurrency to the next.
_BEYOND = 2.0
_GROWTH = 1.25
#: The cause of idle time in which a host may wait for another's.
HOST_IDLE = "host_not_launching_yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Idle time that one hypothesis answers for.

    Attributes:
        quantity: What to call it.
        causes: Causes that are its own.
        perhaps: Causes that may be.
        needs_graphs: ``causes`` are its own only where a step is one graph.
        headline: What may be said where it is supported.
    """

    quantity: str
    causes: tuple[str, ...]
    perhaps: tuple[str, ...]
    headline: str
    needs_graphs: bool = False


@dataclass(frozen=True, slots=True)
class Busy:
    """How much of a step the device computes or copies, percent, at least.

    ``decides`` is False where the profiler lengthened the step too much.
    """

    pct: float
    decides: bool
    evidence: Evidence


def traced(view: CellView) -> TracedStep | None:
    """Return the timeline of this cell's step, if there is a sound one.

    That of the same load may be of another step, and is none then.
    """
    here, result = _in_flight(view), view.result
    if here is None or result is None:
        return None
    found = [
        step
        for step in view.analysis.traced
        if step.configuration == view.configuration
        and step.concurrency == here
        and step.usable
        and step.match in ("same", "stretched")
        and is_step_of(step, result)
    ]
    return min(found, key=lambda s: s.match != "same", default=None)


def _in_flight(view: CellView) -> int | None:
    """Return the requests that a closed loop kept in flight; None for an open one."""
    result = view.result
    if result is None or result.request_rate is not None:
        return None
    return result.concurrency


def idle_opinion(view: CellView, part: Part) -> Opinion | None:
    """Return what the timelines say of a cause of idle time; None: nothing."""
    step = traced(view)
    if step is None:
        return _idle_between(view)
    low, high, rank = _ends(step, part, view)
    if high is None and view.n_ranks == step.n_ranks:
        return None
    if high is None:
        words = (
            f"rank {rank.rank} alone of {view.n_ranks or 'an unknown number of'} ranks;"
            f" the others' host may be slower; {beside(step)}"
        )
        one = seen(view, part.quantity, low, "% of the step", words)
        return Opinion(status="standing", evidence=(one,))
    item = seen(
        view, part.quantity, low, "% of the step", _words(step, part, rank, high)
    )
    return decided(step, low, high, item, part.headline)


def decided(
    step: TracedStep, low: float, high: float, item: Evidence, headline: str
) -> Opinion:
    """Return the opinion that a share between two ends allows, percent.

    A part of the step that was measured to be more than a small one is not ruled out,
    though it can not be the larger.
    """
    if high < AT_MOST_PCT and low < _A_PART_PCT:
        return Opinion(status="ruled-out", share_pct=high, evidence=(item,))
    if step.match != "same":
        return Opinion(status="standing", evidence=(item,))
    if low >= AT_LEAST_PCT:
        return Opinion(
            status="supported", share_pct=low, headline=headline, evidence=(item,)
        )
    return Opinion(status="standing", share_pct=low, evidence=(item,))


def _ends(
    step: TracedStep, part: Part, view: CellView
) -> tuple[float, float | None, RankBudget]:
    """Return both ends of the share, percent, and the rank that has the larger."""
    own = not part.needs_graphs or step.step_source == "graph-launches"
    low_ms = [_surely(rank, part.causes) if own else 0.0 for rank in step.ranks]
    high_ms = [_sum(rank, part.causes + part.perhaps) for rank in step.ranks]
    if view.n_ranks != step.n_ranks:
        # What another rank does late shows here as a wait inside a collective; a rank
        # without any, or of another replica, shows nothing of the others.
        alone = view.run.layout.dp > 1
        high_ms = [
            None
            if high is None or alone or not rank.communication_ms
            else high + rank.communication_ms
            for high, rank in zip(high_ms, step.ranks, strict=True)
        ]
    worst = int(np.argmax(low_ms))
    rank = step.ranks[worst]
    known = [high for high in high_ms if high is not None]
    untraced = step.untraced_step_ms
    if len(known) < len(high_ms) or not untraced:
        return 100 * low_ms[worst] / rank.step_ms, None, rank
    return 100 * low_ms[worst] / rank.step_ms, 100 * max(known) / untraced, rank


def _sum(rank: RankBudget, causes: Sequence[str]) -> float | None:
    """Return the idle time of some causes; a cause that is not known may be all."""
    values = [rank.idle_by_cause.get(cause) for cause in causes]
    if any(value is None for value in values):
        return rank.idle_ms
    return sum(value for value in values if value is not None)


def _surely(rank: RankBudget, causes: Sequence[str]) -> float:
    """Return the idle time of some causes that no other rank can have made.

    A host that waits for another in a collective of the processors launches nothing.
    """
    idle = _sum(rank, causes) or 0.0
    return max(idle - talk_ms(rank), 0.0) if HOST_IDLE in causes else idle


def talk_ms(rank: RankBudget) -> float:
    """Return the time that a host spends in collectives of the processors."""
    return (rank.host_wait_ms or 0.0) + (rank.host_transfer_ms or 0.0)


def host_idle_ms(rank: RankBudget) -> float:
    """Return how long the device idles before its host launches; all, if unknown."""
    idle = _sum(rank, (HOST_IDLE,))
    return rank.step_ms if idle is None else idle


def _words(step: TracedStep, part: Part, rank: RankBudget, high: float) -> str:
    causes = ", ".join(part.causes)
    text = (
        f"{causes} in a traced step of {rank.step_ms:.3g} ms ({rank.n_periods} steps)"
    )
    if step.n_ranks > 1:
        text += f" of rank {rank.rank}"
    if HOST_IDLE in part.causes and talk_ms(rank):
        text += (
            f", less {talk_ms(rank):.3g} ms in collectives of the processors, in which"
            " it may have idled for another rank"
        )
    if part.perhaps:
        text += f"; at most {high:.3g} % with {', '.join(part.perhaps)}"
    return f"{text}; {beside(step)}"


def beside(step: TracedStep) -> str:
    """Return in words how a traced step compares with the untraced one."""
    text = f"traced {step.stretch_pct:+.1f} % against {step.untraced_source}"
    if step.match == "stretched":
        text += ": only an upper bound, for the profiler lengthened the host's part"
    return text


def busy(view: CellView) -> Busy | None:
    """Return the busy share of this cell's step; None where no timeline bears on it."""
    step = traced(view)
    if step is None:
        return _busy_near(view)
    pct = min(
        100 * (rank.compute_ms + rank.memcpy_ms) / rank.step_ms for rank in step.ranks
    )
    if step.match == "stretched" and step.untraced_step_ms:
        worked = max(rank.compute_ms + rank.memcpy_ms for rank in step.ranks)
        pct = 100 * worked / step.untraced_step_ms
        why = (
            f"{worked:.3g} ms of kernels and copies in a traced step, over the untraced"
            f" step of {step.untraced_step_ms:.3g} ms; the traced step itself is"
            f" {step.stretch_pct:+.0f} %, so that the two are not the same step"
        )
        return Busy(pct, False, seen(view, "device busy, by timeline", pct, "%", why))
    why = (
        "kernels and copies, collectives left out, in"
        f" {min(r.n_periods for r in step.ranks)} traced steps; {beside(step)}"
    )
    item = seen(view, "device busy, by timeline", pct, "% of the step", why)
    return Busy(pct, True, item)


def _busy_near(view: CellView) -> Busy | None:
    near = _between(view) or _beyond(view)
    if near is None:
        return None
    pct = 100 - near.idle_pct
    why = f"100 % less the idle time that is allowed for; {near.words}"
    item = seen(view, f"device busy, {near.how}", pct, "% of the step", why)
    return Busy(pct, True, item)


@dataclass(frozen=True, slots=True)
class _Near:
    """Idle time of a cell that was not traced, from those that were.

    ``idle_pct`` is what is allowed for; ``how`` says that it was not measured.
    """

    idle_pct: float
    how: str
    words: str


def _idle_between(view: CellView) -> Opinion | None:
    near = _between(view)
    if near is None or near.idle_pct >= AT_MOST_PCT:
        return None
    item = seen(
        view,
        f"idle time of the device, all causes, {near.how}",
        near.idle_pct,
        "% of the step",
        near.words,
    )
    return Opinion(status="ruled-out", share_pct=near.idle_pct, evidence=(item,))


def _between(view: CellView) -> _Near | None:
    """Return idle time between the traced neighbours of a cell, where they agree."""
    steps, here = _sound(view), _in_flight(view)
    if here is None:
        return None
    below = [s for s in steps if (s.concurrency or 0) < here]
    above = [s for s in steps if (s.concurrency or 0) > here]
    if not below or not above:
        return None
    low, high = below[-1], above[0]
    idles = (_not_working_ms(low), _not_working_ms(high))
    if max(idles) > _ALIKE * min(idles):
        return None
    return _near(view, low, high, "interpolated")


def _beyond(view: CellView) -> _Near | None:
    """Return idle time up to twice the highest traced concurrency, where it is flat."""
    steps, here = _sound(view), _in_flight(view)
    if here is None or len(steps) < 2:
        return None
    low, high = steps[-2], steps[-1]
    most = high.concurrency or 0
    flat = _not_working_ms(high) <= _GROWTH * _not_working_ms(low)
    if not most < here <= _BEYOND * most or not flat:
        return None
    return _near(view, low, high, "extrapolated")


def _near(view: CellView, low: TracedStep, high: TracedStep, how: str) -> _Near | None:
    found = decode_step_ms(view.result) if view.result is not None else None
    if found is None:
        return None
    allowed = _ALLOWED * max(_not_working_ms(low), _not_working_ms(high))
    words = (
        f"{how}, not measured: {_not_working_ms(low):.3g} ms a step at concurrency"
        f" {low.concurrency} and {_not_working_ms(high):.3g} ms at {high.concurrency}"
        f" by timelines, twice the larger allowed for in a step of {found[0]:.3g} ms"
        f" ({found[1]})"
    )
    return _Near(100 * allowed / found[0], how, words)


def _sound(view: CellView) -> list[TracedStep]:
    """Return the timelines of a configuration that are their untraced steps."""
    return sorted(
        (
            step
            for step in view.analysis.traced
            if step.configuration == view.configuration
            and step.concurrency is not None
            and step.usable
            and step.match == "same"
            and step.step_source == "graph-launches"
            and step.n_ranks == view.n_ranks
        ),
        key=lambda s: s.concurrency or 0,
    )


def _not_working_ms(step: TracedStep) -> float:
    """Return the time of a step without kernels or copies, of the idlest rank."""
    return max(r.step_ms - r.compute_ms - r.memcpy_ms for r in step.ranks)
