"""Bytes that one decode step must move through one rank's memory."""

from dataclasses import dataclass

import msgspec

from stepscope.errors import RecipeError
from stepscope.physics.coverage import coverage
from stepscope.physics.kv import rank_share, step_read_bytes
from stepscope.physics.model.records import ModelShape, Weight, is_table
from stepscope.physics.stages import stage_of
from stepscope.recipe.records import Layout


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What a step depends on beside model, layout, batch and context.

    Attributes:
        kv_dtype: KV type; ``auto`` is what model or checkpoint ask for.
        tokens_per_sequence: Tokens that one step verifies for each sequence: 1, or
            1 + drafts.
        routing: Measured tokens per expert; empty: uniform.
        dp_shares_experts: Data parallel ranks form one expert group (vLLM, SGLang
            with DP attention). False: each is a server of its own.
        tables_offloaded: Lookup tables lie in host memory.
    """

    kv_dtype: str = "auto"
    tokens_per_sequence: float = 1.0
    routing: tuple[float, ...] = ()
    dp_shares_experts: bool = True
    tables_offloaded: bool = False


DEFAULTS = StepOptions()


class StepBytes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of one decode step of one rank; the heaviest stage's under PP.

    Attributes:
        seqs_per_rank: Sequences in one pass of one rank.
        coverage: Part of the experts that is read; None for a dense model.
        dense_bytes: Weights that every step reads, and gathered embedding rows.
        expert_bytes: Routed experts.
        kv_bytes: Keys, values, index keys and states.
        bytes_per_rank: Sum of the three.
        path_bytes: What one token waits for: the sum over all stages. Equal to
            ``bytes_per_rank`` without PP.
        host_bytes: Gathered from tables in host memory, over PCIe; a lane of its own.
    """

    seqs_per_rank: float
    coverage: float | None
    dense_bytes: float
    expert_bytes: float
    kv_bytes: float
    bytes_per_rank: float
    path_bytes: float
    host_bytes: float


def check_layout(
    shape: ModelShape, layout: Layout, *, dp_shares_experts: bool = True
) -> None:
    """Refuse a layout that the model can not take.

    Raises:
        RecipeError: A degree is below one, more stages than layers, or an EP that
            does not divide.
    """
    for name in ("tp", "dp", "pp", "ep", "dcp"):
        degree = getattr(layout, name)
        if degree < 1:
            raise RecipeError(f"--{name}", f"{degree}", "1 or more")
    if layout.pp > shape.n_layers:
        raise RecipeError(
            "--pp", f"{layout.pp} stages", f"at most {shape.n_layers} (one a layer)"
        )
    if layout.tp % layout.dcp:
        raise RecipeError(
            "--dcp", f"{layout.dcp} does not divide tp = {layout.tp}", "a divisor of it"
        )
    if layout.ep == 1:
        return
    if shape.experts is None:
        raise RecipeError(
            "--ep", f"{layout.ep}", "1: the model has no experts", "Leave --ep away"
        )
    if shape.experts.n % layout.ep:
        raise RecipeError(
            "--ep",
            f"{layout.ep} does not divide the {shape.experts.n} experts of a layer",
            "a divisor of it",
        )
    group = layout.tp * (layout.dp if dp_shares_experts else 1)
    if group % layout.ep:
        raise RecipeError(
            "--ep",
            f"{layout.ep} does not divide the {group} ranks of tp x dp",
            "experts are spread over the ranks of tensor and data parallelism",
            f"Give --dp {layout.ep} or --tp {layout.ep} with it",
        )


def weight_share(weight: Weight, layout: Layout, *, dp_shares_experts: bool) -> float:
    """Return the part of a weight that one rank of its stage keeps.

    With or without EP a rank holds 1/(tp x dp) of the experts' bytes: whole experts
    under EP, slices of all of them otherwise.
    """
    if weight.split == "replicated":
        return 1.0
    if weight.split == "experts":
        return 1.0 / (layout.tp * (layout.dp if dp_shares_experts else 1))
    if weight.split == "kv":
        return max(1.0 / layout.tp, 1.0 / max(weight.n_heads, 1))
    return 1.0 / layout.tp


def step_bytes(
    shape: ModelShape,
    layout: Layout,
    batch: float,
    context: float,
    options: StepOptions = DEFAULTS,
) -> StepBytes:
    """Return the bytes that one decode step must read on one rank.

    Question: how little can a step move?
    Formula: sum of dense weights / TP + coverage x experts / (TP x DP) + sequences x
        KV reads. Floor in seconds: ``path_bytes`` / bandwidth.
    Assumes: every weight and KV entry is read once a step; ranks are loaded alike;
        under PP the batch runs as one micro-batch a stage.
    Leaves out: activations, KV writes, collectives (``physics.comm``), arithmetic
        (``physics.roof``), drafts, and caches that would keep weights on chip.

    Args:
        shape: The model.
        layout: Degrees of parallelism.
        batch: Sequences in flight over all data parallel ranks.
        context: Tokens that each sequence has so far.
        options: The rest.

    Raises:
        RecipeError: The layout does not fit the model.
    """
    check_layout(shape, layout, dp_shares_experts=options.dp_shares_experts)
    seqs = batch / layout.dp / layout.pp
    tokens = seqs * options.tokens_per_sequence
    covered = None
    if shape.experts is not None:
        routed = tokens * (layout.dp if options.dp_shares_experts else 1)
        covered = coverage(
            routed, shape.experts.n, shape.experts.per_token, options.routing
        )
    stages = _stages(shape, layout, seqs, context, options)
    parts = [(d, e * (covered or 0.0), k) for d, e, k in stages]
    heaviest = max(parts, key=sum)
    return StepBytes(
        seqs_per_rank=seqs,
        coverage=covered,
        dense_bytes=heaviest[0],
        expert_bytes=heaviest[1],
        kv_bytes=heaviest[2],
        bytes_per_rank=sum(heaviest),
        path_bytes=sum(sum(p) for p in parts),
        host_bytes=_host_bytes(shape, tokens, options),
    )


def _stages(
    shape: ModelShape,
    layout: Layout,
    seqs: float,
    context: float,
    options: StepOptions,
) -> list[tuple[float, float, float]]:
    where = stage_of(shape.n_layers, layout.pp)
    tokens = seqs * options.tokens_per_sequence
    dense, expert, kv = ([0.0] * layout.pp for _ in range(3))
    for weight in shape.weights:
        stage = layout.pp - 1 if weight.layer is None else where[weight.layer]
        share = weight_share(
            weight, layout, dp_shares_experts=options.dp_shares_experts
        )
        if weight.read == "step":
            dense[stage] += weight.n_bytes * share
        elif weight.read == "coverage":
            expert[stage] += weight.n_bytes * share
        elif weight.read == "gather" and weight.n_rows:
            if is_table(weight) and options.tables_offloaded:
                continue
            # However a table is spread, the ranks serve each other's tokens too.
            stage = 0 if weight.layer is None else stage
            dense[stage] += tokens * gathered_bytes(weight) / layout.tp
    for cache in shape.caches:
        share = rank_share(cache, layout.tp, layout.dcp)
        kv[where[cache.layer]] += (
            seqs * share * step_read_bytes(shape, cache, context, options.kv_dtype)
        )
    return list(zip(dense, expert, kv, strict=True))


def gathered_bytes(weight: Weight) -> float:
    """Return what one token gathers from a table."""
    assert weight.n_rows
    return weight.n_bytes / weight.n_rows * weight.rows_per_token


def _host_bytes(shape: ModelShape, tokens: float, options: StepOptions) -> float:
    if not options.tables_offloaded:
        return 0.0
    return tokens * sum(gathered_bytes(w) for w in shape.weights if is_table(w))
