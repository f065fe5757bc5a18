"""The time between two tokens as parts that sum to TPOT."""

from functools import cache
from pathlib import Path

import pytest

from stepscope.analysis.across.records import StackPart, TokenStack
from stepscope.importers.open import open_any
from stepscope.report.document import AnalyzeDocument, document
from stepscope.report.stack import token_stack

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
