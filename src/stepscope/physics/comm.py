"""What the ranks of one layout must tell each other in one decode step."""

import msgspec

from stepscope.physics.hardware import Gpu
from stepscope.physics.model.records import ModelShape
from stepscope.physics.stages import stage_of
from stepscope.physics.step import DEFAULTS, StepOptions
from stepscope.recipe.records import Layout

ACTIVATION_BYTES = 2


class Collective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All collectives of one kind in one step of one rank.

    Attributes:
        name: ``all-reduce``, ``all-gather``, ``reduce-scatter``, ``dispatch``,
            ``combine``, ``send`` or ``gather-logits``.
        n_ranks: Ranks that take part.
        per_step: How many a step.
        bytes_per_rank: Bytes that one rank must send in all of them.
    """

    name: str
    n_ranks: int
    per_step: int
    bytes_per_rank: float


class Communication(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Communication volume of a step and its floor.

    ``floor_ms`` is volume over link rate alone: None where the link's rate is not
    known. Latencies are left out: at small batch they dominate, so the true cost lies
    well above this.
    """

    collectives: tuple[Collective, ...]
    bytes_per_rank: float
    floor_ms: float | None


def communication(
    shape: ModelShape,
    layout: Layout,
    batch: float,
    gpu: Gpu | None = None,
    options: StepOptions = DEFAULTS,
) -> Communication:
    """Return the volume that one rank sends in one decode step.

    Formula: all-reduce of S bytes over n ranks 2 (n-1)/n S; all-gather and
        reduce-scatter (n-1)/n S each, S the gathered size; tensor parallelism
        all-reduces after attention and after the MLP; a mixture of experts over
        data parallel ranks gathers every rank's tokens and scatters the sums
        (``dispatch`` and ``combine`` to the chosen experts' ranks alone under EP,
        where that is less).
    Assumes: activations of two bytes; experts chosen uniformly; the ring or
        all-to-all bound, which no algorithm beats without reduction in the network.
    Leaves out: latency of each collective, hops between nodes.
    """
    tokens = batch / layout.dp / layout.pp * options.tokens_per_sequence
    row = shape.hidden_size * ACTIVATION_BYTES
    n_layers = max(
        stage_of(shape.n_layers, layout.pp).count(s) for s in range(layout.pp)
    )
    n_moe = 0
    if shape.experts is not None and layout.dp > 1 and options.dp_shares_experts:
        n_moe = round(shape.experts.n_layers * n_layers / shape.n_layers)
    parts: list[Collective] = []
    if layout.tp > 1:
        count = 2 * n_layers - n_moe
        volume = 2 * (layout.tp - 1) / layout.tp * tokens * row * count
        parts.append(_part("all-reduce", layout.tp, count, volume))
        logits = tokens * shape.vocab_size * ACTIVATION_BYTES / layout.tp
        parts.append(_part("gather-logits", layout.tp, 1, logits))
    if n_moe:
        parts += _expert_traffic(shape, layout, tokens, row, n_moe)
    if layout.dcp > 1:
        volume = (layout.dcp - 1) / layout.dcp * tokens * row * n_layers
        parts.append(_part("all-gather", layout.dcp, n_layers, volume))
        parts.append(_part("reduce-scatter", layout.dcp, n_layers, volume))
    if layout.pp > 1:
        parts.append(_part("send", 2, 1, tokens * row * shape.stream_width))
    total = sum(p.bytes_per_rank for p in parts)
    floor = None
    if gpu is not None and gpu.link_bytes_per_s and parts:
        floor = total / gpu.link_bytes_per_s * 1e3
    elif not parts:
        floor = 0.0
    return Communication(collectives=tuple(parts), bytes_per_rank=total, floor_ms=floor)


def _part(name: str, n_ranks: int, per_step: int, volume: float) -> Collective:
    return Collective(
        name=name, n_ranks=n_ranks, per_step=per_step, bytes_per_rank=volume
    )


def _expert_traffic(
    shape: ModelShape, layout: Layout, tokens: float, row: float, n_moe: int
) -> list[Collective]:
    assert shape.experts is not None
    n = layout.dp
    gathered = (n - 1) * tokens * row * n_moe
    # Sent straight to the ranks that hold the chosen experts, each rank once.
    reached = (layout.ep - 1) * (1 - (1 - 1 / layout.ep) ** shape.experts.per_token)
    direct = tokens / layout.tp * row * reached * n_moe
    if layout.ep > 1 and direct < gathered:
        return [
            _part("dispatch", layout.ep, n_moe, direct),
            _part("combine", layout.ep, n_moe, direct),
        ]
    return [
        _part("all-gather", n, n_moe, gathered),
        _part("reduce-scatter", n, n_moe, gathered),
    ]
