"""Dense MLPs, routed and shared experts."""

from stepscope.errors import RecipeError
from stepscope.physics.model import config as names
from stepscope.physics.model.build import Builder
from stepscope.physics.model.config import Config
from stepscope.physics.model.families import Family


def n_experts(config: Config) -> int:
    """Return the number of routed experts of a layer; 0 for a dense model."""
    n = config.count(*names.EXPERTS, default=0)
    return n if n > 1 else 0


def is_sparse(config: Config, layer: int) -> bool:
    """Return whether a layer's MLP is a mixture of experts.

    Understands ``mlp_layer_types``, ``first_k_dense_replace``, ``moe_layer_freq``,
    ``mlp_only_layers``, ``decoder_sparse_step``, ``moe_layers``,
    ``interleave_moe_layer_step`` and ``expert_layer_period``.
    """
    if not n_experts(config):
        return False
    kinds = config.texts("mlp_layer_types") or []
    if layer < len(kinds):
        return kinds[layer] == "sparse"
    if layer in (config.counts("mlp_only_layers") or ()):
        return False
    chosen = config.counts("moe_layers")
    if chosen:
        return layer in chosen
    interleave = config.count("interleave_moe_layer_step", default=1)
    step = config.count("decoder_sparse_step", default=1)
    period = config.count("expert_layer_period", default=1)
    offset = config.count("expert_layer_offset", default=1 if period > 1 else 0)
    if isinstance(config.get("moe_layer_freq"), list):
        listed = config.counts("moe_layer_freq") or []
        return layer < len(listed) and bool(listed[layer])
    freq = max(config.count("moe_layer_freq", default=1), 1)
    first = config.count("first_k_dense_replace", default=0)
    return (
        layer >= first
        and layer % freq == 0
        and (layer + 1) % max(step, 1) == 0
        and (layer + 1) % max(interleave, 1) == 0
        and layer % max(period, 1) == offset % max(period, 1)
    )


def dense(build: Builder, family: Family) -> None:
    """Add a dense MLP to the current layer."""
    config = build.config
    hidden = config.count(*names.HIDDEN)
    width = config.count("intermediate_size_mlp", *names.INTERMEDIATE)
    if not n_experts(config):  # Granite: what is shared is all there is
        width = config.count("shared_intermediate_size", default=width)
    _mlp(build, "mlp", hidden, width, gated=family.gated_mlp)
    if family.mlp_bias or config.flag("mlp_bias"):
        build.vector("mlp.bias", width * (1 + family.gated_mlp) + hidden, "tp")


def _mlp(build: Builder, name: str, hidden: int, width: int, *, gated: bool) -> None:
    if gated:
        build.matrix(f"{name}.gate_proj", (width, hidden))
    build.matrix(f"{name}.up_proj", (width, hidden))
    build.matrix(f"{name}.down_proj", (hidden, width))


def sparse(build: Builder, family: Family) -> None:
    """Add router, routed experts and shared experts to the current layer."""
    config = build.config
    hidden, n = config.count(*names.HIDDEN), n_experts(config)
    per_token = config.count(*names.TOP_K)
    if not 0 < per_token <= n:
        raise RecipeError(
            f"{config.where}: {names.TOP_K[0]}", f"{per_token}", f"1 to {n} experts"
        )
    width = expert_width(config, family)
    build.matrix("mlp.gate", (n, hidden), "replicated", role="plain")
    if family.router_bias or family.expert_bias:
        build.vector("mlp.gate.bias", n)
    n_up = 2 if family.gated_mlp else 1
    shapes = ((width, hidden),) * n_up + ((hidden, width),)
    bias = n_up * width + hidden if family.expert_bias else 0
    build.experts(n, shapes, bias)
    shared = shared_width(config, family)
    if shared:
        _mlp(build, "mlp.shared_experts", hidden, shared, gated=family.gated_mlp)
        if family.shared_gate:
            build.matrix(
                "mlp.shared_expert_gate", (1, hidden), "replicated", role="plain"
            )


def expert_width(config: Config, family: Family) -> int:
    """Return the inner width of one routed expert."""
    if family.wide_experts or config.get("interleave_moe_layer_step") is not None:
        return config.count(*names.EXPERT_WIDTH, *names.INTERMEDIATE)
    if config.get(*names.EXPERT_WIDTH) is None:
        config.assume(
            "No moe_intermediate_size: intermediate_size is taken as an expert's width."
        )
    return config.count(*names.EXPERT_WIDTH, *names.INTERMEDIATE)


def shared_width(config: Config, family: Family) -> int:
    """Return the inner width of all shared experts of a layer together."""
    given = config.maybe(
        "shared_expert_intermediate_size", "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
    )  # fmt: skip
    if given is not None:
        return given
    if config.get("interleave_moe_layer_step") is not None:
        return config.count(*names.INTERMEDIATE)  # Llama 4: always one
    n = config.count("n_shared_experts", "num_shared_experts", default=0)
    return n * expert_width(config, family) if n else 0
