"""The page of kernel timelines: safe, self-contained, and true to its figures."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner

from stepscope.cli.trace import trace
from stepscope.errors import RecipeError
from stepscope.report.svg import render
from stepscope.report.trace_figures import Traced, budget_figure, gap_figure
from stepscope.report.trace_page import step_figures, trace_html
from stepscope.report.trace_step import step_svg
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.device import read_device
from stepscope.timeline.load import load_trace
from stepscope.timeline.picture import Lane, Mark, StepPicture, step_picture

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
DECODE = SHARED / "h200x1-qwen3moe-baseline" / "trace_decode_c8.pt.trace.json.gz"
BROKEN = SHARED / "traces" / "mi300x_graph_underrecorded.json.gz"


@pytest.fixture(scope="module")
def traced() -> Traced:
    traces = load_trace(DECODE)
    picture = step_picture(read_device(traces[0]))
    return Traced(
        label="concurrency 8", result=analyze_traces(traces), pictures=(picture,)
    )


def test_the_bars_sum_to_the_step(traced: Traced) -> None:
    figure = budget_figure([traced])
    assert figure is not None
    rows = figure.spec["data"]["values"]  # type: ignore[index]
    mean = traced.result.ranks[0].step_ms
    assert mean is not None
    assert sum(row["v"] for row in rows) == pytest.approx(mean.mean)


def test_the_gap_bars_sum_to_the_idle_time(traced: Traced) -> None:
    figure = gap_figure(traced, 0)
    assert figure is not None
    rows = figure.spec["data"]["values"]  # type: ignore[index]
    budget = traced.result.ranks[0].budget_ms
    assert budget is not None
    assert sum(row["v"] for row in rows) == pytest.approx(budget.idle)


def test_a_step_is_drawn_with_names_to_hover_over(traced: Traced) -> None:
    svg = step_svg(traced.pictures[0], "s")
    root = ET.fromstring(svg)
    titles = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("fused_moe_kernel" in text for text in titles)
    assert any("cudaGraphLaunch" in text for text in titles)
    assert any("together" in text for text in titles)
    left, right = 118, 118 + 800
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        if rect.get("height") == "18":
            x, width = float(rect.get("x", "0")), float(rect.get("width", "0"))
            assert left <= x
            assert x + width <= right + 1
    assert len(svg) < 150_000


def test_a_kernel_named_like_markup_is_text() -> None:
    mark = Mark(kind="compute", name="<script>&\"'", start_us=0, end_us=5, busy_us=5)
    lane = Lane(name="stream <7>", marks=(mark,))
    picture = StepPicture(
        rank=0,
        kind="decode",
        index=0,
        length_us=10,
        pixel_us=0.1,
        n_ops=1,
        lanes=(lane,),
    )
    svg = step_svg(picture, "s")
    ET.fromstring(svg)
    assert "<script" not in svg
    assert "stream <7" not in svg


def test_the_page_fetches_and_runs_nothing(traced: Traced) -> None:
    page = trace_html([traced])
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page)
    assert "default-src 'none'" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "fit for idle time" in page
    assert page.count("<svg") == 3


def test_a_trace_that_is_not_fit_says_so_and_draws_no_idle_time() -> None:
    found = analyze_traces(load_trace(BROKEN))
    one = Traced(label="broken", result=found)
    page = trace_html([one])
    assert "not fit for idle time" in page
    assert gap_figure(one, 0) is None
    assert budget_figure([one]) is None
    assert "records-dropped" in page


def test_a_run_s_page_can_take_the_parts(traced: Traced) -> None:
    again = msgspec.json.decode(msgspec.json.encode(traced), type=Traced)
    assert again == traced
    ((figure, svg),) = step_figures([again])
    assert figure.title.startswith("concurrency 8.")
    assert svg.startswith("<svg")
    made = budget_figure([again])
    assert made is not None
    assert "<svg" in render(made)


def test_the_command_writes_page_and_steps(tmp_path: Path) -> None:
    page, steps = tmp_path / "page.html", tmp_path / "steps.json.gz"
    done = CliRunner().invoke(
        trace,
        [str(DECODE), "-o", str(page), "--perfetto", str(steps), "--steps", "2",
         "--json", "--no-cache"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert '"n_periods":13' in done.stdout
    assert page.read_text().startswith("<!doctype html>")
    again = CliRunner().invoke(trace, [str(steps), "--json"])
    assert '"n_periods":2' in again.stdout


def test_the_command_does_not_overwrite_a_trace(tmp_path: Path) -> None:
    copy = tmp_path / "t.json.gz"
    copy.write_bytes(BROKEN.read_bytes())
    done = CliRunner().invoke(trace, [str(copy), "-o", str(copy)])
    assert isinstance(done.exception, RecipeError)
    assert copy.read_bytes() == BROKEN.read_bytes()


def test_the_table_names_the_layer_and_the_host() -> None:
    done = CliRunner().invoke(trace, [str(DECODE), "--no-cache"])
    assert "one of 48 layers" in done.output
    assert "host meanwhile" in done.output
