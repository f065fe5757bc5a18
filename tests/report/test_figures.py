"""Figures: what is drawn, and what is safe to put inside a page."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from stepscope.analysis.across.records import StackPart
from stepscope.report.downsample import bins
from stepscope.report.figure import COLOURS, Figure
from stepscope.report.stack import token_stack
from stepscope.report.steps import step_time
from stepscope.report.svg import inline, png, standalone
from stepscope.report.sweep import sweep
from stepscope.report.timeline import telemetry

Small = Any  # tests/report/conftest.py; a conftest can not be imported
FIGURE = Figure(name="f", title="T <1>", alt="A & B", spec={})
HEAD = '<svg xmlns="http://www.w3.org/2000/svg" width="100" height="50">'


def test_scripts_links_and_handlers_do_not_survive() -> None:
    svg = (
        f"{HEAD}<script>x</script><a href='http://x'><path d='M0,0'/></a>"
        "<foreignObject><b/></foreignObject><image href='http://x'/>"
        "<path d='M1,1' onclick='x' style='fill:url(http://x)'/></svg>"
    )
    clean = inline(svg, FIGURE)
    for word in ("script", "href", "foreignObject", "image", "onclick", "http://x"):
        assert word not in clean
    assert 'd="M1,1"' in clean


def test_ids_and_their_references_get_the_figures_name() -> None:
    svg = (
        f"{HEAD}<defs><clipPath id='clip0'><rect width='1' height='1'/></clipPath>"
        "</defs><path clip-path='url(#clip0)' d='M1,1'/></svg>"
    )
    clean = inline(svg, FIGURE)
    assert 'id="f-clip0"' in clean
    assert "url(#f-clip0)" in clean
    assert "clip0" not in clean.replace("f-clip0", "")


def test_a_mark_says_its_label_on_hovering_and_is_escaped() -> None:
    svg = f"{HEAD}<path d='M1,1' aria-label='a &lt;b&gt; 5 ms'/></svg>"
    assert "<title>a &lt;b&gt; 5 ms</title>" in inline(svg, FIGURE)


def test_a_known_colour_becomes_a_class_that_the_page_can_change() -> None:
    svg = f"{HEAD}<path d='M1,1' stroke='{COLOURS['s0']}' fill='#123456'/></svg>"
    clean = inline(svg, FIGURE)
    assert 'class="stroke-s0"' in clean
    assert "fill-" not in clean


def test_title_and_description_are_escaped() -> None:
    clean = inline(f"{HEAD}</svg>", FIGURE)
    assert "T &lt;1&gt;" in clean
    assert "A &amp; B" in clean


def test_a_figure_is_also_a_file(small: Small) -> None:
    figure = sweep(small.analysis(), "tpot_ms")
    assert figure is not None
    assert png(figure).startswith(b"\x89PNG")
    assert standalone(figure).startswith("<svg")


def test_the_sweep_draws_each_cell_once_and_joins_valid_means(small: Small) -> None:
    figure = sweep(small.analysis(), "tpot_ms")
    assert figure is not None
    layers: Any = figure.spec["layer"]
    line, bars, points = (layer["data"]["values"] for layer in layers)
    assert [row["c"] for row in points] == [1, 8, 64, 64, 64, 128]
    assert [row["void"] for row in points] == [False] * 5 + [True]
    assert [row["c"] for row in line] == [1, 8, 64]
    assert line[2]["v"] == pytest.approx(18.03)
    assert [(row["v"], row["v2"]) for row in bars] == [(17.6, 18.4)]


def test_the_sweep_does_not_average_points_of_several_shapes(small: Small) -> None:
    analysis = small.analysis()
    one = analysis.groups[1]
    partial = replace(one, cells=("partial",), values=(9.0,), mean=9.0, n_prompts=25)
    whole = replace(one, n_prompts=32)
    for groups in ((partial, whole), (whole, partial)):
        figure = sweep(replace(analysis, groups=groups), "tpot_ms")
        assert figure is not None
        layers: Any = figure.spec["layer"]
        assert layers[0]["data"]["values"] == [{"c": 8, "v": 6.0, "k": "baseline"}]


def test_the_sweep_line_leaves_out_a_repeat_that_no_mean_holds(small: Small) -> None:
    analysis = small.analysis()
    group = replace(
        analysis.groups[2], cells=("baseline-c64-r1",), values=(18.2,), mean=18.2
    )
    figure = sweep(replace(analysis, groups=(group,)), "tpot_ms")
    assert figure is not None
    layers: Any = figure.spec["layer"]
    assert [row["v"] for row in layers[0]["data"]["values"]] == [18.2]


def test_the_axis_of_the_floor_names_every_size_that_is_drawn(small: Small) -> None:
    analysis = small.analysis()
    (model,) = analysis.step_model
    far = replace(analysis.floor[0], seqs_per_rank=256.0)
    figure = step_time("baseline", model, (*analysis.floor, far), 0)
    assert figure is not None
    encoding: Any = figure.spec["encoding"]
    assert 256 in encoding["x"]["axis"]["values"]


def test_a_figure_without_a_floor_does_not_speak_of_one(small: Small) -> None:
    analysis = small.analysis()
    (model,) = analysis.step_model
    bare = step_time("baseline", model, (), 0)
    assert bare is not None
    assert "floor" not in bare.note
    stacks = [replace(s, floor_ms=None, traced=False) for s in analysis.stacks]
    stack = token_stack("baseline", stacks, 0)
    assert stack is not None
    assert "floor" not in stack.note
    whole = token_stack("baseline", analysis.stacks, 0)
    assert whole is not None
    assert "floor" in whole.note


def test_nothing_measured_draws_nothing(small: Small) -> None:
    assert sweep(small.analysis(cells=()), "tpot_ms") is None


def test_no_two_parts_of_a_token_look_alike(small: Small) -> None:
    (stack, *_) = small.analysis().stacks
    names = ("device busy", "waiting for other ranks", "idle: inside graph",
             "idle: host not launching yet", "idle: graph launch call",
             "idle: launch call", "idle: after launch returned",
             "steps slower than a decode step")  # fmt: skip
    parts = tuple(StackPart(name=name, ms=1.0) for name in names)
    figure = token_stack("baseline", [replace(stack, parts=parts)], 0)
    assert figure is not None
    (scale,) = scales(figure.spec)
    assert len(set(scale["range"])) == len(scale["domain"]) == len(names)


def scales(spec: object) -> list[dict[str, list[str]]]:
    """Return the colour scales of a picture, wherever they stand."""
    if isinstance(spec, dict):
        own = spec.get("scale")
        mine = [own] if isinstance(own, dict) and "domain" in own else []
        return mine + [s for value in spec.values() for s in scales(value)]
    if isinstance(spec, list):
        return [s for value in spec for s in scales(value)]
    return []


def test_the_floor_of_another_configuration_is_not_drawn(small: Small) -> None:
    analysis = small.analysis()
    (model,) = analysis.step_model
    mine = step_time("baseline", model, analysis.floor, 0)
    assert mine is not None
    layers: Any = mine.spec["layer"]
    assert [len(layer["data"]["values"]) for layer in layers] == [63, 1, 1, 3]


def test_without_a_model_step_and_floor_are_still_drawn(small: Small) -> None:
    analysis = small.analysis()
    figure = step_time("baseline", None, analysis.floor, 0)
    assert figure is not None
    layers: Any = figure.spec["layer"]
    assert [len(layer["data"]["values"]) for layer in layers] == [0, 1, 1, 1]
    assert step_time("other", None, analysis.floor, 0) is None


def test_the_window_of_four_waves_starts_with_the_second(small: Small) -> None:
    run = small.run()
    cell = run.cells[1]
    figure = telemetry(run, cell, 1)
    assert figure is not None
    panels: Any = figure.spec["vconcat"]
    assert [panel["title"] for panel in panels] == [
        "utilization, counters (%)", "power (W)", "SM clock (MHz)", "GPU memory (GiB)",
        "CPU (% of a core)", "host CPU (%)", "host memory (GiB)",
    ]  # fmt: skip
    (window,) = panels[0]["layer"][0]["data"]["values"]
    wave_s = (3 * 6.0 + 99 * 6.0) / 1000
    assert window["t"] == pytest.approx(wave_s)
    assert window["t2"] == pytest.approx(3 * wave_s)


def test_cpu_of_a_role_is_told_in_percent_of_a_core(small: Small) -> None:
    run = small.run()
    figure = telemetry(run, run.cells[2], 2)
    assert figure is not None
    assert "api-server mean 50.0" in figure.alt
    assert "engine-core mean 100" in figure.alt


def test_a_cell_without_samples_has_no_figure(small: Small) -> None:
    run = small.run(samples=type(small.run().samples)())
    assert telemetry(run, run.cells[0], 0) is None


finite = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(finite, finite), max_size=200), st.integers(1, 50))
def test_bins_keep_the_extremes_and_the_order(
    points: list[tuple[float, float]], n: int
) -> None:
    out = bins(points, n)
    assert len(out) <= n
    if points:
        assert min(b.low for b in out) == min(v for _, v in points)
        assert max(b.high for b in out) == max(v for _, v in points)
    assert [b.at_s for b in out] == sorted(b.at_s for b in out)
    for b in out:
        slack = 1e-9 * max(abs(b.low), abs(b.high), 1)
        assert b.low - slack <= b.mean <= b.high + slack


def test_a_single_spike_survives_downsampling() -> None:
    values = np.ones(10_000)
    values[4321] = 99.0
    out = bins(list(zip(range(10_000), values, strict=True)), 100)
    assert len(out) == 100
    assert max(b.high for b in out) == 99.0


def test_what_is_no_number_is_left_out() -> None:
    assert bins([(0.0, float("nan")), (1.0, float("inf"))], 10) == ()


def test_a_very_wide_interval_does_not_flatten_the_rest(small: Small) -> None:
    analysis = small.analysis()
    group = analysis.groups[2]
    wide = small.analysis(groups=(replace(group, ci95=(0.01, 9000.0)),))
    figure = sweep(wide, "tpot_ms")
    assert figure is not None
    spec: Any = figure.spec
    low, high = spec["encoding"]["y"]["scale"]["domain"]
    assert 1.0 < low < 4.0
    assert 30.0 < high < 90.0


@pytest.mark.parametrize(("low", "high"), [(241.0, 410.0), (1.0, 1e5), (10.0, 10.5)])
def test_the_vertical_axis_always_has_numbers(
    small: Small, low: float, high: float
) -> None:
    cells = [
        replace(cell, output_tokens_per_s=rate)
        for cell, rate in zip(small.analysis().cells, (low, high), strict=False)
    ]
    figure = sweep(small.analysis(cells=tuple(cells)), "output_tokens_per_s")
    assert figure is not None
    spec: Any = figure.spec
    ticks = spec["encoding"]["y"]["axis"]["values"]
    first, last = spec["encoding"]["y"]["scale"]["domain"]
    assert len(ticks) >= 2
    assert first <= min(ticks) * 1.01
    assert max(ticks) <= last * 1.01
