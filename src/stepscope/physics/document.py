"""The document of ``stepscope floor --json``: the contract's keys and some more."""

import msgspec

from stepscope.errors import RefusedError
from stepscope.physics.blocks import KvPool, KvRules, kv_pool
from stepscope.physics.comm import communication
from stepscope.physics.hardware import Gpu
from stepscope.physics.kv import footprint
from stepscope.physics.model.records import ModelShape, is_table
from stepscope.physics.parts import dense_parts, resident_bytes
from stepscope.physics.roof import operations, peak, roofs
from stepscope.physics.step import StepOptions, gathered_bytes, step_bytes
from stepscope.recipe.records import Layout

MS_PER_S = 1e3


class ExpertFigures(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Routed experts of a layer, and of the model."""

    n: int
    per_token: int
    bytes_each: float
    params_each: int
    bytes_total: float


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One batch: bytes of one rank and the floors of the step."""

    batch: float
    seqs_per_rank: float
    coverage: float | None
    dense_bytes: float
    expert_bytes: float
    kv_bytes: float
    bytes_per_rank: float
    floor_ms: float
    host_bytes: float
    compute_ms: float
    communication_bytes: float
    communication_ms: float | None
    host_ms: float | None
    binds: str


class KvFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV of one rank.

    Attributes:
        bytes_per_token: What a further token takes, page padding included.
        bytes_per_request_fixed: What the engine sets aside for a request of the
            longest context beyond that: windows with the prefill chunks in flight,
            states, rings. None where the context is not known.
        bytes_per_request_decoding: The same while it decodes.
        unpadded_bytes_per_token: Without the engine's padding.
    """

    bytes_per_token: float
    bytes_per_request_fixed: float | None
    bytes_per_request_decoding: float | None
    unpadded_bytes_per_token: float


class FloorDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What ``stepscope floor --json`` prints."""

    model: str
    params_total: int
    params_active: int
    experts: ExpertFigures | None
    points: tuple[Point, ...]
    kv: KvFigures
    assumptions: tuple[str, ...]
    params_table: int
    weight_format: str
    weight_bytes_per_rank: float
    dense_parts_bytes: dict[str, float]
    gpu: str
    bandwidth_bytes_per_s: float
    bandwidth_source: str
    layout: Layout
    context: int
    schema: int = 1


def floor_document(
    shape: ModelShape,
    gpu: Gpu,
    layout: Layout,
    workload: tuple[tuple[float, ...], int],
    options: StepOptions,
    rules: KvRules,
) -> FloorDocument:
    """Return the whole document.

    Args:
        shape: The model.
        gpu: Where each rank runs.
        layout: How the model is spread.
        workload: Batches over all data parallel ranks, and the context in tokens.
        options: What else a step depends on.
        rules: The engine's KV allocation.

    Raises:
        RecipeError: The layout does not fit the model, or the KV type is unknown.
    """
    batches, context = workload
    points = tuple(
        _point(shape, gpu, layout, (batch, context), options) for batch in batches
    )
    kv, notes = _kv(shape, layout, rules)
    return FloorDocument(
        model=shape.name,
        params_total=shape.params_total,
        params_active=shape.params_active,
        experts=_experts(shape),
        points=points,
        kv=kv,
        assumptions=(
            *shape.assumptions,
            *_assumptions(shape, gpu, layout, options),
            *notes,
        ),
        params_table=shape.params_table,
        weight_format=shape.weight_format,
        weight_bytes_per_rank=resident_bytes(shape, layout, options),
        dense_parts_bytes=dense_parts(shape, layout),
        gpu=gpu.name,
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        bandwidth_source=gpu.bandwidth_source,
        layout=layout,
        context=context,
    )


def _experts(shape: ModelShape) -> ExpertFigures | None:
    if shape.experts is None:
        return None
    return ExpertFigures(
        n=shape.experts.n,
        per_token=shape.experts.per_token,
        bytes_each=shape.experts.bytes_each,
        params_each=shape.experts.params_each,
        bytes_total=sum(w.n_bytes for w in shape.weights if w.read == "coverage"),
    )


def _point(
    shape: ModelShape,
    gpu: Gpu,
    layout: Layout,
    workload: tuple[float, int],
    options: StepOptions,
) -> Point:
    batch, context = workload
    step = step_bytes(shape, layout, batch, context, options)
    work = operations(shape, layout, batch, context, options)
    talk = communication(shape, layout, batch, gpu, options)
    host_ms = None
    if step.host_bytes and gpu.pcie_bytes_per_s:
        host_ms = step.host_bytes / gpu.pcie_bytes_per_s * MS_PER_S
    found = roofs(
        step.path_bytes / gpu.bandwidth_bytes_per_s * MS_PER_S,
        work.total / peak(gpu, shape.weight_format) * MS_PER_S,
        talk.floor_ms,
        host_ms,
    )
    return Point(
        batch=batch,
        seqs_per_rank=step.seqs_per_rank,
        coverage=step.coverage,
        dense_bytes=step.dense_bytes,
        expert_bytes=step.expert_bytes,
        kv_bytes=step.kv_bytes,
        bytes_per_rank=step.bytes_per_rank,
        floor_ms=found.memory_ms,
        host_bytes=step.host_bytes,
        compute_ms=found.compute_ms,
        communication_bytes=talk.bytes_per_rank,
        communication_ms=found.communication_ms,
        host_ms=host_ms,
        binds=found.binds,
    )


def _kv(
    shape: ModelShape, layout: Layout, rules: KvRules
) -> tuple[KvFigures, tuple[str, ...]]:
    plain = footprint(shape, layout, kv_dtype=rules.kv_dtype)
    longest = shape.max_context
    try:
        pool = kv_pool(shape, layout, rules)
    except RefusedError as error:
        figures = KvFigures(
            bytes_per_token=plain.bytes_per_token,
            bytes_per_request_fixed=plain.bytes_per_request_fixed,
            bytes_per_request_decoding=plain.bytes_per_request_fixed,
            unpadded_bytes_per_token=plain.bytes_per_token,
        )
        return figures, (f"KV without the engine's blocks: {error.found}.",)
    notes: tuple[str, ...] = ()
    if any(g.window is not None for g in pool.groups):
        notes = (
            "KV reserve by vLLM's rules: a window also holds"
            f" {rules.batches_in_flight} prefill chunks of"
            f" {rules.max_batched_tokens:,} tokens.",
        )
    return (
        KvFigures(
            bytes_per_token=pool.bytes_per_token,
            bytes_per_request_fixed=None if longest is None else _fixed(pool, longest),
            bytes_per_request_decoding=None
            if longest is None
            else _fixed(pool, longest, prefill=False),
            unpadded_bytes_per_token=plain.bytes_per_token,
        ),
        notes,
    )


def _fixed(pool: KvPool, longest: int, *, prefill: bool = True) -> float:
    """Fixed bytes at whole blocks, so that a rest of a block is not called fixed."""
    blocks = [g.block_tokens for g in pool.groups if g.block_tokens and not g.window]
    whole = longest - longest % max(blocks, default=1)
    return pool.fixed_bytes(whole or longest, prefill=prefill)


def _assumptions(
    shape: ModelShape, gpu: Gpu, layout: Layout, options: StepOptions
) -> tuple[str, ...]:
    notes = [
        f"Bandwidth {gpu.bandwidth_bytes_per_s / 1e12:.3g} TB/s"
        f" ({gpu.bandwidth_source}). No kernel reaches a data sheet's figure.",
        "Left out: activations, KV writes, collectives' latency, the host. Every"
        " weight is read once a step.",
    ]
    if shape.experts is not None:
        notes.append(
            "Experts drawn "
            + (
                "as the given histogram says."
                if options.routing
                else "uniformly and independently; skewed routing reads fewer."
            )
        )
        notes += _scales(shape)
        if layout.dp > 1 and options.dp_shares_experts:
            notes.append(
                "Data parallel ranks form one expert group of tp x dp ranks: with EP"
                " each holds whole experts, without it a slice of all of them; the"
                " bytes are the same."
            )
        if layout.ep > 1:
            notes.append(
                "Expert parallel ranks are taken as loaded alike; the slowest decides"
                " a real step."
            )
    tables = [w for w in shape.weights if is_table(w)]
    if tables:
        per_token = sum(gathered_bytes(w) for w in tables)
        where = "host memory" if options.tables_offloaded else "GPU memory"
        notes.append(
            f"Lookup tables of {sum(w.n_bytes for w in tables) / 2**30:.2f} GiB are"
            f" gathered from in {where}: {per_token:,.0f} bytes a token; they count"
            " in params_total, and in params_active as one token's rows."
        )
    if layout.pp > 1:
        notes.append(
            "Pipeline stages work on one micro-batch each (batch / pp sequences);"
            " floor_ms is the sum over stages, bytes_per_rank the heaviest stage's."
        )
    return tuple(notes)


def _scales(shape: ModelShape) -> list[str]:
    form = shape.weight_format.split(maxsplit=1)[0]
    bits = {"mxfp4": 4, "nvfp4": 4, "fp8": 8, "int4": 4, "int8": 8}.get(form)
    if bits is None or shape.experts is None:
        return []
    bare = shape.experts.params_each * bits / 8
    more = 100 * (shape.experts.bytes_each / bare - 1)
    total = sum(w.n_bytes for w in shape.weights if w.read == "coverage")
    return [
        f"Expert bytes include their scales, {more:.2f} % above the bare {form}"
        f" numbers, and leave draft layers out: {total / 2**30:.2f} GiB in all."
    ]
