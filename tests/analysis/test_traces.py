"""A traced step counts only beside the same step untraced."""

from pathlib import Path
from typing import Any

import pytest

from stepscope.analysis.across.records import TracedStep
from stepscope.analysis.across.traces import decode_step_ms, traced_steps
from stepscope.analysis.analyze import analyze
from stepscope.analysis.records import CellResult, Stats
from stepscope.importers.load import load_foreign
from stepscope.importers.timelines import with_timelines
from stepscope.recipe.records import Workload
from stepscope.run.run import Cell, Launch, Run, Timeline
from stepscope.run.stepbudget import RankBudget, StepBudget

SHARED = Path(__file__).parents[2].parent / "shared"
BASELINE = SHARED / "data/h200x1-qwen3moe-baseline/import.toml"
NONE = Stats(mean=None, median=None, p90=None, p99=None, max=None)


def cell(**over: Any) -> CellResult:
    fields: dict[str, Any] = dict.fromkeys(CellResult.__struct_fields__)
    fields |= {
        "name": "a-c8-r0",
        "configuration": "a",
        "launch": "a-l0",
        "session": "s0",
        "concurrency": 8,
        "repeat": 0,
        "warm_up": False,
        "valid": True,
        "void_reasons": (),
        "status": "done",
        "n_requests": 16,
        "n_failed": 0,
        "failure_kinds": {},
        "ttft_ms": NONE,
        "e2el_ms": NONE,
        "itl_ms": NONE,
        "tpot_ms": Stats(mean=10.0, median=10.0, p90=None, p99=None, max=None),
    }
    return CellResult(**{**fields, **over})


def budget(step_ms: float, **over: Any) -> StepBudget:
    rank = RankBudget(
        rank=0,
        n_periods=30,
        step_ms=step_ms,
        compute_ms=0.75 * step_ms,
        communication_ms=0.0,
        communication_wait_ms=0.0,
        memcpy_ms=0.0,
        idle_ms=0.25 * step_ms,
    )
    fields: dict[str, Any] = {
        "paths": ("t.json",),
        "launch": "a-trace-l0",
        "cell": "a-c8-trace",
        "concurrency": 8,
        "usable": True,
        "defects": (),
        "step_kind": "decode",
        "step_source": "graph-launches",
        "ranks": (rank,),
        "n_ranks": 1,
    }
    return StepBudget(**{**fields, **over})


def read(
    found: StepBudget, *cells: CellResult, wrapper: tuple[str, ...] = ()
) -> tuple[TracedStep, list[str]]:
    run = Run(
        id="r",
        engine="vllm",
        timeline=Timeline(kind="monotonic"),
        launches=(
            Launch(name="a-l0", configuration="a"),
            Launch(name="a-trace-l0", configuration="a", wrapper=wrapper),
        ),
        cells=(
            Cell(
                name="a-c8-trace",
                configuration="a",
                launch="a-trace-l0",
                workload=Workload(concurrency=8, n_prompts=16),
            ),
        ),
        step_budgets=(found,),
    )
    (step,), findings = traced_steps(run, cells)
    return step, [f.code for f in findings]


@pytest.mark.parametrize(
    ("traced_ms", "match", "code"),
    [
        (11.4, "same", "trace-agrees"),
        (8.6, "same", "trace-agrees"),
        (11.6, "stretched", "trace-stretches-step"),
        (8.4, "other-steps", "trace-of-other-steps"),
    ],
)
def test_fifteen_percent_is_the_border(traced_ms: float, match: str, code: str) -> None:
    step, codes = read(budget(traced_ms), cell())
    assert step.match == match
    assert codes == [code]
    assert step.stretch_pct == pytest.approx(100 * (traced_ms / 10 - 1))


def before_the_profiler() -> CellResult:
    return cell(
        name="a-c8-untraced",
        launch="a-trace-l0",
        warm_up=True,
        capture="untraced",
        tpot_ms=Stats(mean=11.5, median=11.5, p90=None, p99=None, max=None),
    )


def test_the_load_before_the_profiler_is_preferred_to_other_launches() -> None:
    own = before_the_profiler()
    step, _ = read(budget(12.0), cell(), own)
    assert (step.untraced_step_ms, step.match) == (11.5, "same")
    assert step.untraced_source == "TPOT of a-c8-untraced"


def test_a_load_on_a_server_that_is_under_nsys_is_not_untraced() -> None:
    own = before_the_profiler()
    nsys = ("nsys", "launch")
    step, _ = read(budget(12.0), cell(), own, wrapper=nsys)
    assert (step.untraced_step_ms, step.match) == (10.0, "stretched")
    step, codes = read(budget(12.0), own, wrapper=nsys)
    assert (step.match, codes) == ("unknown", ["trace-unchecked"])


@pytest.mark.parametrize(
    "other",
    [
        cell(concurrency=16),
        cell(request_rate=2.0),
        cell(configuration="b"),
        cell(valid=False),
        cell(warm_up=True),
        cell(warm_up=True, capture="traced", launch="a-trace-l0"),
    ],
)
def test_nothing_else_is_a_peer(other: CellResult) -> None:
    step, codes = read(budget(10.0), other)
    assert (step.match, codes) == ("unknown", ["trace-unchecked"])


def test_a_timeline_without_steps_is_unusable() -> None:
    found = budget(10.0, usable=False, ranks=(), defects=("no-device-records",))
    step, codes = read(found, cell())
    assert not step.usable
    assert codes == ["trace-unusable"]


@pytest.mark.parametrize(
    ("defect", "usable"), [("stitched-timestamps", False), ("stream-overlap", True)]
)
def test_idle_time_that_is_only_the_least_is_not_used(
    defect: str, usable: bool
) -> None:
    step, _ = read(budget(10.0, defects=(defect,)), cell())
    assert step.usable is usable


def test_concurrency_is_found_by_the_cell_where_the_timeline_has_none() -> None:
    step, _ = read(budget(10.0, concurrency=None), cell())
    assert (step.concurrency, step.match) == (8, "same")


def test_a_decode_step_is_the_period_then_the_gap_then_tpot() -> None:
    gap = Stats(mean=9.9, median=9.0, p90=None, p99=None, max=None)
    bare = cell(itl_ms=gap, chunks_per_token=1.0)
    assert decode_step_ms(bare) == (9.0, "median gap")
    assert decode_step_ms(cell(itl_ms=gap, chunks_per_token=0.9)) == (10.0, "TPOT")
    assert decode_step_ms(cell(server_tpot_ms=9.5)) == (9.5, "TPOT")
    several = cell(itl_ms=gap, chunks_per_token=1.0, tokens_per_step_and_sequence=2.0)
    assert decode_step_ms(several) == (20.0, "TPOT")
    assert decode_step_ms(cell(engine_step_ms=8.0, itl_ms=gap)) == (8.0, "engine step")


def test_the_real_timelines_are_the_steps_that_requests_saw(tmp_path: Path) -> None:
    analysis = analyze(with_timelines(load_foreign(BASELINE), tmp_path))
    found = [(s.concurrency, s.match, s.untraced_source) for s in analysis.traced]
    assert found == [
        (8, "same", "median gap of c8_0"),
        (128, "same", "median gap of c128_0"),
    ]
    (told,) = [
        f.message for f in analysis.findings if "concurrency 8 take" in f.message
    ]
    assert "idles 5.01 % of a step (ms: inside_graph 0.399, after_launch" in told
    stretches = [round(s.stretch_pct or 0.0, 1) for s in analysis.traced]
    assert stretches == [1.1, 0.1]
