"""What runs without a graph between decode graphs: sampling, drafts, prompts."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.timeline.solo import Solo

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import HostSpans, Trace
from stepscope.timeline.records import Rank, TraceResult

_N, _LAYERS = 24, 10


def played(prompt: Callable[[int], int], sampler: Callable[[int], int]) -> TraceResult:
    """Play decode steps, each followed by so many kernels of a prompt, if any."""
    solo = Solo()
    for step in range(_N):
        solo.graph(_LAYERS)
        solo.eager(sampler(step))
        solo.eager(prompt(step), 40.0, "prompt")
        solo.end_step()
    return analyze_traces([solo.trace()])


def annotated(trace: Trace, name: str, spans: list[tuple[float, float]]) -> Trace:
    """Say what the host did, from and to so many microseconds."""
    stamps = np.rint(np.array(spans) * 1000).astype(np.int64)
    noted = HostSpans(
        start_ns=stamps[:, 0],
        end_ns=stamps[:, 1],
        name=np.full(len(spans), len(trace.names)),
        thread=np.ones(len(spans), dtype=np.int64),
        is_annotation=np.ones(len(spans), dtype=np.bool_),
    )
    return replace(trace, names=(*trace.names, name), spans=noted)


def one(found: TraceResult) -> Rank:
    (rank,) = found.ranks
    return rank


def three(_step: int) -> int:
    return 3


def no_prompt(_step: int) -> int:
    return 0


@pytest.mark.parametrize("sampler", [
    lambda k: 3 + 7 * k % 40,
    lambda k: 60 if k % 3 == 0 else 3,
    lambda k: 3 if k % 3 == 0 else 60,
], ids=["3 to 42", "a third 60", "two thirds 60"])  # fmt: skip
def test_sampling_in_another_way_is_still_a_decode_step(
    sampler: Callable[[int], int],
) -> None:
    rank = one(played(no_prompt, sampler))
    assert rank.steps_by_kind == {"decode": _N}


@pytest.mark.parametrize("prompt", [
    lambda k: 190 if k % 3 == 0 else 0,
    lambda k: 190 if k % 2 else 0,
    lambda k: 0 if k % 2 else 120,
    lambda k: 0 if k % 3 == 1 else 190,
    lambda k: 0 if k % 6 == 3 else 150 + k,
], ids=["a third", "half", "from the first", "two thirds", "five sixths"])  # fmt: skip
def test_prompts_are_in_no_decode_step_however_many_there_are(
    prompt: Callable[[int], int],
) -> None:
    clean, found = one(played(no_prompt, three)), played(prompt, three)
    rank = one(found)
    n_prompts = sum(prompt(k) > 0 for k in range(_N - 1))
    assert rank.steps_by_kind["mixed"] == n_prompts
    assert rank.step_ms is not None
    assert clean.step_ms is not None
    assert rank.step_ms.mean == pytest.approx(clean.step_ms.mean, rel=0.01)
    # Layers are those of a decode step, whichever comes first.
    assert (rank.n_layers, rank.kernels_per_layer) == (_LAYERS, 19)
    assert rank.layer is not None
    assert rank.layer.n_seen == _LAYERS * rank.n_periods


def test_prompts_in_every_step_can_not_be_told_from_decoding() -> None:
    found = played(lambda k: 150 + k, three)
    (said,) = (f.message for f in found.findings if f.code == "steps-ambiguous")
    assert "without a graph" in said
    sampled = played(no_prompt, lambda _k: 40)
    assert "steps-ambiguous" not in {f.code for f in sampled.findings}


def test_graphs_of_another_size_that_are_left_out_are_told() -> None:
    solo = Solo()
    for step in range(_N):
        solo.graph(_LAYERS if step < 14 else _LAYERS + 1)
        solo.eager(3)
        solo.end_step()
    found = analyze_traces([solo.trace()])
    assert one(found).steps_by_kind == {"decode": 14}
    (said,) = (f.message for f in found.findings if f.code == "other-graphs")
    assert "10 of 24" in said


@pytest.mark.parametrize("n_sizes", [1, 3])
def test_a_draft_that_is_replayed_most_is_not_taken_for_the_step(n_sizes: int) -> None:
    solo = Solo()
    for step in range(_N):
        size = step // 7 % n_sizes
        solo.graph(2 * _LAYERS + size)
        for _ in range(2 + step * 5 % 3 + (step % 7 == 0)):
            solo.graph(6 + size)
        solo.eager(3)
        solo.end_step()
    found = analyze_traces([solo.trace()])
    assert one(found).steps_by_kind["decode"] == _N
    assert [f for f in found.findings if f.code == "steps-ambiguous"]


@pytest.mark.parametrize("n_sizes", [2, 5])
def test_batch_sizes_that_come_in_turn_are_not_one_step(n_sizes: int) -> None:
    solo = Solo()
    for step in range(30):
        solo.graph(_LAYERS + step * 3 % n_sizes)
        solo.eager(3)
        solo.end_step()
    found = analyze_traces([solo.trace()])
    rank = one(found)
    assert rank.kernels_per_step is not None
    assert rank.kernels_per_step < 19 * (_LAYERS + n_sizes)
    assert [f for f in found.findings if f.code == "steps-ambiguous"]


@pytest.mark.parametrize("n_layers", [_LAYERS, _LAYERS + 1])
def test_a_rank_that_runs_along_ends_the_step_before(n_layers: int) -> None:
    solo, notes = Solo(), []
    for step in range(_N):
        begun, along = solo.host, step % 8 in (3, 4, 5)
        solo.graph(n_layers if along else _LAYERS)
        if not along:
            solo.eager(3)
            notes.append((begun, solo.host))
        solo.end_step()
    name = "execute_context_0(0)_generation_8(8)"
    rank = one(analyze_traces([annotated(solo.trace(), name, notes)]))
    usual = one(played(no_prompt, three))
    assert rank.steps_by_kind == {"decode": _N if n_layers == _LAYERS else 15}
    assert rank.step_ms is not None
    assert usual.step_ms is not None
    assert rank.step_ms.p90 == pytest.approx(usual.step_ms.p90, rel=0.01)
    assert rank.step_ms.mean == pytest.approx(usual.step_ms.mean, rel=0.01)


def test_decode_graphs_after_the_graph_of_a_prompt_are_steps() -> None:
    solo = Solo()
    for wave in range(4):
        solo.graph(2 * _LAYERS)
        solo.end_step()
        for _ in range(10 + wave):
            solo.graph(_LAYERS)
            solo.eager(3)
            solo.end_step()
    found = analyze_traces([solo.trace()])
    assert one(found).steps_by_kind == {"decode": 46}
    assert "steps-ambiguous" not in {f.code for f in found.findings}
    assert "other-graphs" in {f.code for f in found.findings}


def test_a_trace_without_steps_says_so() -> None:
    solo = Solo()
    for _ in range(2):
        solo.graph(_LAYERS)
        solo.end_step()
    found = analyze_traces([solo.trace()])
    assert one(found).step_ms is None
    assert "no-steps" in {f.code for f in found.findings}


def test_a_long_prompt_is_no_stall() -> None:
    solo, notes = Solo(), []
    for step in range(9):
        begun = solo.host
        solo.eager(150, 90.0 if step == 4 else 9.0, "prompt")
        notes.append((begun, solo.host))
        solo.end_step()
    name = "execute_context_1(512)_generation_0(0)"
    found = analyze_traces([annotated(solo.trace(), name, notes)])
    rank = one(found)
    assert rank.step_kind == "prefill"
    assert rank.n_periods == 8
    assert "stalled-steps" not in found.quality.defects


def test_a_replay_that_the_window_cut_is_no_other_graph() -> None:
    solo = Solo()
    for _ in range(_N):
        solo.graph(_LAYERS)
        solo.eager(3)
        solo.end_step()
    last = max(op[3] for op in solo.ops if op[2] == solo.block[0][0])
    kept = [op for op in solo.ops if op[3] < last]
    solo.ops = [*kept, *[op for op in solo.ops if op[3] == last][:100]]
    found = analyze_traces([solo.trace()])
    assert "edge-steps-cut" in found.quality.defects
    assert one(found).n_periods == _N - 2
    assert "other-graphs" not in {f.code for f in found.findings}


def in_pieces(every: int, size: int) -> TraceResult:
    """Play decode graphs, and each so many steps a mixed one in pieces."""
    solo = Solo()
    for step in range(30):
        if step % every == every - 1:
            whole, solo.block = solo.block, (solo.block * 2)[:size]
            for _ in range(2 * _LAYERS + 1):
                solo.graph(1, 20.0)
                solo.eager(3, 30.0, "attention")
            solo.block = whole
        else:
            solo.graph(2 * _LAYERS)
        solo.eager(3)
        solo.end_step()
    return analyze_traces([solo.trace()])


@pytest.mark.parametrize("size", [9, 15, 22])
@pytest.mark.parametrize("every", [3, 4, 10])
def test_mixed_steps_in_pieces_are_no_decode_steps(every: int, size: int) -> None:
    found, clean = in_pieces(every, size), in_pieces(31, size)
    rank, usual = one(found), one(clean)
    assert rank.steps_by_kind == {"decode": 30 - 30 // every}
    assert rank.step_ms is not None
    assert usual.step_ms is not None
    # Before a piece they are shorter: it is launched sooner than a graph.
    assert rank.step_ms.p90 == pytest.approx(usual.step_ms.p90, rel=0.01)
    assert rank.budget_ms is not None
    assert usual.budget_ms is not None
    assert rank.budget_ms.compute == pytest.approx(usual.budget_ms.compute, abs=1e-5)
    assert (rank.n_layers, rank.kernels_per_layer) == (2 * _LAYERS, 19)
    said = {f.code: f.message for f in found.findings}
    assert f"{30 // every} of 30 steps" in said["other-graphs"]
    assert "steps-ambiguous" not in said


def test_pieces_after_every_graph_may_be_of_it() -> None:
    found = in_pieces(2, 15)
    (said,) = (f.message for f in found.findings if f.code == "steps-ambiguous")
    assert "may be a decode step and a mixed one" in said
