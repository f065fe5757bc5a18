"""What is recommended for real runs, and never twice."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import pytest

from stepscope.analysis.analyze import analyze
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis
from stepscope.board.judge import judge
from stepscope.board.planning.choose import Budget
from stepscope.board.planning.plan import plan
from stepscope.board.planning.records import Candidate, PlanDocument
from stepscope.board.records import Board
from stepscope.errors import RefusedError
from stepscope.importers.load import load_foreign
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Cost
from stepscope.run.run import Run

SHARED = Path(__file__).parents[3].parent / "shared"


@dataclass(frozen=True)
class Judged:
    run: Run
    analysis: Analysis
    board: Board


@cache
def judged(name: str) -> Judged:
    run = load_foreign(SHARED / "data" / name / "import.toml")
    analysis = analyze(run)
    return Judged(run, analysis, judge(run, analysis))


@pytest.fixture(scope="session")
def sweep() -> Judged:
    """The real sweep of one H200, taken by another client."""
    return judged("h200x1-qwen3moe-baseline")


@pytest.fixture(scope="session")
def detailed() -> Judged:
    """The same server with iteration lines and GPM counters."""
    return judged("h200x1-qwen3moe-iteration-details")


FREE = Budget(None, None)
#: A run of the embedded engine as stepscope would keep its recipe.
RECIPE = """
name = "own"
engine = "vllm"
model = "m"
capture = ["iteration-details"]

[baseline.flags]
max-model-len = 4096

[[patch]]
name = "eager"
flags = { enforce-eager = true }

[workload]
input_tokens = 256
output_tokens = 256
concurrency = [1, "64x3"]
n_prompts = 64

[cost]
usd_per_gpu_hour = 6.0
n_gpus = 1
"""


def planned(judged: Judged, budget: Budget = FREE) -> PlanDocument:
    return plan(judged.run, judged.analysis, judged.board, budget)


def by_id(document: PlanDocument, kind: str) -> list[Candidate]:
    return [c for c in document.candidates if c.id == kind]


def own(judged: Judged, text: str = RECIPE) -> Judged:
    """The same evidence as if stepscope had taken it from this recipe."""
    run = msgspec.structs.replace(judged.run, recipe_text=text)
    return Judged(run, judged.analysis, judged.board)


def test_the_recipe_is_one_that_loads_and_holds_what_was_chosen(sweep: Judged) -> None:
    document = planned(sweep)
    assert document.recipe is not None
    recipe = load_recipe(document.recipe, "next")
    assert recipe.engine == "vllm"
    assert recipe.model == "/models/qwen3moe"
    assert recipe.executable is not None
    assert recipe.executable[0] == "/opt/venv/bin/python3"
    assert recipe.configurations[0].flags["max-model-len"] == 4096
    assert recipe.configurations[0].flags["no-enable-prefix-caching"] is True
    assert "iteration-details" in recipe.capture
    chosen = {c.id for c in document.candidates if c.in_recipe}
    assert {"own-run", "iteration-details", "repeats", "warm-up"} <= chosen
    assert dict(recipe.sweep.concurrency)[1] == 3
    assert any("model =" in text for text in document.fill_in)


def test_minutes_are_those_of_the_recipes_own_plan_at_the_runs_own_pace(
    sweep: Judged,
) -> None:
    document = planned(sweep, Budget(6, None))
    assert document.recipe is not None
    assert document.minutes is not None
    assert document.minutes <= 6
    assert document.most_minutes is not None
    assert document.minutes < document.most_minutes
    laid_out = expand(load_recipe(document.recipe, "next"))
    # 58 s of boot as logged, and each wave as its own cell took it.
    wave_s = {
        c.concurrency: c.duration_s / c.waves
        for c in sweep.analysis.cells
        if c.name in ("c1_0", "c2_0", "c4_0", "c8_0", "c16_0", "c128_0", "c512_0")
        and c.duration_s
        and c.waves
    }
    sure = 58.0 * len(laid_out.launches) + sum(
        cell.workload.n_prompts / (cell.workload.concurrency or 1)
        * wave_s.get(cell.workload.concurrency, 0.0)
        for launch in laid_out.launches
        for cell in launch.cells
    )  # fmt: skip
    assert sure / 60 < document.minutes < 2 * sure / 60
    assert "58 s" in document.pace[0]


def test_a_timeline_is_taken_where_it_is_open_and_never_where_one_is(
    sweep: Judged,
) -> None:
    document = planned(sweep)
    (bought,) = by_id(document, "trace")
    # The run holds those of 8 and 128, and the board has read them.
    assert document.recipe is not None
    tracing = load_recipe(document.recipe, "next").tracing
    assert tracing is not None
    assert {1, 512} <= set(tracing.concurrency)
    assert {8, 128}.isdisjoint(tracing.concurrency)
    asked = ("launch", "graph-launch", "kernel-gaps", "scheduler")
    open_ = {
        (e.hypothesis, e.scope.concurrency_from)
        for e in sweep.board.entries
        if e.hypothesis in asked and e.status in ("standing", "untestable")
    }
    decided = {
        (s.what, s.concurrency_from) for s in bought.settles if s.how == "decides"
    }
    assert decided == open_
    bare = msgspec.structs.replace(sweep.run, traces=())
    board = judge(bare, sweep.analysis)
    (fresh,) = by_id(planned(Judged(bare, sweep.analysis, board)), "trace")
    assert fresh.title.endswith("at concurrency 1, 512")


def test_nothing_is_settled_twice(sweep: Judged) -> None:
    document = planned(sweep, Budget(8, None))
    chosen = [c for c in document.candidates if c.in_recipe]
    decided = [
        (s.what, s.configuration, s.concurrency_from)
        for c in chosen
        for s in c.settles
        if s.how == "decides"
    ]
    assert len(decided) == len(set(decided))
    left = {(s.what, s.configuration, s.concurrency_from) for s in document.left_open}
    assert not left & set(decided)


def test_what_was_done_is_not_asked_for_again(sweep: Judged, detailed: Judged) -> None:
    assert by_id(planned(sweep), "iteration-details")
    again = planned(detailed)
    assert not by_id(again, "iteration-details")
    (sampled,) = by_id(again, "own-run")
    assert {"bandwidth", "compute"}.isdisjoint(s.what for s in sampled.settles)
    assert again.recipe is not None
    # What it logged, the next run logs too.
    flags = load_recipe(again.recipe, "next").configurations[0].flags
    assert flags["enable-logging-iteration-details"] is True
    assert not by_id(planned(own(sweep)), "own-run")


def test_a_budget_is_kept_and_a_smaller_one_buys_a_part(sweep: Judged) -> None:
    chosen = {}
    for minutes in (1.5, 4.0, 8.0, 20.0):
        document = planned(sweep, Budget(minutes, None))
        assert document.minutes is None or document.minutes <= minutes
        chosen[minutes] = sum(c.in_recipe for c in document.candidates)
    assert chosen[1.5] <= chosen[4.0] <= chosen[8.0] <= chosen[20.0]
    assert chosen[1.5] < chosen[20.0]


def test_no_budget_no_recipe_and_the_document_says_so(sweep: Judged) -> None:
    document = planned(sweep, Budget(0.1, None))
    assert document.recipe is None
    assert document.minutes is None
    assert [f.code for f in document.findings] == ["no-next-run"]
    assert not any(c.in_recipe for c in document.candidates)


def test_the_same_run_gets_the_same_plan(sweep: Judged) -> None:
    assert planned(sweep, Budget(7, None)) == planned(sweep, Budget(7, None))


def test_our_own_recipe_is_kept_but_for_what_is_measured(sweep: Judged) -> None:
    document = planned(own(sweep), Budget(None, 0.5))
    assert document.recipe is not None
    recipe = load_recipe(document.recipe, "next")
    assert recipe.name == "own-next"
    assert recipe.cost == Cost(usd_per_gpu_hour=6.0, n_gpus=1)
    assert recipe.sweep.n_prompts is None
    assert recipe.sweep.waves >= 2
    assert "iteration-details" in recipe.capture
    # The patch had nothing open: its launches would be bought for nothing.
    assert "eager" not in [c.name for c in recipe.configurations]
    assert document.usd == pytest.approx(6 * (document.minutes or 0) / 60)
    assert document.usd is not None
    assert document.usd <= 0.5
    assert document.fill_in == ()


def test_money_needs_prices(sweep: Judged) -> None:
    with pytest.raises(RefusedError, match="no prices"):
        planned(sweep, Budget(None, 5.0))


def test_what_this_host_can_not_do_is_named_and_not_ordered(detailed: Judged) -> None:
    document = planned(detailed)
    (sweep_of_cpus,) = by_id(document, "cpu-sweep")
    assert not sweep_of_cpus.in_recipe
    assert sweep_of_cpus.minutes is None
    assert sweep_of_cpus.not_in_recipe == (
        "the run does not say how many processors the machine has"
    )


def test_a_run_without_a_measured_cell_is_refused(sweep: Judged) -> None:
    empty = msgspec.structs.replace(sweep.analysis, cells=())
    with pytest.raises(RefusedError, match="no closed-loop cell"):
        planned(Judged(sweep.run, empty, sweep.board))


def test_what_neither_says_tokens_nor_its_command_gets_no_invented_recipe(
    sweep: Judged,
) -> None:
    cells = tuple(
        msgspec.structs.replace(
            c, workload=msgspec.structs.replace(c.workload, input_tokens=None)
        )
        for c in sweep.run.cells
    )
    silent = msgspec.structs.replace(sweep.run, cells=cells)
    document = planned(Judged(silent, sweep.analysis, sweep.board))
    assert "input_tokens = 256 is the mean that was counted" in document.fill_in
    uncounted = msgspec.structs.replace(
        sweep.analysis,
        cells=tuple(
            msgspec.structs.replace(c, input_tokens=None) for c in sweep.analysis.cells
        ),
    )
    with pytest.raises(RefusedError, match="how many tokens"):
        planned(Judged(silent, uncounted, sweep.board))
    mute = msgspec.structs.replace(
        sweep.run,
        model=None,
        launches=tuple(
            msgspec.structs.replace(x, command=()) for x in sweep.run.launches
        ),
    )
    document = planned(Judged(mute, sweep.analysis, sweep.board))
    assert document.recipe is not None
    recipe = load_recipe(document.recipe, "next")
    assert recipe.engine == "url"
    assert recipe.model == "FILL-IN"
    (trace,) = by_id(document, "trace")
    assert not trace.in_recipe


def test_pages_say_what_each_settles(sweep: Judged) -> None:
    for candidate in planned(sweep).candidates:
        assert candidate.settles
        assert candidate.reason
        assert (candidate.not_in_recipe is None) == candidate.in_recipe


def test_two_sizes_ask_for_more_so_that_there_is_a_step_model(sweep: Judged) -> None:
    path = Path(__file__).parents[2] / "data" / "imports" / "small" / "import.toml"
    run = load_foreign(path)
    analysis = analyze(run)
    document = planned(Judged(run, analysis, judge(run, analysis)))
    (sizes,) = by_id(document, "sizes")
    assert [s.what for s in sizes.settles] == [
        "a step model of baseline (too-few-sizes)"
    ]
    assert document.recipe is not None
    recipe = load_recipe(document.recipe, "next")
    assert len(recipe.sweep.concurrency) >= 4


def test_sizes_at_which_requests_would_only_wait_are_not_offered() -> None:
    path = Path(__file__).parents[2] / "data" / "imports" / "small" / "import.toml"
    run = load_foreign(path)
    analysis = analyze(run)
    largest = max(c.concurrency or 0 for c in analysis.cells)
    held = [
        msgspec.structs.replace(
            c, mean_in_flight=float(largest), sequences_per_step=largest / 2
        )
        if c.concurrency == largest
        else c
        for c in analysis.cells
    ]
    analysis = msgspec.structs.replace(analysis, cells=tuple(held))
    document = planned(Judged(run, analysis, judge(run, analysis)))
    asked = [
        int(n)
        for offer in by_id(document, "sizes")
        for n in re.findall(r"\d+", offer.title)
    ]
    assert all(n <= largest / 2 for n in asked)


def compared(judged: Judged, runs_needed: int | None) -> PlanDocument:
    """A patch beside the baseline at 64, told apart only by so many runs."""
    one = Comparison(
        a="baseline", b="eager", concurrency=64, metric="output_tokens_per_s",
        delta_pct=-3.0, ci95_pct=None, verdict="undetermined", runs_needed=runs_needed,
    )  # fmt: skip
    twin = [
        msgspec.structs.replace(c, name=f"eager-{c.name}", configuration="eager")
        for c in judged.analysis.cells
        if c.name.startswith("c64")
    ]
    analysis = msgspec.structs.replace(
        judged.analysis, comparisons=(one,), cells=(*judged.analysis.cells, *twin)
    )
    board = judge(judged.run, analysis)
    return planned(own(Judged(judged.run, analysis, board)))


def test_an_undetermined_row_gets_the_runs_that_would_settle_it(sweep: Judged) -> None:
    (starts,) = by_id(compared(sweep, 7), "launches")
    assert "7 starts of each, A B B A, 1 run in each, at concurrency 64" in (
        starts.title
    )
    assert [(s.how, s.kind) for s in starts.settles] == [("decides", "claim")]
    document = compared(sweep, 7)
    assert document.recipe is not None
    recipe = load_recipe(document.recipe, "next")
    assert recipe.n_launches == 7
    assert [c.name for c in recipe.configurations][:2] == ["baseline", "eager"]
    assert dict(recipe.sweep.concurrency)[64] >= 1


def test_a_difference_that_needs_hundreds_of_runs_is_not_promised(
    sweep: Judged,
) -> None:
    (starts,) = by_id(compared(sweep, 300), "launches")
    assert [s.how for s in starts.settles] == ["bears-on"]


def test_what_is_left_out_says_whether_for_money_or_for_being_settled(
    sweep: Judged,
) -> None:
    tight = {c.not_in_recipe for c in planned(sweep, Budget(0.1, None)).candidates}
    assert "over the budget" in tight
    assert "what was chosen settles it" not in tight
    (eager,) = by_id(planned(sweep), "eager")
    assert eager.not_in_recipe == "what was chosen settles it"


def test_what_was_repeated_three_times_is_not_repeated_for_its_own_sake(
    sweep: Judged,
) -> None:
    (before,) = [c for c in by_id(planned(sweep), "repeats") if c.title.endswith(" 1")]
    assert before.title == "3 repeats at concurrency 1"
    one = next(c for c in sweep.analysis.cells if c.name == "c1_0")
    again = [msgspec.structs.replace(one, name=f"c1_{i}", repeat=i) for i in (1, 2)]
    analysis = msgspec.structs.replace(
        sweep.analysis, cells=(*sweep.analysis.cells, *again)
    )
    after = planned(Judged(sweep.run, analysis, sweep.board))
    assert not [c for c in by_id(after, "repeats") if c.title.endswith(" 1")]
