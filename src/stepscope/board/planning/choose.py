"""Which measurements to buy: by what each still settles per minute it still costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepscope.board.planning.draft import Draft
from stepscope.board.planning.offer import Offer
from stepscope.board.planning.opened import Open

#: What costs less is as good as free: it must not swallow the ranking.
_LEAST_MINUTES = 0.05
#: Worth less than this, an offer settles nothing that was not settled.
LEAST_VALUE = 0.2


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent; None: no bound."""

    minutes: float | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class Choice:
    """An offer that was chosen, with what it added to those before it."""

    offer: Offer
    added_minutes: float


@dataclass(frozen=True, slots=True)
class Basket:
    """What was chosen, in order, and what a recipe needs for all of it."""

    choices: tuple[Choice, ...]
    draft: Draft | None
    minutes: float
    settled: frozenset[Open]


def choose(
    offers: Sequence[Offer],
    budget: Budget,
    minutes_of: Callable[[Draft], float],
    usd_per_hour: float | None,
) -> Basket:
    """Return a set of offers, greedily.

    Each step takes the offer whose still unsettled value per added minute is highest
    and that the budget still holds. Needs are shared: a second offer on the same
    launch pays for its own cells alone. Ties go to the earlier offer.

    Args:
        offers: In order of preference.
        budget: What may be spent.
        minutes_of: What a draft takes.
        usd_per_hour: Price; None: only minutes bound.
    """
    basket = Basket((), None, 0.0, frozenset())
    left = [o for o in offers if o.needs is not None]
    while left:
        best = None
        for offer in left:
            assert offer.needs is not None
            value = offer.value(basket.settled)
            draft = (
                offer.needs if basket.draft is None else basket.draft.plus(offer.needs)
            )
            minutes = minutes_of(draft)
            if value < LEAST_VALUE or _over(minutes, budget, usd_per_hour):
                continue
            added = max(minutes - basket.minutes, 0.0)
            rate = value / max(added, _LEAST_MINUTES)
            if best is None or rate > best[0]:
                best = (rate, offer, draft, minutes, added)
        if best is None:
            break
        _, offer, draft, minutes, added = best
        left.remove(offer)
        basket = Basket(
            (*basket.choices, Choice(offer, added)),
            draft,
            minutes,
            basket.settled | set(offer.decides),
        )
    return basket


def _over(minutes: float, budget: Budget, usd_per_hour: float | None) -> bool:
    if budget.minutes is not None and minutes > budget.minutes:
        return True
    if budget.usd is None or usd_per_hour is None:
        return False
    return usd_per_hour * minutes / 60 > budget.usd
