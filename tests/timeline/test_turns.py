"""Steps that launch several graphs are one step each, or said to be in doubt."""

from dataclasses import replace

import numpy as np
import pytest
from tests.timeline.planting import DECODE, real, replay_of_ops

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Trace
from stepscope.timeline.records import Rank, TraceResult


def taken_apart(cuts: tuple[int, ...], *, noted: bool) -> Trace:
    """Give each replay's nodes from each of ``cuts`` on to a launch of their own."""
    trace = real(DECODE)
    calls, replay = trace.calls, replay_of_ops(trace)
    correlation = trace.ops.correlation.copy()
    graph = np.flatnonzero(calls.is_graph)
    ids = int(max(calls.correlation.max(), correlation.max())) + 1
    more: list[tuple[int, int, int, int]] = []
    for i, call in enumerate(graph.tolist()):
        mine = np.flatnonzero(replay == i)
        at = int(calls.start_ns[call])
        for j, cut in enumerate(cuts):
            correlation[mine[cut:]] = ids
            more.append((at + 110_000 + j * 20_000, 10_000, ids, call))
            ids += 1
    end = calls.end_ns.copy()
    end[graph] = calls.start_ns[graph] + 100_000
    added = calls.take(np.array([row[3] for row in more], dtype=np.int64))
    start = np.concatenate([calls.start_ns, [row[0] for row in more]])
    order = np.argsort(start, kind="stable")
    ends = np.concatenate([end, [row[0] + row[1] for row in more]])
    launched = np.concatenate([calls.correlation, [row[2] for row in more]])
    both = {
        name: np.concatenate([getattr(calls, name), getattr(added, name)])[order]
        for name in ("name", "thread", "is_graph", "process")
    }
    apart = replace(
        trace,
        ops=replace(trace.ops, correlation=correlation),
        calls=replace(
            calls,
            start_ns=start[order],
            end_ns=ends[order],
            correlation=launched[order],
            **both,
        ),
    )
    if noted:
        return apart
    return replace(apart, spans=trace.spans.take(np.zeros(0, dtype=np.int64)))


def one(found: TraceResult) -> Rank:
    (rank,) = found.ranks
    return rank


#: A draft of one graph, of three replays, and pieces between attentions.
SPLITS = [(700,), (780, 820, 860), tuple(range(27, 900, 19))]


@pytest.mark.parametrize("cuts", SPLITS, ids=["draft", "three drafts", "pieces"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_step_of_several_graphs_is_one_step(
    cuts: tuple[int, ...], *, noted: bool
) -> None:
    whole = one(analyze_traces([real(DECODE)]))
    found = analyze_traces([taken_apart(cuts, noted=noted)])
    rank = one(found)
    assert found.quality.usable
    assert (rank.n_steps, rank.n_periods) == (14, 13)
    assert rank.step_source == ("annotations" if noted else "graph-launches")
    assert rank.kernels_per_step == whole.kernels_per_step
    assert rank.step_ms is not None
    assert whole.step_ms is not None
    assert rank.step_ms.median == pytest.approx(whole.step_ms.median, rel=0.01)
    assert "steps-ambiguous" not in {f.code for f in found.findings}


@pytest.mark.parametrize(
    ("cuts", "why"), [((456,), "2 graphs"), (tuple(range(83, 900, 83)), "small")]
)
def test_graphs_that_may_be_steps_or_parts_of_them_are_in_doubt(
    cuts: tuple[int, ...], why: str
) -> None:
    found = analyze_traces([taken_apart(cuts, noted=False)])
    said = [f.message for f in found.findings if f.code == "steps-ambiguous"]
    assert len(said) == 1
    noted = analyze_traces([taken_apart(cuts, noted=True)])
    assert one(noted).n_steps == 14
    assert not [f for f in noted.findings if f.code == "steps-ambiguous"]
    assert why in said[0]


def relabelled(**kinds: tuple[int, ...]) -> Trace:
    """Make some steps mixed ones without a graph, and take some annotations away."""
    trace = real(DECODE)
    calls, spans = trace.calls, trace.spans
    graph = np.flatnonzero(calls.is_graph)
    note = np.flatnonzero(spans.is_annotation)
    mixed, silent = list(kinds.get("mixed", ())), list(kinds.get("silent", ()))
    is_graph, name = calls.is_graph.copy(), spans.name.copy()
    is_graph[graph[mixed]] = False
    name[note[mixed]] = len(trace.names)
    keep = np.ones(len(spans), dtype=np.bool_)
    keep[note[silent]] = False
    return replace(
        trace,
        names=(*trace.names, "execute_context_1(512)_generation_8(8)"),
        calls=replace(calls, is_graph=is_graph),
        spans=replace(spans, name=name).take(keep),
    )


def test_a_mixed_step_between_decode_steps_lengthens_none_of_them() -> None:
    rank = one(analyze_traces([relabelled(mixed=(6, 7))]))
    assert rank.steps_by_kind == {"decode": 12, "mixed": 2}
    assert (rank.step_kind, rank.n_periods) == ("decode", 11)
    assert rank.step_ms is not None
    whole = one(analyze_traces([real(DECODE)]))
    assert whole.step_ms is not None
    assert rank.step_ms.p90 < 1.03 * whole.step_ms.p90
    assert rank.closes_to_pct == 0


def test_steps_that_a_rank_runs_along_without_annotations_are_steps() -> None:
    whole = one(analyze_traces([real(DECODE)]))
    for steps in ({"silent": (2, 3, 4)}, {"silent": (0, 5), "mixed": (9, 10, 11)}):
        rank = one(analyze_traces([relabelled(**steps)]))
        assert rank.n_steps == 14 - len(steps.get("mixed", ()))
        assert rank.step_ms is not None
        assert whole.step_ms is not None
        assert rank.step_ms.p90 < 1.03 * whole.step_ms.p90
    everywhere = one(analyze_traces([relabelled(silent=tuple(range(14)))]))
    assert everywhere.step_ms == whole.step_ms


def test_annotations_around_steps_are_no_steps_of_their_own() -> None:
    trace = real(DECODE)
    spans = trace.spans
    note = np.flatnonzero(spans.is_annotation)
    around = spans.take(note)
    around = replace(
        around,
        start_ns=around.start_ns - 20_000,
        end_ns=np.append(around.start_ns[1:] - 30_000, around.end_ns[-1]),
        name=np.full(len(note), len(trace.names)),
    )
    order = np.argsort(np.concatenate([spans.start_ns, around.start_ns]), kind="stable")
    both = {
        column: np.concatenate([getattr(spans, column), getattr(around, column)])[order]
        for column in ("start_ns", "end_ns", "name", "thread", "is_annotation")
    }
    planted = replace(
        trace,
        names=(*trace.names, "ProfilerStep#7"),
        spans=replace(spans, **both),
    )
    assert (
        one(analyze_traces([planted])).step_ms == one(analyze_traces([trace])).step_ms
    )
