"""Greedy by value per minute: on offers whose best set is known."""

from stepscope.board.planning.choose import Basket, Budget, choose
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.offer import Offer
from stepscope.board.planning.opened import Open


def open_(what: str, weight: float = 1.0) -> Open:
    return Open(
        kind="hypothesis", what=what, configuration="b", low=1, high=8, now="standing",
        weight=weight,
    )  # fmt: skip


def offer(
    name: str, size: int, *decides: Open, bears_on: tuple[Open, ...] = ()
) -> Offer:
    return Offer(
        id=name, title=name, reason=name, decides=decides, bears_on=bears_on,
        needs=Draft(repeats={size: 1}),
    )  # fmt: skip


def minutes(draft: Draft) -> float:
    """One for the boot, and each size as many minutes as its number."""
    return 1.0 + sum(c * n for c, n in draft.repeats.items())


def names(basket: Basket) -> list[str]:
    return [c.offer.id for c in basket.choices]


def test_the_cheaper_of_two_equals_comes_first_and_the_boot_is_paid_once() -> None:
    a, b = open_("launch"), open_("power")
    basket = choose(
        [offer("dear", 8, a), offer("cheap", 2, b)], Budget(None, None), minutes, None
    )
    assert names(basket) == ["cheap", "dear"]
    assert [c.added_minutes for c in basket.choices] == [3.0, 8.0]
    assert basket.minutes == 11.0


def test_what_is_settled_is_not_bought_again() -> None:
    a = open_("launch")
    basket = choose(
        [offer("one", 2, a), offer("other", 3, a)], Budget(None, None), minutes, None
    )
    assert names(basket) == ["one"]


def test_an_offer_that_shares_a_cell_costs_nothing_more() -> None:
    a, b = open_("launch"), open_("power")
    basket = choose(
        [offer("one", 4, a), offer("same", 4, b)], Budget(5.0, None), minutes, None
    )
    assert names(basket) == ["one", "same"]
    assert basket.minutes == 5.0


def test_money_bounds_as_minutes_do() -> None:
    a, b = open_("launch"), open_("power")
    offers = [offer("one", 2, a), offer("other", 8, b)]
    basket = choose(offers, Budget(None, 0.2), minutes, 3.0)
    assert names(basket) == ["one"]
    assert choose(offers, Budget(None, 0.1), minutes, 3.0).draft is None


def test_bearing_on_a_thing_is_worth_a_quarter_and_settles_nothing() -> None:
    a = open_("launch")
    hint = offer("hint", 2, bears_on=(a,))
    assert hint.value() == 0.25
    basket = choose([hint, offer("sure", 8, a)], Budget(None, None), minutes, None)
    assert names(basket) == ["sure"]
    assert basket.settled == {a}
    cheap = choose([hint, offer("sure", 30, a)], Budget(5.0, None), minutes, None)
    assert names(cheap) == ["hint"]
    assert cheap.settled == frozenset()
