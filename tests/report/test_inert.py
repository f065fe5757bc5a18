"""Text of a run on the page: fit for it, short enough, linked, and never active."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from markupsafe import Markup
from msgspec.structs import replace

from stepscope.board.records import Board
from stepscope.findings import Finding
from stepscope.report.figure import Figure
from stepscope.report.inert import Links, clipped, fit, unique_ids
from stepscope.report.page import html
from stepscope.report.svg import plain, render

Small = Any  # tests/report/conftest.py; a conftest can not be imported
CONTROL = "a\x00b\x1b[31mc\x08d\ud800e\u202ef\u200fg\x85h"
LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tab\tand line\nstay", "tab\tand line\nstay"),
        ("\x00\x1b\x7f\x85", "\ufffd" * 4),
        ("\ud800", "\ufffd"),
        ("\u05d0\u200f right to left stays", "\u05d0\u200f right to left stays"),
    ],
)
def test_what_xml_can_not_hold_is_replaced(text: str, shown: str) -> None:
    assert fit(text) == shown


def test_a_long_text_says_how_much_is_missing() -> None:
    assert clipped("abc", 3) == "abc"
    assert clipped("abcd", 3) == "abc … (1 more characters)"


@given(st.lists(st.text(max_size=12), unique=True, max_size=20))
def test_different_names_have_different_ids(names: list[str]) -> None:
    ids = unique_ids("cell", tuple(names))
    assert len(set(ids.values())) == len(names)
    for found in ids.values():
        assert found.isascii()
        assert not set(found) - set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
        )


LINKS = Links(
    {"a-c1-r0": "cell-a", "a-c1-r00": "cell-b", "8": "cell-8", "c<b>1": "cell-h"},
    {("a", 1): "a-c1-r0", ("a", 8): "8", ("b", 1): "a-c1-r00"},
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see a-c1-r0.", 'see <a href="#cell-a">a-c1-r0</a>.'),
        ("a-c1-r00", '<a href="#cell-b">a-c1-r00</a>'),
        ("a-c1-r000 and xa-c1-r0", "a-c1-r000 and xa-c1-r0"),
        ("8 of 18 is 8", "8 of 18 is 8"),
        ("c<b>1", '<a href="#cell-h">c&lt;b&gt;1</a>'),
        ("<i>&", "&lt;i&gt;&amp;"),
        ("a: concurrency 1", 'a: <a href="#cell-a">concurrency 1</a>'),
        ("b: concurrency 1", 'b: <a href="#cell-b">concurrency 1</a>'),
        ("c: concurrency 1", "c: concurrency 1"),
        ("c: concurrency 8", 'c: <a href="#cell-8">concurrency 8</a>'),
        ("concurrency 99999999999999999999", "concurrency 99999999999999999999"),
    ],
)
def test_names_and_loads_lead_to_their_own_cells_alone(text: str, shown: str) -> None:
    assert str(LINKS.told(text)) == shown


@given(st.text(alphabet="<>&\"'/= abc1-r0\x00\u202e", max_size=60))
def test_nothing_but_our_own_links_is_markup(text: str) -> None:
    told = LINKS.told(text)
    assert isinstance(told, Markup)
    for piece in str(told).split("<")[1:]:
        assert piece.startswith(('a href="#cell-', "/a>"))


def test_a_figure_of_hostile_text_is_still_a_figure() -> None:
    spec: dict[str, object] = {
        "data": {"values": [{"x": 1, "k": CONTROL + LONG}]},
        "mark": "bar",
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "k", "type": "nominal"},
            "description": {"field": "k"},
        },
    }
    figure = Figure(name="f", title=CONTROL, alt=LONG, spec=spec)
    assert len(str(plain(figure))) < 3_000
    svg = render(figure)
    assert "\x00" not in svg
    assert len(svg) < 30_000


@pytest.fixture(scope="module")
def page(small: Small) -> str:
    """The page of a run whose every text is unfit, endless, or both."""
    bad = CONTROL + "</script><script>" + LONG
    run, analysis = small.run(), small.analysis()
    names = {c.name: f"{c.name}{CONTROL}" for c in run.cells}
    launches = tuple(replace(x, failure=bad, command=(bad,)) for x in run.launches)
    run = replace(
        run,
        model=CONTROL,
        cells=tuple(replace(c, name=names[c.name], failure=bad) for c in run.cells),
        launches=launches,
    )
    (traced,) = analysis.traced
    (kernel,) = traced.ranks[0].kernels
    rank = replace(traced.ranks[0], kernels=(replace(kernel, name=bad),))
    analysis = replace(
        analysis,
        cells=tuple(replace(c, name=names[c.name]) for c in analysis.cells),
        comparisons=tuple(replace(c, b=bad, reason=bad) for c in analysis.comparisons),
        pooled=tuple(replace(p, b=bad) for p in analysis.pooled),
        left_out=tuple(replace(x, reason=bad) for x in analysis.left_out),
        traced=(replace(traced, configuration=CONTROL, paths=(bad,), ranks=(rank,)),),
        boot=tuple(
            replace(b, ready=False, verdict={"why": bad, "cause": bad}, log_path=bad)
            for b in analysis.boot
        ),
        findings=(
            Finding(code="stall", severity="error", message=bad, hint=bad, cell=bad),
        ),
    )
    board: Board = small.board(sentences=(bad,), solid=(bad,))
    return html(run, analysis, board)


def test_unfit_and_endless_text_leaves_a_page_that_can_be_written(page: str) -> None:
    page.encode("utf-8")
    assert not set(page) & set(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
    assert len(page) < 2_500_000


def test_hostile_text_in_new_sections_adds_no_element(page: str, small: Small) -> None:
    assert "<script" not in page
    usual = html(small.run(), small.analysis(), small.board())
    for tag in ("<section", "<svg", "<figure", "<h2", "<style", "<meta"):
        assert page.count(tag) == usual.count(tag), tag


def test_text_of_either_direction_stays_in_its_own_element(page: str) -> None:
    assert "unicode-bidi: isolate" in page


@pytest.mark.parametrize("mark", "\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069")
def test_a_name_does_not_turn_the_digits_of_a_sentence_around(mark: str) -> None:
    assert fit(f"a{mark}b reads 842") == "a\ufffdb reads 842"
    links = Links({"cell-1": "c"})
    assert mark not in links.told(f"cell-1{mark}: 842 tokens/s")
    assert mark not in links.link(f"cell-1{mark}")


def test_letters_of_either_direction_stay() -> None:
    text = "\u05d0\u05d1\u05d2 \u0639\u0631\u0628 abc \u200f842"
    assert fit(text) == text
