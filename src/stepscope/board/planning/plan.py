"""A run and its board to the measurements worth taking next, and their recipe."""

from collections.abc import Callable, Iterator

from stepscope.analysis.records import Analysis
from stepscope.board.planning import changing, repeating, watching
from stepscope.board.planning.choose import LEAST_VALUE, Basket, Budget, choose
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.history import history_of
from stepscope.board.planning.offer import Facts, Offer
from stepscope.board.planning.opened import opened
from stepscope.board.planning.pace import Pace, pace_of
from stepscope.board.planning.recipe_text import (
    PRICED_BY,
    Base,
    Written,
    base_of,
    fits,
    written,
)
from stepscope.board.planning.records import Candidate, PlanDocument
from stepscope.board.records import Board
from stepscope.errors import RefusedError
from stepscope.findings import Finding
from stepscope.run.run import Run

SCHEMA = 1
#: Every kind of measurement, in the order that breaks ties.
OFFERS: tuple[Callable[[Facts], Iterator[Offer]], ...] = (
    watching.own_run,
    watching.details,
    watching.one_frontend,
    watching.trace,
    repeating.repeats,
    repeating.warm_up,
    repeating.more_sizes,
    repeating.launches,
    repeating.anchor,
    watching.eager,
    watching.cpus,
    changing.graphs,
    changing.threads,
    changing.processors,
    changing.frontends,
    watching.counters,
    watching.short_prompts,
    watching.boot_first,
)


def plan(run: Run, analysis: Analysis, board: Board, budget: Budget) -> PlanDocument:
    """Return what to measure next.

    Args:
        run: The run.
        analysis: What was computed from it.
        board: Its verdict.
        budget: What may be spent.

    Raises:
        RefusedError: Nothing was measured, a budget in money without prices, or an
            import that does not say what its requests were.
    """
    history = history_of(run, analysis)
    if not history.sizes:
        raise RefusedError(
            run.id,
            "no closed-loop cell was measured",
            "one at least, to plan from",
            "Measure at a fixed concurrency first"
            if any(launch.ready for launch in run.launches)
            else "Let it boot first (stepscope log says how)",
        )
    base = base_of(run, analysis, history)
    facts = Facts(run, analysis, history, opened(analysis, board))
    offers = [_held(base, o) for make in OFFERS for o in make(facts)]
    offers = [o for o in offers if o.decides or o.bears_on]
    pace = pace_of(run, analysis)
    price = _price(run, base, offers)
    where = PRICED_BY if run.recipe_text is None else "[cost] in its recipe"
    if budget.usd is not None and price is None:
        raise RefusedError(
            run.id,
            "it has no prices",
            f"{where}, to keep a budget in USD",
            f"Use --budget-minutes, or set {where}",
        )
    drafts: dict[str, Written] = {}

    def minutes_of(draft: Draft) -> float:
        text = written(base, draft)
        drafts[repr(draft)] = text
        return pace.minutes(text.plan)

    basket = choose(offers, budget, minutes_of, price)
    recipe = None if basket.draft is None else drafts[repr(basket.draft)]
    return _document(
        facts, offers, basket, (budget, price, pace, base), recipe, minutes_of
    )


def _held(base: Base, offer: Offer) -> Offer:
    """Return an offer whose needs a recipe can hold; else it says that none can."""
    if offer.needs is None:
        return offer
    needs = fits(base, offer.needs)
    if needs == offer.needs:
        return offer
    return Offer(
        id=offer.id,
        title=offer.title,
        reason=offer.reason,
        decides=offer.decides,
        bears_on=offer.bears_on,
        not_in_recipe="the run's own recipe can not be extended so",
        command=offer.command,
    )


def _price(run: Run, base: Base, offers: list[Offer]) -> float | None:
    """Return USD an hour; None without prices."""
    draft = next((o.needs for o in offers if o.needs is not None), None)
    cost = run.cost if draft is None else written(base, draft).plan.recipe.cost
    return cost.usd_per_hour if cost is not None and cost.usd_per_hour > 0 else None


def _document(
    facts: Facts,
    offers: list[Offer],
    basket: Basket,
    terms: tuple[Budget, float | None, Pace, Base],
    recipe: Written | None,
    minutes_of: Callable[[Draft], float],
) -> PlanDocument:
    budget, price, pace, base = terms
    added = {id(c.offer): c.added_minutes for c in basket.choices}
    order = {key: i for i, key in enumerate(added)}
    made = [_candidate(o, added.get(id(o)), basket, price, minutes_of) for o in offers]
    ranked = sorted(
        zip(offers, made, strict=True),
        key=lambda pair: (
            order.get(id(pair[0]), len(order)),
            -(pair[1].value_per_minute or 0.0),
            pair[1].not_in_recipe is not None,
        ),
    )
    return PlanDocument(
        schema=SCHEMA,
        run=facts.run.id,
        budget_minutes=budget.minutes,
        budget_usd=budget.usd,
        candidates=tuple(candidate for _, candidate in ranked),
        minutes=basket.minutes if recipe is not None else None,
        most_minutes=None if recipe is None else pace.most_minutes(recipe.plan),
        usd=None if price is None or recipe is None else price * basket.minutes / 60,
        pace=pace.told,
        left_open=tuple(
            o.told("decides") for o in facts.opens if o not in basket.settled
        ),
        recipe=None if recipe is None else recipe.text,
        fill_in=base.fill_in if recipe is not None else (),
        findings=_findings(facts, basket, offers),
    )


def _candidate(
    offer: Offer,
    added: float | None,
    basket: Basket,
    price: float | None,
    minutes_of: Callable[[Draft], float],
) -> Candidate:
    minutes = None if offer.needs is None else minutes_of(offer.needs)
    why = offer.not_in_recipe
    if why is None and added is None:
        worth = offer.value(basket.settled) >= LEAST_VALUE
        why = "over the budget" if worth else "what was chosen settles it"
    value = offer.value()
    return Candidate(
        id=offer.id,
        title=offer.title,
        reason=offer.reason,
        settles=offer.settles(),
        value=value,
        minutes=minutes,
        usd=None if minutes is None or price is None else price * minutes / 60,
        value_per_minute=None if minutes is None else value / max(minutes, 1e-9),
        in_recipe=added is not None,
        added_minutes=added,
        not_in_recipe=why if added is None else None,
        command=offer.command,
    )


def _findings(facts: Facts, basket: Basket, offers: list[Offer]) -> tuple[Finding, ...]:
    """Say why there is no recipe, where there is none."""
    if basket.choices:
        return ()
    if not facts.opens:
        message, hint = "nothing is open: every hypothesis and claim is decided", ""
    elif any(o.needs is not None for o in offers):
        message = "the budget holds no measurement that would settle anything"
        hint = "Raise it; the candidates say what each takes."
    else:
        message = "what is open can not be settled by a recipe here"
        hint = "Each candidate says how it can be."
    return (Finding(code="no-next-run", severity="info", message=message, hint=hint),)
