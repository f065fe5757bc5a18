"""Which experiment is run next, what it may take, and when there is none."""

from typing import Any

from msgspec.structs import replace

from stepscope.analysis.records import Analysis
from stepscope.board.experiments.choose import Next, Nothing, next_experiment
from stepscope.board.judge import judge
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Recipe
from stepscope.run.run import Machine, Run
from stepscope.units import NS_PER_S

Bench = Any  # tests/board/conftest.py

RECIPE = """
name = "own"
engine = "embedded"
explain = true

[baseline.flags]
threads = 4

[workload]
input_tokens = 100
output_tokens = 100
concurrency = ["16x2"]

[warm_up]
blocks = 1

[cost]
usd_per_core_hour = 6.0
n_cores = 10
"""


def measured(bench: Bench, text: str = RECIPE, **over: Any) -> tuple[Run, Analysis]:
    """Return a run of four threads that all look busy: work, or spinning?"""
    cpu = {"process_cpu_pct": {"server": 395.0}}
    telemetry = bench.telemetry(**cpu, busiest_thread_cpu_pct={"server": 99.0})
    result = bench.result(
        name="baseline-c16-r0",
        configuration="baseline",
        launch="baseline-l0",
        telemetry=telemetry,
    )
    cell = bench.cell("baseline-c16-r0", configuration="baseline", launch="baseline-l0")
    start = bench.launch(
        name="baseline-l0", configuration="baseline", command=("x", "--threads", "4")
    )
    run = bench.run(
        **{
            "engine": "embedded",
            "gpu": None,
            "n_gpus": 0,
            "machine": Machine(n_cpus=16),
            "recipe_text": text,
            "launches": (start,),
            "cells": (cell,),
            **over,
        }
    )
    return run, Analysis(cells=(result,))


def following(run: Run, analysis: Analysis, text: str = RECIPE) -> Next | Nothing:
    return next_experiment(run, analysis, judge(run, analysis), recipe_of(text))


def recipe_of(text: str) -> Recipe:
    return load_recipe(text, "recipe.toml")


def test_the_change_that_splits_what_is_open_is_run_on_launches_of_its_own(
    bench: Bench,
) -> None:
    found = following(*measured(bench))
    assert isinstance(found, Next)
    assert (found.experiment.change, found.experiment.splits) == (
        "threads",
        ("compute",),
    )
    (launch,) = found.plan.launches
    assert launch.name == "baseline-threads-x0"
    assert launch.configuration.name == "baseline-threads"
    assert launch.configuration.flags["threads"] == 2
    assert launch.experiment == found.experiment
    assert found.usd is not None
    assert abs(found.usd - found.experiment.minutes) < 1e-9  # 60 USD an hour


def test_its_cells_are_the_baselines_own_under_new_names(bench: Bench) -> None:
    found = following(*measured(bench))
    assert isinstance(found, Next)
    own = expand(recipe_of(RECIPE)).launches[0]
    (launch,) = found.plan.launches
    assert [c.workload for c in launch.cells] == [c.workload for c in own.cells]
    assert not {c.name for c in launch.cells} & {c.name for c in own.cells}
    assert {c.launch for c in launch.cells} == {launch.name}


def test_as_many_launches_as_the_recipe_gives_each_configuration(
    bench: Bench,
) -> None:
    text = RECIPE.replace("explain", "n_launches = 3\nexplain")
    found = following(*measured(bench, text), text)
    assert isinstance(found, Next)
    names = [x.name for x in found.plan.launches]
    assert names == [
        "baseline-threads-x0",
        "baseline-threads-x0-1",
        "baseline-threads-x0-2",
    ]


def test_what_was_run_is_not_run_again(bench: Bench) -> None:
    run, analysis = measured(bench)
    found = following(run, analysis)
    assert isinstance(found, Next)
    done = bench.launch(
        name="baseline-threads-x0",
        configuration="baseline-threads",
        ready=False,
        experiment=found.experiment,
    )
    run = replace(run, launches=(*run.launches, done))
    assert isinstance(following(run, analysis), Nothing)


def test_an_experiment_that_was_halted_is_run_again(bench: Bench) -> None:
    run, analysis = measured(bench)
    found = following(run, analysis)
    assert isinstance(found, Next)
    name = "baseline-threads-x0"
    halted = bench.launch(
        name=name, configuration="baseline-threads", experiment=found.experiment
    )
    cell = bench.cell(
        "baseline-threads-c16-r0",
        configuration="baseline-threads",
        launch=name,
        status="interrupted",
        requests=(),
    )
    run = replace(run, launches=(*run.launches, halted), cells=(*run.cells, cell))
    again = following(run, analysis)
    assert isinstance(again, Next)
    assert again.experiment == found.experiment


def test_the_budget_ends_it_and_holds_what_was_spent(bench: Bench) -> None:
    tight = RECIPE.replace("explain = true", "explain = { minutes = 0.001 }")
    found = following(*measured(bench, tight), tight)
    assert isinstance(found, Nothing)
    assert "budget" in found.why
    priced = RECIPE.replace("explain = true", "explain = { usd = 0.001 }")
    assert isinstance(following(*measured(bench, priced), priced), Nothing)
    run, analysis = measured(bench)
    first = following(run, analysis)
    assert isinstance(first, Next)
    spent = bench.launch(
        name="baseline-other-x0",
        configuration="baseline-other",
        experiment=replace(first.experiment, change="graphs"),
        started_at_ns=0,
        stopped_at_ns=29 * 60 * NS_PER_S + 59 * NS_PER_S,
    )
    run = replace(run, launches=(*run.launches, spent))
    assert isinstance(following(run, analysis), Nothing)


def test_nothing_open_that_a_change_decides_is_the_end(bench: Bench) -> None:
    text = RECIPE.replace("threads = 4", "threads = 1")
    run, analysis = measured(bench, text)
    start = replace(run.launches[0], command=("x", "--threads", "1"))
    found = following(replace(run, launches=(start,)), analysis, text)
    assert isinstance(found, Nothing)


VLLM = """
name = "own"
engine = "vllm"
model = "m"
explain = { minutes = 60 }

[workload]
input_tokens = 100
output_tokens = 100
concurrency = [16]
"""


def test_a_gpu_is_traced_first_since_that_decides_most_a_minute(bench: Bench) -> None:
    start = bench.launch(
        name="baseline-l0", configuration="baseline", command=("vllm", "serve", "m")
    )
    run, analysis = measured(
        bench, VLLM, engine="vllm", gpu="NVIDIA H200", n_gpus=1, launches=(start,)
    )
    found = following(run, analysis, VLLM)
    assert isinstance(found, Next)
    (launch,) = found.plan.launches
    assert (launch.name, launch.traced) == ("baseline-trace-x0", True)
    assert launch.configuration.name == "baseline"
    assert found.plan.recipe.tracing is not None
    assert {c.capture for c in launch.cells if c.wanted} == {"traced"}


def after_a_failed_trace(
    bench: Bench, text: str, command: tuple[str, ...]
) -> Next | Nothing:
    start = bench.launch(name="baseline-l0", configuration="baseline", command=command)
    run, analysis = measured(
        bench, text, engine="vllm", gpu="NVIDIA H200", n_gpus=1, launches=(start,)
    )
    cells = (replace(analysis.cells[0], telemetry=None),)
    analysis = replace(analysis, cells=cells)
    first = following(run, analysis, text)
    assert isinstance(first, Next)
    assert first.experiment.change == "trace"
    failed = bench.launch(
        name="baseline-trace-x0",
        configuration="baseline",
        ready=False,
        experiment=first.experiment,
    )
    run = replace(run, launches=(*run.launches, failed))
    return following(run, analysis, text)


def test_eager_beside_graphs_is_run_where_launches_repeat(bench: Bench) -> None:
    text = VLLM.replace("explain", "n_launches = 3\nexplain")
    found = after_a_failed_trace(bench, text, ("vllm", "serve", "m"))
    assert isinstance(found, Next)
    assert (found.experiment.number, found.experiment.change) == (1, "graphs")
    flags = [x.configuration.flags for x in found.plan.launches]
    assert flags == [{"enforce-eager": True}] * 3


def test_eager_beside_graphs_is_not_run_once_since_once_it_acquits_nobody(
    bench: Bench,
) -> None:
    found = after_a_failed_trace(bench, VLLM, ("vllm", "serve", "m"))
    assert isinstance(found, Nothing) or found.experiment.change != "graphs"


def test_an_eager_baseline_is_run_with_graphs_even_once(bench: Bench) -> None:
    found = after_a_failed_trace(bench, VLLM, ("vllm", "serve", "m", "--enforce-eager"))
    assert isinstance(found, Next)
    assert (found.experiment.change, found.experiment.splits) == (
        "graphs",
        ("scheduler", "launch"),
    )
    (launch,) = found.plan.launches
    assert launch.configuration.flags == {"enforce-eager": False}
