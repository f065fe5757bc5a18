"""The time between two tokens as parts that sum to TPOT."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from stepscope.analysis.across.records import (
    FloorPoint,
    StackPart,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.across.stack import token_stacks
from stepscope.analysis.records import CellResult
from stepscope.importers.open import open_any
from stepscope.report.document import AnalyzeDocument, document
from stepscope.report.stack import token_stack
from stepscope.run.stepbudget import RankBudget

Make = Callable[..., CellResult]

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@cache
def baseline() -> AnalyzeDocument:
    return document(open_any(SHARED / "h200x1-qwen3moe-baseline" / "import.toml"))


def at(concurrency: int) -> TokenStack:
    return next(s for s in baseline().stacks if s.concurrency == concurrency)


def part(stack: TokenStack, name: str) -> float:
    return next((p.ms for p in stack.parts if p.name.startswith(name)), 0.0)


def test_the_parts_sum_to_tpot_at_every_concurrency() -> None:
    assert [s.concurrency for s in baseline().stacks] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
    ]
    for stack in baseline().stacks:
        assert sum(p.ms for p in stack.parts) == pytest.approx(stack.tpot_ms, rel=1e-9)
        assert all(p.ms > 0 for p in stack.parts)


def test_the_floor_parts_are_the_floor() -> None:
    floors = {p.concurrency: p.floor_ms for p in baseline().floor}
    for stack in baseline().stacks:
        parts = sum(p.ms for p in stack.parts if p.name.startswith("floor"))
        assert parts == pytest.approx(floors[stack.concurrency], rel=1e-9)


def test_idle_time_is_told_apart_where_a_timeline_is_as_long_as_the_step() -> None:
    assert [s.concurrency for s in baseline().stacks if s.traced] == [8, 128]
    # 0.40 ms inside the graph of a step of 9.2 ms (docs/timeline.md).
    assert part(at(8), "idle: inside graph") == pytest.approx(0.40, abs=0.02)
    assert part(at(8), "decode step above") == 0.0
    assert part(at(16), "idle") == 0.0
    assert part(at(16), "decode step above the floor, no timeline") > 3


def test_the_picture_says_every_part() -> None:
    figure = token_stack("baseline", baseline().stacks, 0)
    assert figure is not None
    experts = part(at(8), "floor: experts")
    assert f"floor: experts: {experts:.2f} ms" in figure.alt
    assert "no timeline splits" in figure.note


def test_no_picture_without_a_token_time() -> None:
    other = TokenStack(
        configuration="b", concurrency=1, tpot_ms=1.0, step_ms=1.0,
        step_source="TPOT", floor_ms=None, parts=(StackPart(name="x", ms=1.0),),
        traced=False, cells=("b-c1",),
    )  # fmt: skip
    assert token_stack("a", (other,), 0) is None


def floor_point(floor_ms: float) -> FloorPoint:
    return FloorPoint(
        configuration="base", concurrency=8, seqs_per_rank=8.0, coverage=None,
        bytes_per_rank=1e10, floor_ms=floor_ms, step_ms=12.0, times_floor=2.0,
    )  # fmt: skip


def test_the_floor_of_a_step_is_shared_by_its_tokens(result_of: Make) -> None:
    cell = result_of(tpot_ms=6.0, engine_step_ms=12.0, tokens_per_step_and_sequence=2.0)
    (stack,) = token_stacks([cell], [floor_point(4.0)], [])
    assert stack.step_ms == pytest.approx(6.0)
    assert stack.floor_ms == pytest.approx(2.0)
    assert part(stack, "floor") == pytest.approx(2.0)


def test_what_no_clock_tells_apart_is_never_added_to_idle_time(
    result_of: Make,
) -> None:
    rank = RankBudget(
        rank=0, n_periods=30, step_ms=10.0, compute_ms=9.9, communication_ms=0.0,
        communication_wait_ms=None, memcpy_ms=0.0, idle_ms=0.1,
        idle_by_cause={"inside_graph": 0.1},
    )  # fmt: skip
    traced = TracedStep(
        configuration="base", concurrency=8, launch=None, cell=None, paths=(),
        usable=True, defects=(), step_kind=None, step_source=None,
        traced_step_ms=10.0, untraced_step_ms=10.0, untraced_source=None,
        stretch_pct=0.0, match="same", n_ranks=1, ranks=(rank,),
        straggler_rank=None, straggler_reason=None,
    )  # fmt: skip
    cell = result_of(tpot_ms=10.04, engine_step_ms=10.0)
    (stack,) = token_stacks([cell], [], [traced])
    assert part(stack, "idle") == pytest.approx(0.1)
    assert sum(p.ms for p in stack.parts) == pytest.approx(10.04)


def test_waits_of_preempted_requests_are_not_called_slow_steps(
    result_of: Make,
) -> None:
    cell = result_of(tpot_ms=30.0, engine_step_ms=19.0, preemptions=139)
    (stack,) = token_stacks([cell], [], [])
    assert stack.parts[-1].name.endswith("and waits of preempted requests")
    assert stack.parts[-1].ms == pytest.approx(11.0)


def test_stacks_come_by_configuration_and_rising_concurrency(result_of: Make) -> None:
    asked = [("a", 64), ("b", 8), ("a", 8), ("b", 1)]
    cells = [
        result_of(configuration=c, concurrency=n, tpot_ms=5.0, name=f"{c}-{n}")
        for c, n in asked
    ]
    found = [(s.configuration, s.concurrency) for s in token_stacks(cells, [], [])]
    assert found == [("a", 8), ("a", 64), ("b", 1), ("b", 8)]


def test_load_that_was_driven_for_a_timeline_is_split_where_nothing_else_was(
    result_of: Make,
) -> None:
    driven = result_of(name="t", tpot_ms=9.0, warm_up=True, capture="untraced")
    (stack,) = token_stacks([driven], [], [])
    assert stack.cells == ("t",)
    (stack,) = token_stacks([driven, result_of(tpot_ms=8.0)], [], [])
    assert stack.cells == ("base-c8-r0",)
