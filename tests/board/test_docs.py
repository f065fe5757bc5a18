"""docs/board.md says the rules as the code has them."""

from pathlib import Path

from stepscope.board.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "board.md"


def test_the_page_lists_every_rule_word_for_word() -> None:
    text = PAGE.read_text("utf-8")
    rules = text.split("## Rules", 1)[1]
    expected = []
    for hypothesis in RULES.values():
        expected += [f"### {hypothesis.id}", hypothesis.claim]
        expected += [
            f"| {r.name} | {r.measurement} | {r.threshold} | {r.blind} |"
            for r in hypothesis.rules
        ]
    shown = [
        line
        for line in rules.splitlines()
        if line and not line.startswith(("| rule |", "| --- |"))
    ]
    assert shown == expected
