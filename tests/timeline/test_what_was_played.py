"""Whatever is played beside decode steps, they have what plain counting gives."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.timeline.solo import Solo

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Trace
from stepscope.timeline.records import Rank

_LAYERS = 6
_TALK = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what follows its graph, and whether the host stalls after it.

    ``side`` are collectives on a stream of their own: after the graph began, and how
    long, microseconds.
    """

    sampled: int
    prompt: bool
    stall: bool
    side: tuple[tuple[int, int], ...]


STEP = st.builds(
    Step,
    sampled=st.integers(1, 40),
    prompt=st.sampled_from([False, False, True]),
    stall=st.sampled_from([False] * 9 + [True]),
    side=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 90)), max_size=3
    ).map(tuple),
)  # fmt: skip


def played(steps: list[Step]) -> Trace:
    solo = Solo()
    for step in steps:
        asides = [solo.call("cudaLaunchKernel", 5.0) for _ in step.side]
        launch = solo.graph(_LAYERS)
        begun = next(op[0] for op in solo.ops if op[3] == launch)
        for (after, lasted), own in zip(step.side, asides, strict=True):
            solo.op(_TALK, begun + 1 + after, float(lasted), own, 30)
        solo.eager(step.sampled)
        if step.prompt:
            solo.eager(130, 9.0, "prompt")
        solo.end_step(200.0 + 90_000.0 * step.stall)
    return solo.trace()


def covered(spans: _Spans, lo: int, hi: int) -> int:
    """Return how much of [lo, hi) any span covers."""
    total, reach = 0, lo
    for a, b in sorted(spans):
        total += max(min(b, hi) - max(a, reach), 0)
        reach = max(reach, min(b, hi))
    return total


def counted(trace: Trace, usual: list[bool]) -> list[float]:
    """Return period, computation and communication of the usual steps, mean in ms."""
    ops = trace.ops
    talk = [trace.names[i] == _TALK for i in ops.name]
    spans = list(zip(ops.start_ns.tolist(), ops.end_ns.tolist(), strict=True))
    work = [s for s, t in zip(spans, talk, strict=True) if not t]
    launches = trace.calls.is_graph.nonzero()[0] + 1
    first = [int(ops.start_ns[ops.correlation == i].min()) for i in launches]
    rows = [
        (hi - lo, covered(work, lo, hi), covered(spans, lo, hi))
        for lo, hi, mine in zip(first, first[1:], usual, strict=False)
        if mine
    ]
    period, compute, busy = np.mean(np.array(rows) / 1e6, axis=0).tolist()
    return [period, compute, busy - compute, period - busy]


def figures(rank: Rank) -> list[float]:
    assert rank.step_ms is not None
    budget = rank.budget_ms
    assert budget is not None
    assert budget.idle is not None
    return [rank.step_ms.mean, budget.compute, budget.communication, budget.idle]


@settings(max_examples=30)
@given(st.lists(STEP, min_size=6, max_size=14))
def test_decode_steps_have_the_budget_that_plain_counting_gives(
    steps: list[Step],
) -> None:
    # Some steps must show what is usual, and stalls be the exception.
    steps = [replace(s, prompt=False, stall=False) for s in steps[:2]] + steps
    whole = [s for s in steps[:-1] if not s.prompt]
    n_stalled = sum(s.stall for s in whole)
    if n_stalled > max(1, len(whole) // 4):
        steps = [replace(s, stall=False) for s in steps]
    trace = played(steps)
    usual = [not s.prompt and not s.stall for s in steps]
    found = analyze_traces([trace])
    (rank,) = found.ranks
    assert found.quality.usable
    assert figures(rank) == pytest.approx(counted(trace, usual), abs=1e-9)
    assert rank.closes_to_pct == 0
    assert rank.idle_ms is not None
    causes = [v for v in causes_of(rank) if v is not None]
    assert sum(causes) == pytest.approx(figures(rank)[3], abs=1e-9)
    # Where streams are called otherwise, or the clock reads otherwise, nothing changes.
    ops = trace.ops
    renamed = replace(trace, ops=replace(ops, stream=1000 - ops.stream))
    assert analyze_traces([renamed]).ranks[0].budget_ms == rank.budget_ms
    assert moved(trace, 10**15) == rank.budget_ms


def causes_of(rank: Rank) -> list[float | None]:
    idle = rank.idle_ms
    assert idle is not None
    return [
        idle.inside_graph, idle.host_not_launching_yet, idle.graph_launch_call,
        idle.launch_call, idle.after_launch_returned, idle.no_launch_record,
    ]  # fmt: skip


def moved(trace: Trace, by_ns: int) -> object:
    """Return the budget of a trace whose clock is ahead."""
    ops, calls = trace.ops, trace.calls
    later = replace(
        trace,
        ops=replace(ops, start_ns=ops.start_ns + by_ns, end_ns=ops.end_ns + by_ns),
        calls=replace(
            calls, start_ns=calls.start_ns + by_ns, end_ns=calls.end_ns + by_ns
        ),
    )
    return analyze_traces([later]).ranks[0].budget_ms
