"""The page: whole, offline, inert, and saying everything."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepscope.analysis.boot.records import BootResult
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge
from stepscope.board.records import HYPOTHESES
from stepscope.findings import Finding
from stepscope.report.cells import (
    EVERYTHING,
    SUMMARY,
    UNKNOWN,
    Column,
    shown,
    unlisted,
)
from stepscope.report.content import (
    command_line,
    findings,
    path_link,
    trace_file,
)
from stepscope.report.inert import fit
from stepscope.report.page import html
from stepscope.report.steps import step_time
from stepscope.run.run import Launch, Run

Small = Any  # tests/report/conftest.py; a conftest can not be imported
GOLDEN = Path(__file__).parents[1] / "data" / "report" / "small.txt"
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">&"\'\u202e'
VOID_TAGS = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """What a browser would see: tags, attributes, text; fails on bad nesting."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self._open):
            self.words.append(data)

    @property
    def text(self) -> str:
        lines = "".join(self.words).splitlines()
        return "\n".join(line.strip() for line in lines if line.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(run: Run, analysis: Analysis) -> str:
    return html(run, analysis, judge(run, analysis))


@pytest.fixture(scope="session")
def written(small: Small) -> str:
    return page_of(small.run(), small.analysis())


@pytest.fixture(scope="session")
def page(written: str) -> Page:
    return Page(written)


@pytest.fixture(scope="session")
def hostile(small: Small) -> str:
    run: Run = small.run(
        id=HOSTILE,
        model=HOSTILE,
        gpu=HOSTILE,
        engine_version=HOSTILE,
        recipe_text=f"</pre>{HOSTILE}",
    )
    cells = tuple(
        replace(c, name=c.name + HOSTILE, raw_path="javascript:alert(1)")
        for c in run.cells
    )
    launches = tuple(
        replace(x, command=("serve", HOSTILE), environment={HOSTILE: HOSTILE})
        for x in run.launches
    )
    analysis: Analysis = small.analysis()
    results = tuple(replace(c, name=c.name + HOSTILE) for c in analysis.cells)
    boot = tuple(
        replace(
            b,
            ready=False,
            log_path="javascript:alert(1)",
            verdict={"why": HOSTILE, "wrong_readings": [HOSTILE], "cause": HOSTILE},
        )
        for b in analysis.boot
    )
    found = Finding(
        code="stall",
        severity="error",
        message=HOSTILE,
        hint=HOSTILE,
        cell=results[0].name,
    )
    return page_of(
        replace(run, cells=cells, launches=launches),
        replace(analysis, cells=results, boot=boot, findings=(found,)),
    )


def test_the_text_of_a_small_run_is_the_golden_one(small: Small) -> None:
    text = html(small.run(), small.analysis(), small.board())
    assert Page(text).text + "\n" == GOLDEN.read_text("utf-8")


def test_nothing_is_fetched_from_anywhere(written: str, page: Page) -> None:
    # The only addresses are names of XML namespaces, which nothing fetches.
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+[\w/.]*", written))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    for tag in ("link", "img", "iframe", "object", "embed", "base", "image", "use"):
        assert page.all(tag) == []
    assert not re.search(r"@import|url\((?!#)", written)
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag


def test_a_policy_forbids_scripts_and_fetching(page: Page) -> None:
    (policy,) = [
        m["content"]
        for m in page.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


@pytest.mark.parametrize("which", ["written", "hostile"])
def test_nothing_in_it_runs(which: str, request: pytest.FixtureRequest) -> None:
    seen = Page(request.getfixturevalue(which))
    assert seen.all("script") == []
    assert seen.all("foreignobject") == []
    for tag, attributes in seen.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert not re.match(r"\s*(javascript|data):", value or ""), (tag, name)


def test_hostile_text_is_shown_as_it_is(hostile: str) -> None:
    text = Page(hostile).text
    for where in ("alert(1)", "onerror", "</pre>"):
        assert where in text
    assert text.count(fit(HOSTILE)) > 20
    assert "\u202e" not in text


def test_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        target = link["href"] or ""
        assert not target.startswith("#") or target[1:] in ids


def test_clip_paths_belong_to_their_own_figure(written: str, page: Page) -> None:
    ids = {a["id"] for _, a in page.tags if "id" in a}
    references = re.findall(r"url\(#([\w-]+)\)", written)
    assert set(references) <= ids


def test_headings_come_in_order(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_figures_are_named_and_described(page: Page) -> None:
    figures = page.all("svg")
    names = [f["aria-labelledby"] or "" for f in figures]
    heads = [re.split(r"-\d|-t ", name)[0] for name in names]
    assert heads == [
        "sweep-throughput", "sweep-tpot", "stack", "step", "trace-budget",
        "memory-ledger", "session", "changes-tpot-ms", *["telemetry"] * 6,
    ]  # fmt: skip
    ids = {a["id"] for _, a in page.tags if "id" in a}
    for figure in figures:
        assert figure["role"] == "img"
        assert set((figure["aria-labelledby"] or "").split()) <= ids


def test_marks_say_their_numbers_on_hovering(written: str) -> None:
    assert "<title>baseline-c8-r0: 6.00 TPOT (ms) at concurrency 8</title>" in written
    assert "3 repeats, mean 18.0, 95 % interval 17.6 to 18.4" in written


def test_tables_have_headers_with_scope(page: Page) -> None:
    for header in page.all("th"):
        assert header.get("scope") in ("row", "col", "colgroup")


def test_every_hypothesis_and_every_finding_appears(page: Page, small: Small) -> None:
    ids = {a.get("id") for a in page.all("details")}
    assert {f"h-{name}" for name in HYPOTHESES} <= ids
    for finding in small.analysis().findings:
        assert finding.code in page.text
        assert finding.message in page.text


def test_void_cells_are_grey_and_say_why(written: str) -> None:
    rows = re.findall(r'<tr class="void">.*?</tr>', written, re.DOTALL)
    assert len(rows) == 1
    assert "baseline-c128-r0" in rows[0]
    assert "void: client-bound" in rows[0]
    assert "stroke-void" in written


def test_a_run_without_void_cells_has_no_grey(small: Small) -> None:
    analysis: Analysis = small.analysis()
    sound = replace(analysis, cells=analysis.cells[:5], findings=())
    assert '<tr class="void">' not in page_of(small.run(), sound)


def test_secrets_are_hidden(written: str) -> None:
    assert "hunter2" not in written
    assert "hf_abc" not in written
    assert "OMP_NUM_THREADS=1" in written


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("x", "--api-key", "s3", "--port", "1"), "x --api-key (hidden) --port 1"),
        (("x", "--api-key=s3"), "x --api-key=(hidden)"),
        (("x", "--hf-token", "s3"), "x --hf-token (hidden)"),
        (("x", "--max-num-batched-tokens", "8192"), "x --max-num-batched-tokens 8192"),
        (("x", "--tokenizer", "a b"), "x --tokenizer 'a b'"),
    ],
)
def test_only_secrets_are_hidden_in_commands(
    command: tuple[str, ...], line: str
) -> None:
    assert command_line(Launch(name="l", configuration="c", command=command)) == line


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("cells/a/requests.parquet", "cells/a/requests.parquet"),
        ("/etc/passwd", None),
        ("../up", None),
        ("javascript:alert(1)", None),
        ("//host/x", None),
        (None, None),
    ],
)
def test_only_paths_inside_the_run_are_links(
    path: str | None, link: str | None
) -> None:
    assert path_link(path) == link


@pytest.mark.parametrize(
    ("home", "link"),
    [("", "cells/a"), ("../run%201", "../run%201/cells/a"), (None, None)],
)
def test_links_follow_the_page_to_where_it_is_written(
    home: str | None, link: str | None
) -> None:
    assert path_link("cells/a", home) == link


def test_a_floor_that_the_counter_refutes_is_told_and_not_drawn(small: Small) -> None:
    """Two H200s that share experts read 20 % where uniform routing needs 40 %."""
    point = replace(small.analysis().floor[0], needed_pct=39.7, read_pct=20.1)
    analysis = replace(small.analysis(), floor=(point,))
    said = Page(html(small.run(), analysis, small.board())).text
    assert "these bytes were not moved" in said
    assert "20.1 %" in said
    (model,) = analysis.step_model
    figure = step_time("baseline", model, analysis.floor, 0)
    assert figure is not None
    assert "floor" not in figure.note
    plain = Page(html(small.run(), small.analysis(), small.board())).text
    assert "these bytes were not moved" not in plain


def test_every_figure_of_a_cell_has_its_name_on_the_page() -> None:
    """A field added to the analysis is shown by itself; give it a name here."""
    assert unlisted() == ()


def test_every_listed_figure_is_read_from_its_own_field(small: Small) -> None:
    cell = small.analysis().cells[0]
    fields = [c.field for columns in EVERYTHING.values() for c in columns]
    assert len(fields) == len(set(fields))
    for columns in (*EVERYTHING.values(), SUMMARY):
        for column in columns:
            column.read(cell)


def test_fractions_become_percent_and_unknown_stays_unknown(small: Small) -> None:
    cell = small.analysis().cells[0]
    share = Column("occupancy expected", "%", "occupancy_expected", 100)
    assert share.read(cell) == (95.0, 99.0)
    assert share.read(replace(cell, occupancy_expected=None)) is None
    power = Column("power", "W", "telemetry.power_w")
    assert power.read(replace(cell, telemetry=None)) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, UNKNOWN),
        ((), "none"),
        ({}, "none"),
        (0, "0"),
        (12345, "12,345"),
        (True, "yes"),
        ((1.0, 2.0), "1.00 to 2.00"),
        (("a", "b"), "a, b"),
        ({"b": 1.0, "a": None}, f"a {UNKNOWN}, b 1.00"),
    ],
)
def test_unknown_is_a_dash_and_nothing_else_is(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_run_that_never_booted_has_a_page(small: Small) -> None:
    boot = BootResult(
        launch="baseline-l0",
        ready=False,
        seconds_to_ready=None,
        phases=(),
        ledger={},
        verdict={
            "outcome": "failed",
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
    run = small.run(cells=(), complete=False)
    text = Page(page_of(run, Analysis(cells=(), boot=(boot,)))).text
    assert "did not boot (no-kv-memory)" in text
    assert "raise gpu-memory-utilization to 0.9" in text
    assert "cut short" in text


def test_an_import_is_not_said_to_be_measured_by_us(small: Small) -> None:
    run = small.run()
    assert "Measured and written by stepscope 0.1.0." in page_of(run, small.analysis())
    foreign = tuple(replace(cell, source="vllm-bench") for cell in run.cells)
    told = page_of(replace(run, cells=foreign, tool_version=None), small.analysis())
    assert "Measured elsewhere (vllm-bench), read by stepscope." in told
    assert "Measured and written" not in told


def test_of_equal_findings_those_of_warm_ups_come_last(small: Small) -> None:
    analysis = small.analysis()
    first, *others = analysis.cells
    found = tuple(
        Finding(code="stall", severity="warning", message="m", cell=cell.name)
        for cell in (first, others[0])
    )
    analysis = replace(
        analysis, cells=(replace(first, warm_up=True), *others), findings=found
    )
    told = [f.cell for f in findings(small.run(), analysis) if f.code == "stall"]
    assert told == [others[0].name, first.name]


def test_a_page_does_not_say_where_its_maker_keeps_his_runs(small: Small) -> None:
    assert trace_file("/home/me/runs/r/traces/c8/0.json.gz") == "traces/c8/0.json.gz"
    assert trace_file("foreign/t.json.gz") == "foreign/t.json.gz"
    assert trace_file("/home/me/t.json.gz") == "t.json.gz"
    analysis = small.analysis()
    (traced,) = analysis.traced
    there = replace(traced, paths=("/home/me/runs/r/traces/c8/0.json.gz",))
    text = page_of(small.run(), replace(analysis, traced=(there,)))
    assert "/home/me" not in text
    assert 'href="traces/c8/0.json.gz"' in text


def test_a_run_without_a_cell_says_so_and_draws_no_empty_table(small: Small) -> None:
    run, analysis = small.run(cells=()), small.analysis(cells=(), groups=())
    text = page_of(run, analysis)
    assert "No cell was measured." in text
    assert "Cells, scrollable" not in text
    assert "No cell was measured." not in page_of(small.run(), small.analysis())
