"""The terminal's summary and the Markdown."""

import io
import re
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace
from rich.console import Console

from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge
from stepscope.board.records import HYPOTHESES
from stepscope.report.markdown import markdown, text
from stepscope.report.nexts import what_next
from stepscope.report.terminal import print_summary

Small = Any  # tests/report/conftest.py; a conftest can not be imported


def summary(small: Small, width: int = 80, **over: Any) -> str:
    run, analysis = small.run(**over), small.analysis()
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    print_summary(console, run, analysis, judge(run, analysis))
    return out.getvalue()


def test_the_summary_fits_80_columns(small: Small) -> None:
    lines = summary(small).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert not [line for line in lines if "\u2026" in line]


def test_each_latency_says_which_figure_it_is(small: Small) -> None:
    lines = summary(small).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("cell"))
    assert lines[at - 1].split() == ["TPOT", "ms", "TTFT", "ms"]
    assert lines[at].split()[:7] == [
        "cell", "C", "tok/s", "mean", "p99", "median", "p99",
    ]  # fmt: skip


def test_the_verdict_comes_first(small: Small) -> None:
    assert summary(small).startswith("baseline: the highest throughput measured")


def test_a_void_cell_is_told_with_its_reason(small: Small) -> None:
    assert "baseline-c128-r0 is void: client-bound" in summary(small)


def test_the_gravest_findings_and_what_to_run_next_are_told(small: Small) -> None:
    told = summary(small)
    assert "client-bound baseline-c128-r0: client TPOT is 9 %" in told
    assert "What to run next" in told
    assert "stepscope plan" in told.split("What to run next")[1]


def test_the_summary_names_the_measurements_that_the_page_names(small: Small) -> None:
    run, analysis = small.run(), small.analysis()
    todo = what_next(run, analysis, judge(run, analysis))
    first = next(m for m in todo.measurements if m.in_recipe)
    told = " ".join(summary(small).split("What to run next")[1].split())
    assert told.startswith(f"- {first.title} ({first.alone} minutes): decides ")


def test_markup_in_a_name_is_no_markup(small: Small) -> None:
    analysis = small.analysis()
    cell = replace(analysis.cells[0], name="[red]x[/red]")
    run = small.run()
    out = io.StringIO()
    analysis = replace(analysis, cells=(cell,))
    console = Console(file=out, width=80, color_system=None)
    print_summary(console, run, analysis, judge(run, analysis))
    assert "[red]x[/red]" in out.getvalue()


@pytest.fixture(scope="module")
def written(small: Small) -> str:
    run, analysis = small.run(), small.analysis()
    return markdown(run, analysis, judge(run, analysis), ["f/sweep.png"])


def test_markdown_tables_are_rectangular(written: str) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", written, re.MULTILINE)
    assert len(blocks) == 4  # sweep, board, changes, next
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_markdown_is_short_and_holds_every_hypothesis_once(
    written: str, small: Small
) -> None:
    assert len(written) < 8_000
    for name in HYPOTHESES:
        assert written.count(f"\n| {name} |") == 1
    for finding in small.analysis().findings:
        assert (finding.code in written) == (finding.severity != "info")
    assert "more findings are on the page" in written


def test_markdown_prices_what_is_next(written: str) -> None:
    after = written.split("### What to run next")[1]
    assert "minutes and" in after
    assert "USD" in after


def test_a_claim_about_a_comparison_stands_in_its_table_alone(written: str) -> None:
    holes = written.split("### Not solid")[1].split("###", maxsplit=1)[0]
    assert "eager against baseline" not in holes
    assert "| eager over baseline | 8 |" in written


def test_markdown_renders_to_tables_without_anything_of_the_run_in_html(
    small: Small,
) -> None:
    hostile = "<img src=x onerror=y>|a](javascript:x)\n| b https://evil.example"
    run, analysis = small.run(id=hostile), small.analysis()
    cells = tuple(replace(c, name=c.name + hostile) for c in analysis.cells)
    analysis = replace(analysis, cells=cells)
    text = markdown(run, analysis, judge(run, analysis))
    page = MarkdownIt("commonmark").enable("table").render(text)
    assert page.count("<table>") == 4
    assert "<img" not in page
    assert "<a " not in page


def test_markdown_shows_the_pictures(written: str) -> None:
    assert "(f/sweep.png)" in written


def test_hostile_text_is_inert_in_markdown() -> None:
    assert text("<img src=x>|[a](b)\n# c @d") == (r"\<img src=x\>\|\[a\](b) \# c \@d")


def test_a_failed_boot_is_told_with_its_fixes(small: Small) -> None:
    boot = BootResult(
        launch="baseline-l0",
        ready=False,
        seconds_to_ready=None,
        phases=(),
        ledger={},
        verdict={
            "cause": "no-kv-memory",
            "why": "Nothing was left for KV.",
            "fixes": (
                {
                    "flag": "gpu-memory-utilization",
                    "direction": "raise",
                    "value": 0.9,
                    "effect": "leaves 60 GiB",
                    "confidence": "high",
                },
            ),
        },
    )
    run, analysis = small.run(cells=()), Analysis(cells=(), boot=(boot,))
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    print_summary(console, run, analysis, judge(run, analysis))
    told = " ".join(out.getvalue().split())
    assert "did not boot (no-kv-memory)" in told
    assert "Nothing was left for KV." in told
    assert "raise gpu-memory-utilization to 0.9: leaves 60 GiB" in told
