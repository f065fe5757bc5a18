"""Layers whose kernels run on several streams: what is the sequence, what beside it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.timeline.solo import Solo

from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.columns import Ops, Trace
from stepscope.timeline.records import Layer, Rank

_LAYERS, _STEPS = 10, 8
_BESIDE = (4.0, 5.0, 6.0)


def branched(
    streams: int = 1, names: tuple[str, ...] = ("up", "act", "down"), odd: bool = False
) -> Trace:
    """Play steps whose layers, without the first, launch experts on a branch.

    Args:
        streams: How many streams the branches take in turn.
        names: Kernels of a branch, of lengths ``_BESIDE``.
        odd: Every second layer is of another kind.
    """
    rng = np.random.default_rng(4)
    solo = Solo()
    turn = itertools.count()
    for _ in range(_STEPS):
        at = solo.host
        launch = solo.graph(0)
        solo.device = at + 270
        for layer in range(_LAYERS):
            for j, (name, took, gap) in enumerate(solo.block):
                if odd and layer % 2 and j > 11:
                    break
                solo.device += gap
                word = f"other_{name}" if odd and layer % 2 else name
                solo.op(word, solo.device, took, launch)
                if j == 8 and layer:
                    begun, on = solo.device + rng.uniform(0.1, 6), 20 + next(turn)
                    for what, lasted in zip(names, _BESIDE, strict=True):
                        solo.op(what, begun, lasted, launch, 20 + (on % streams))
                        begun += lasted + 0.6
                solo.device += took
        solo.eager(3)
        solo.end_step()
    return solo.trace()


def one(trace: Trace) -> Rank:
    (rank,) = analyze_traces([trace]).ranks
    return rank


def layer_of(trace: Trace) -> Layer:
    layer = one(trace).layer
    assert layer is not None
    return layer


def beside(layer: Layer) -> list[tuple[str, float | None]]:
    return [(k.name, k.us_mean) for k in layer.kernels if k.beside]


@pytest.mark.parametrize("streams", [1, 3, 9])
def test_the_sequence_is_what_most_kernels_are_of(streams: int) -> None:
    layer = layer_of(branched(streams))
    assert (layer.n_layers, layer.kernels_per_layer) == (_LAYERS, 19)
    assert layer.n_seen == _LAYERS * (_STEPS - 1)
    assert beside(layer) == [("up", 4.0), ("act", 5.0), ("down", 6.0)]


def test_kernels_of_a_branch_that_share_a_name_are_as_many_as_they_are() -> None:
    layer = layer_of(branched(names=("product", "act", "product")))
    assert beside(layer) == [("product", 5.0), ("product", 5.0), ("act", 5.0)]


def test_layers_of_two_kinds_are_one_block_with_both_branches() -> None:
    layer = layer_of(branched(odd=True))
    assert (layer.n_layers, layer.kernels_per_layer) == (5, 31)
    assert sorted(beside(layer)) == sorted(
        2 * [("up", 4.0), ("act", 5.0), ("down", 6.0)]
    )


def plain() -> Trace:
    solo = Solo()
    for _ in range(_STEPS):
        solo.graph(_LAYERS)
        solo.eager(3)
        solo.end_step()
    return solo.trace()


@pytest.mark.parametrize("n", [2, 7, 300])
def test_streams_that_share_one_sequence_are_no_branches(n: int) -> None:
    trace = plain()
    split = np.arange(len(trace.ops)) % n
    spread = replace(trace, ops=replace(trace.ops, stream=split))
    # Programmatic dependent launch: each begins before the one before has ended.
    ops = spread.ops
    early = ops.start_ns - np.minimum(1000, np.diff(ops.start_ns, prepend=0) - 1)
    both = replace(spread, ops=replace(ops, start_ns=early))
    for each in (spread, both):
        layer = layer_of(each)
        assert (layer.n_layers, layer.kernels_per_layer) == (_LAYERS, 19)
        assert layer.n_seen >= (_LAYERS - 1) * (_STEPS - 1)
        assert not beside(layer)


def test_gaps_of_a_layer_are_no_idle_time_while_something_runs() -> None:
    trace, clean = plain(), layer_of(plain())
    block = Solo().block
    gaps = sum(gap for _, _, gap in block)
    # The step's first gap is not the layer's.
    assert clean.gap_us_per_layer == pytest.approx(
        gaps - block[0][2] / _LAYERS, abs=0.02
    )
    ops = trace.ops
    lasting = Ops(
        start_ns=np.append(ops.start_ns[:1] - 1000, ops.start_ns),
        end_ns=np.append(ops.end_ns.max(keepdims=True), ops.end_ns),
        stream=np.append([99], ops.stream),
        correlation=np.append([-1], ops.correlation),
        graph_node=np.append([-1], ops.graph_node),
        name=np.append([len(trace.names)], ops.name),
        kind=np.append(ops.kind[:1], ops.kind),
    )
    rank = one(replace(trace, names=(*trace.names, "persistent"), ops=lasting))
    assert rank.budget_ms is not None
    assert rank.budget_ms.idle == 0
    assert rank.layer is not None
    assert rank.layer.gap_us_per_layer == 0
    assert rank.layer.n_seen == clean.n_seen
