"""Budgets sum to the period, whatever overlaps what; waiting is part of talking."""

import numpy as np
from hypothesis import given, settings, strategies as st

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Calls, HostSpans, Ops, Trace
from stepscope.timeline.device import read_device
from stepscope.timeline.steps import find_steps

NAMES = ("gemm", "ncclDevKernel_AllReduce", "memcpy", "cudaGraphLaunch", "cudaLaunch")
#: start, length, stream, name
OP = st.tuples(
    st.integers(0, 99_000), st.integers(0, 4_000), st.integers(0, 3), st.integers(0, 2)
)
N_STEPS, STEP_NS = 5, 100_000


def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def a_rank(
    extra: list[tuple[int, int, int, int]], late_ns: int = 0, rank: int = 0
) -> Trace:
    """Five replays of a graph of 20 nodes, with other operations anywhere."""
    rows = []
    for step in range(N_STEPS):
        at = step * STEP_NS
        rows += [(at + 10 + i * 2_000, 1_500, 7, 0, step + 1) for i in range(19)]
        arrive = at + 60_000 + late_ns
        # All ranks leave the collective at one instant.
        rows.append((arrive, at + 90_000 - arrive, 7, 1, step + 1))
        rows += [(at + s, n, stream, name, -1) for s, n, stream, name in extra]
    rows.sort()
    start = column([r[0] for r in rows])
    name = column([r[3] for r in rows])
    launched = column([step * STEP_NS - 20_000 for step in range(N_STEPS)])
    none = column([])
    return Trace(
        path=f"rank{rank}",
        rank=rank,
        names=NAMES,
        ops=Ops(
            start_ns=start,
            end_ns=start + column([r[1] for r in rows]),
            stream=column([r[2] for r in rows]),
            correlation=column([r[4] for r in rows]),
            graph_node=column([-1] * len(rows)),
            name=name,
            kind=column([1 if n == 2 else 0 for n in name.tolist()]),
        ),
        calls=Calls(
            start_ns=launched,
            end_ns=launched + 25_000,
            correlation=column(list(range(1, N_STEPS + 1))),
            name=column([3] * N_STEPS),
            thread=column([0] * N_STEPS),
            is_graph=np.ones(N_STEPS, dtype=np.bool_),
            process=column([1] * N_STEPS),
        ),
        spans=HostSpans(
            start_ns=none,
            end_ns=none,
            name=none,
            thread=none,
            is_annotation=np.ones(0, dtype=np.bool_),
        ),
        resolution_ns=1,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(OP, max_size=25))
def test_the_parts_of_a_step_sum_to_its_period(
    extra: list[tuple[int, int, int, int]],
) -> None:
    (rank,) = analyze_traces([a_rank(extra)]).ranks
    assert rank.step_ms is not None
    budget, idle = rank.budget_ms, rank.idle_ms
    assert budget is not None
    assert idle is not None
    assert budget.idle is not None
    whole = budget.compute + budget.communication + budget.memcpy + budget.idle
    assert abs(whole - rank.step_ms.mean) <= 1e-9
    causes = (
        idle.inside_graph, idle.host_not_launching_yet, idle.graph_launch_call,
        idle.launch_call, idle.after_launch_returned, idle.no_launch_record,
    )  # fmt: skip
    assert abs(sum(c or 0.0 for c in causes) - budget.idle) <= 1e-9
    assert rank.closes_to_pct == 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(OP, max_size=8).map(lambda ops: [op for op in ops if op[3] != 1]),
    # Ranks of one run never hold the same stamps.
    st.lists(st.integers(0, 20_000), min_size=2, max_size=4, unique=True),
)
def test_waiting_and_transfer_sum_to_the_communication_of_every_rank(
    extra: list[tuple[int, int, int, int]], late: list[int]
) -> None:
    found = analyze_traces([a_rank(extra, by, i) for i, by in enumerate(late)])
    assert len(found.collectives) == 1
    for i, rank in enumerate(found.ranks):
        budget = rank.budget_ms
        assert budget is not None
        assert budget.communication_wait is not None
        assert budget.communication_transfer is not None
        both = budget.communication_wait + budget.communication_transfer
        assert abs(both - budget.communication) <= 1e-9
        waited = found.collectives[0].wait_ms_by_rank[i]
        assert abs(waited - (max(late) - late[i]) / 1e6) <= 1e-9
        # What computation hides of the waiting is not exposed.
        assert budget.communication_wait <= waited + 1e-9


def test_replays_are_steps() -> None:
    device = read_device(a_rank([]))
    assert find_steps(device.trace).source == "graph-launches"
    assert len(device.start) == N_STEPS - 1
