"""Where weights lie and what a step's dense reads consist of."""

from stepscope.physics.model.records import ModelShape, is_table
from stepscope.physics.stages import stage_of
from stepscope.physics.step import StepOptions, weight_share
from stepscope.recipe.records import Layout

#: First match of a weight's name decides its part.
PARTS: tuple[tuple[str, str], ...] = (
    ("indexer", "indexer"), ("compressor", "compressor"), ("engram", "engram"),
    ("attn", "attention"), ("mamba", "attention"), ("shared_expert", "shared experts"),
    ("mlp.gate.", "router"), ("mlp.gate_", "mlp"), ("mlp.gate", "router"),
    ("mlp", "mlp"), ("hc_", "hyper-connections"), ("lm_head", "head"),
    ("norm", "norms"),
)  # fmt: skip


def dense_parts(shape: ModelShape, layout: Layout) -> dict[str, float]:
    """Return the bytes that every step reads, by part, over all stages of one rank.

    They sum to the dense bytes of a step, gathered rows left out; under pipeline
    parallelism to those of all stages together.
    """
    found: dict[str, float] = {}
    for weight in shape.weights:
        if weight.read != "step":
            continue
        name = weight.name
        if name.startswith("hc_"):
            part = "hyper-connections"
        else:
            part = next((p for key, p in PARTS if key in name), "other")
        share = weight_share(weight, layout, dp_shares_experts=True)
        found[part] = found.get(part, 0.0) + weight.n_bytes * share
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def resident_bytes(shape: ModelShape, layout: Layout, options: StepOptions) -> float:
    """Return the weight bytes that the fullest rank holds.

    Leaves out: copies that an engine keeps in another type or layout, draft layers,
        towers for images.
    """
    stages = stage_of(shape.n_layers, layout.pp)
    held = [0.0] * layout.pp
    for weight in shape.weights:
        if options.tables_offloaded and is_table(weight):
            continue
        stage = layout.pp - 1 if weight.layer is None else stages[weight.layer]
        if weight.layer is None and weight.read == "gather":
            stage = 0
        held[stage] += weight.n_bytes * weight_share(
            weight, layout, dp_shares_experts=options.dp_shares_experts
        )
    return max(held)
