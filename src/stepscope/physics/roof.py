"""Operations of a decode step, and which roof binds: memory, arithmetic or links."""

import msgspec

from stepscope.physics.hardware import Gpu
from stepscope.physics.kv import entries_read, rank_share
from stepscope.physics.model.records import ModelShape
from stepscope.physics.step import (
    DEFAULTS,
    StepOptions,
    step_bytes,
    weight_share,
)
from stepscope.recipe.records import Layout


class Operations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations of one step of one rank, a multiply-add counted as two."""

    weights: float
    attention: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.weights + self.attention


def operations(
    shape: ModelShape,
    layout: Layout,
    batch: float,
    context: float,
    options: StepOptions = DEFAULTS,
) -> Operations:
    """Return the operations that one rank does in one decode step.

    Formula: 2 x parameters x tokens for matrices; for each token the cache's own
        operations an entry times the entries read.
    Assumes: tokens spread evenly over experts and stages; the sum over stages, since
        that is what one token waits for.
    Leaves out: norms, activations, softmax, sampling.
    """
    seqs = batch / layout.dp / layout.pp
    tokens = seqs * options.tokens_per_sequence
    ranks = layout.dp if options.dp_shares_experts else 1
    weights = attention = 0.0
    for weight in shape.weights:
        share = weight_share(
            weight, layout, dp_shares_experts=options.dp_shares_experts
        )
        if weight.read == "step":
            weights += 2 * weight.n_params * share * tokens
        elif weight.read == "coverage" and shape.experts is not None:
            used = weight.n_params * shape.experts.per_token / shape.experts.n
            weights += 2 * used * share * tokens * ranks
    for cache in shape.caches:
        share = rank_share(cache, 1, layout.dcp) / layout.tp
        n = 1.0 if cache.kind == "state" else entries_read(cache, context)
        attention += tokens * share * n * cache.flops_per_entry * cache.n_readers
    return Operations(weights=weights, attention=attention)


def peak(gpu: Gpu, weight_format: str) -> float:
    """Return the dense peak that applies, operations/s.

    Assumes: the highest peak that the weights' form could reach on the device, so
        that the roof stays a bound: a four-bit float may be multiplied as such where
        the device can, as fp8 or bf16 otherwise; packed integers run as bf16.
    """
    forms = {
        "mxfp4": ("fp4", "fp8"), "nvfp4": ("fp4", "fp8"), "fp8": ("fp8",),
        "int8": ("int8",),
    }  # fmt: skip
    first = weight_format.split(maxsplit=1)[0]
    usable = [gpu.peaks[p] for p in forms.get(first, ()) if p in gpu.peaks]
    return max([*usable, gpu.peaks["bf16"]])


class Roofs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The three floors of one step, milliseconds, and the highest of them.

    ``host_ms`` is the lane of tables in host memory; None without any.
    """

    memory_ms: float
    compute_ms: float
    communication_ms: float | None
    host_ms: float | None
    binds: str


def roofs(
    memory_ms: float,
    compute_ms: float,
    communication_ms: float | None,
    host_ms: float | None,
) -> Roofs:
    """Return the floors and which of them binds.

    Assumes: the lanes overlap perfectly, so that the step's floor is the highest, not
        the sum.
    """
    lanes = {
        "memory": memory_ms,
        "compute": compute_ms,
        "communication": communication_ms or 0.0,
        "host": host_ms or 0.0,
    }
    return Roofs(
        memory_ms=memory_ms,
        compute_ms=compute_ms,
        communication_ms=communication_ms,
        host_ms=host_ms,
        binds=max(lanes, key=lambda lane: lanes[lane]),
    )


def crossover_batch(
    shape: ModelShape, layout: Layout, gpu: Gpu, context: float
) -> float | None:
    """Return the batch over all ranks from which arithmetic exceeds memory.

    None: it never does, as long as each sequence brings its own KV reads.
    """

    def is_bound_by_compute(batch: float) -> bool:
        moved = step_bytes(shape, layout, batch, context).path_bytes
        work = operations(shape, layout, batch, context).total
        return work / peak(gpu, shape.weight_format) > (
            moved / gpu.bandwidth_bytes_per_s
        )

    low, high = 1.0, 2.0**24
    if not is_bound_by_compute(high):
        return None
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_bound_by_compute(middle) else (middle, high)
    return high
