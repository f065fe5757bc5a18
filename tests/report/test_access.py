"""The page without a mouse, without sight, in the dark, on paper."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from stepscope.report.methods import METHODS, OF_FIGURE, notes_of
from stepscope.report.page import figures, html
from stepscope.report.template import css
from stepscope.report.words import WORDS

Small = Any  # tests/report/conftest.py; a conftest can not be imported
#: WCAG 2.2, success criterion 1.4.3: text; 1.4.11: parts of figures.
TEXT, PARTS = 4.5, 3.0


class Elements(HTMLParser):
    """Tags with their attributes and the tags that they lie in."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), tuple(self._open)))
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.found if name == tag]


@pytest.fixture(scope="module")
def text(small: Small) -> str:
    return html(small.run(), small.analysis(), small.board())


@pytest.fixture(scope="module")
def page(text: str) -> Elements:
    return Elements(text)


def _colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,6})", block))


def _schemes() -> dict[str, dict[str, str]]:
    light, dark, paper = (
        _colours(block) for block in re.findall(r":root \{(.*?)\}", css(), re.DOTALL)
    )
    return {"light": light, "dark": light | dark, "paper": light | paper}


def _luminance(colour: str) -> float:
    """Return relative luminance. Source: WCAG 2.2, definition of the term."""
    digits = colour.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
def test_text_stands_out_from_its_ground(scheme: str) -> None:
    colours = _schemes()[scheme]
    used = set(re.findall(r"[^-]color:\s*var\(--([\w-]+)\)", css())) - {"paper"}
    assert {"ink", "soft", "link", "ok", "warn", "bad", "faded"} <= used
    for name in used:
        for ground in ("paper", "tint"):
            found = _contrast(colours[name], colours[ground])
            assert found >= TEXT, (name, ground, round(found, 2))


@pytest.mark.parametrize("scheme", ["light", "dark", "paper"])
def test_curves_and_bars_stand_out_from_the_page(scheme: str) -> None:
    colours = _schemes()[scheme]
    for name in ("ink", "rule", "void", *(f"s{i}" for i in range(6))):
        found = _contrast(colours[name], colours["paper"])
        assert found >= PARTS, (name, round(found, 2))


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name(page: Elements) -> None:
    scrolled = [a for _, a, _ in page.found if a.get("class") == "scroll"]
    assert len(scrolled) > 20
    for area in scrolled:
        assert area["tabindex"] == "0"
        assert area["role"] == "group"
        assert area["aria-label"]
    for recipe in page.all("pre"):
        assert recipe["tabindex"] == "0"


def test_every_table_that_may_be_wide_lies_in_something_that_scrolls(
    text: str,
) -> None:
    bare = re.sub(r'<div class="(?:scroll|groups)".*?</div>', "", text, flags=re.DOTALL)
    assert "<table" not in bare


def test_the_first_stop_of_the_keyboard_leads_past_the_head(page: Elements) -> None:
    first = next(a for tag, a, _ in page.found if tag in ("a", "summary", "pre"))
    assert first["class"] == "skip"
    assert first["href"] == "#verdict"
    assert not [a for _, a, _ in page.found if int(a.get("tabindex") or 0) > 0]


def test_every_section_is_named_by_its_heading_and_found_in_the_head(
    page: Elements,
) -> None:
    sections = page.all("section")
    headings = {a.get("id") for a in page.all("h2")}
    assert {s["aria-labelledby"] for s in sections} == headings
    linked = [
        a["href"] for tag, a, inside in page.found if tag == "a" and "nav" in inside
    ]
    assert linked == [f"#{section['id']}" for section in sections]


def test_headings_skip_no_level(page: Elements) -> None:
    levels = [int(t[1]) for t, _, _ in page.found if re.fullmatch(r"h[1-6]", t)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_figure_says_what_it_shows_in_words(page: Elements, small: Small) -> None:
    for figure in figures(small.run(), small.analysis()):
        assert len(figure.alt) > 40, figure.name
        assert figure.note
    assert len(page.all("svg")) == len(page.all("desc"))


def test_details_are_opened_by_their_own_summary(text: str) -> None:
    assert re.findall(r"<details[^>]*>\s*(?!\s*<summary)", text) == []
    assert text.count("<details") == text.count("<summary")


def test_on_paper_details_are_open_and_nothing_scrolls() -> None:
    printed = css()[css().index("@media print") :]
    assert "details::details-content" in printed
    assert ".scroll { overflow: visible; }" in printed


def test_every_kind_of_figure_has_footnotes_and_every_footnote_is_there(
    page: Elements, small: Small
) -> None:
    ids = {a.get("id") for _, a, _ in page.found}
    for method in METHODS:
        assert f"note-{method.id}" in ids
        assert method.formula
        assert method.source
        assert method.unseen
    known = {method.id for method in METHODS}
    for notes in OF_FIGURE.values():
        assert set(notes) <= known
    for figure in figures(small.run(), small.analysis()):
        assert notes_of(figure.name), figure.name


def test_every_footnote_is_led_to_from_somewhere(page: Elements) -> None:
    targets = {a.get("href") for a in page.all("a")}
    assert {f"#note-{method.id}" for method in METHODS} <= targets


def test_the_glossary_and_the_page_say_the_same() -> None:
    from pathlib import Path

    glossary = Path(__file__).parents[2] / "docs" / "glossary.md"
    lines = glossary.read_text("utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert tuple((word, meaning) for word, meaning in rows[1:]) == WORDS
