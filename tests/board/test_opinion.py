"""How verdicts are joined: what would decide is told once."""

from stepscope.board.opinion import Opinion, Verdict, join, told_once, weigh
from stepscope.board.records import Evidence
from stepscope.board.regimes import Point, regimes

LONG = "A warm-up that settles: allow more blocks (warm_up.max_blocks)."


def item(value: float) -> Evidence:
    return Evidence(source="c", quantity="q", value=value, unit="%", reasoning="r")


def standing(decide: str) -> Verdict:
    return Verdict(status="standing", evidence=(item(1.0),), would_decide=decide)


def test_a_sentence_that_two_ranges_share_is_told_once() -> None:
    points = [
        Point(8, standing(f"{LONG} 3 repeats at concurrency 8.")),
        Point(64, standing(f"{LONG} 3 repeats at concurrency 64.")),
    ]
    (regime,) = regimes("warm-up", "base", points)
    assert regime.entry.would_decide == (
        f"{LONG} 3 repeats at concurrency 8. 3 repeats at concurrency 64."
    )


def test_a_sentence_that_another_begins_with_says_nothing_more() -> None:
    more = "A kernel timeline (capture); and the engine's step period."
    assert told_once([more, "A kernel timeline (capture)."]) == more
    assert told_once(["A kernel timeline (capture).", more]) == more
    assert told_once([]) is None


def test_repeats_that_disagree_keep_what_would_decide_each() -> None:
    out = Verdict(status="ruled-out", evidence=(item(0.0),))
    joined = join([standing(f"{LONG} One."), out, standing(f"{LONG} Two.")])
    assert joined.would_decide == (
        f"Repeats at this concurrency disagree: repeat it more often. {LONG} One. Two."
    )


def test_a_cause_that_is_supported_without_a_share_says_why() -> None:
    why = "No share: clocks bound it only from above."
    said = Opinion(status="supported", evidence=(item(9.0),), no_share=why)
    verdict = weigh([said], "Something else.")
    assert (verdict.status, verdict.share_pct) == ("supported", None)
    assert verdict.would_decide == why
    priced = Opinion(status="supported", evidence=(item(9.0),), share_pct=71.0)
    assert weigh([priced], "Something else.").would_decide is None
