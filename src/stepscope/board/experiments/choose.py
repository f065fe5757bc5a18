"""The next experiment of a run: the cheapest that can decide a cause left open.

Offers and prices are those of `plan`; what is chosen runs on the machine that is held,
beside what was measured, so the baseline is not measured again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from stepscope.analysis.records import Analysis
from stepscope.board.experiments.launches import launches_of
from stepscope.board.planning import changing, watching
from stepscope.board.planning.choose import Budget, choose
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.history import history_of
from stepscope.board.planning.offer import Facts, Offer
from stepscope.board.planning.opened import opened
from stepscope.board.planning.pace import pace_of
from stepscope.board.records import Board
from stepscope.recipe.records import Experiment, Explain, Plan, Recipe
from stepscope.run.run import Launch, Run
from stepscope.units import seconds

#: How the session marks a cell whose turn did not come before it was told to stop.
NEVER_BEGAN = "stopped before it began"
#: What may be run unasked: the offer, the change that it makes, and the launches of
#: each side below which none of its outcomes decides anything of the baseline (eager
#: beside graphs can but acquit, and that takes an interval). Further repeats and other
#: loads tell no causes apart; what needs another recipe can not join a run.
_OFFERS: tuple[tuple[Callable[[Facts], Iterator[Offer]], str, int], ...] = (
    (watching.trace, "trace", 1),
    (changing.graphs, "graphs", 1),
    (watching.eager, "graphs", 2),
    (changing.threads, "threads", 1),
    (changing.processors, "cpus", 1),
    (changing.frontends, "api-servers", 1),
)


@dataclass(frozen=True, slots=True)
class Next:
    """An experiment to run.

    Attributes:
        plan: Its launches alone, under a recipe that allows them.
        experiment: Why.
        usd: What it would cost; None without prices.
    """

    plan: Plan
    experiment: Experiment
    usd: float | None


@dataclass(frozen=True, slots=True)
class Nothing:
    """No experiment, and why none."""

    why: str


def next_experiment(
    run: Run, analysis: Analysis, board: Board, recipe: Recipe
) -> Next | Nothing:
    """Return the experiment to run next, or why there is none.

    One "splits" what is open where an outcome of it supports or rules out a hypothesis
    that stands or is untestable for the baseline. Of those it is the one that decides
    most a minute, as `plan` ranks.

    Args:
        run: What was measured so far.
        analysis: What was computed from it.
        board: Its verdict.
        recipe: What was asked for; its ``explain`` bounds what is spent.
    """
    asked = recipe.explain or Explain()
    kept = tuple(x for x in run.launches if not _halted(run, x))
    history = history_of(msgspec.structs.replace(run, launches=kept), analysis)
    if not history.sizes:
        return Nothing("no closed-loop cell was measured")
    base = recipe.configurations[0]
    facts = Facts(run, analysis, history, opened(analysis, board))
    offers = list(_offers(facts, run, recipe))
    if not offers:
        return Nothing("no change that it knows would decide what is open")
    highest = max(
        (x.experiment.number for x in run.launches if x.experiment), default=-1
    )
    pace = pace_of(run, analysis)

    def minutes_of(draft: Draft) -> float:
        return pace.minutes(launches_of(recipe, draft, "x", highest + 1))

    price = recipe.cost.usd_per_hour if recipe.cost is not None else None
    left = _left(run, asked, price)
    basket = choose([offer for offer, _ in offers], left, minutes_of, price or None)
    if not basket.choices:
        return Nothing("what is left of its budget holds none that would decide")
    best = basket.choices[0].offer
    change = next(change for offer, change in offers if offer is best)
    assert best.needs is not None
    number = _halted_number(run, change)
    experiment = Experiment(
        number=highest + 1 if number is None else number,
        change=change,
        title=best.title,
        against=base.name,
        splits=tuple(dict.fromkeys(o.what for o in best.decides)),
        minutes=minutes_of(best.needs),
    )
    return _next(recipe, best.needs, experiment, price)


def _next(
    recipe: Recipe, needs: Draft, experiment: Experiment, price: float | None
) -> Next:
    plan = launches_of(recipe, needs, experiment.change, experiment.number)
    launches = tuple(
        msgspec.structs.replace(x, experiment=experiment) for x in plan.launches
    )
    return Next(
        msgspec.structs.replace(plan, launches=launches),
        experiment,
        price * experiment.minutes / 60 if price else None,
    )


def _offers(facts: Facts, run: Run, recipe: Recipe) -> Iterator[tuple[Offer, str]]:
    """Return what would decide something of the baseline and was not run before."""
    tried, base = set(_tried(run)), recipe.configurations[0].name
    for make, change, least in _OFFERS:
        if change in tried or recipe.n_launches < least:
            continue
        for offer in make(facts):
            mine = tuple(o for o in offer.decides if o.configuration == base)
            if mine and offer.needs is not None:
                needs = replace(offer.needs, configurations=frozenset(), n_launches=1)
                yield replace(offer, decides=mine, bears_on=(), needs=needs), change


def _tried(run: Run) -> Iterator[str]:
    """Return changes that were run; one that was interrupted is run again."""
    for launch in run.launches:
        if launch.experiment is not None and not _halted(run, launch):
            yield launch.experiment.change


def _halted(run: Run, launch: Launch) -> bool:
    """Whether an experiment's launch was cut short before all that it is made for."""
    if launch.experiment is None:
        return False
    cells = [c for c in run.cells if c.launch == launch.name]
    wanted = [c for c in cells if not c.warm_up or c.capture == "traced"]
    if wanted and all(c.status == "done" for c in wanted):
        return False
    return any(
        c.status == "interrupted" or (c.failure or "").startswith(NEVER_BEGAN)
        for c in cells
    )


def _halted_number(run: Run, change: str) -> int | None:
    """Return the number of an experiment that is to be gone on with."""
    numbers = [
        x.experiment.number
        for x in run.launches
        if x.experiment and x.experiment.change == change and _halted(run, x)
    ]
    return numbers[-1] if numbers else None


def _left(run: Run, asked: Explain, price: float | None) -> Budget:
    """Return what earlier experiments left of the budget."""
    spent = seconds(
        sum(
            x.stopped_at_ns - x.started_at_ns
            for x in run.launches
            if x.experiment is not None
            and x.started_at_ns is not None
            and x.stopped_at_ns is not None
        )
    )
    usd = asked.usd
    if usd is not None and price is not None:
        usd = max(usd - price * spent / 3600, 0.0)
    return Budget(max(asked.minutes - spent / 60, 0.0), usd)
