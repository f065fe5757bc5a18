"""What config.json does not say: the habits of each architecture.

Sources: the public modelling code of each model type; the counts that follow are
checked against published totals in ``docs/physics/parameters.md``.
"""

from dataclasses import dataclass
from typing import Literal

Attention = Literal["grouped", "latent", "deepseek-v4"]


@dataclass(frozen=True, slots=True)
class Family:
    """Habits of one architecture.

    Attributes:
        attention: Kind of the attention layers.
        qkv_bias: Whether q, k and v have biases where the config does not say.
        o_bias: ``never``, ``with-qkv`` (where the config asks for biases), ``always``.
        qk_norm: ``none``, ``head`` (one weight a head dimension) or ``full``.
        n_norms: Norms of a layer.
        norm_bias: Whether norms have biases (LayerNorm).
        gated_attention: Whether queries carry an output gate as wide as they are.
        sinks: Whether each head has a sink.
        gated_mlp: Whether the MLP has a gate beside its up-projection.
        mlp_bias: Whether MLP matrices have biases.
        expert_bias: Whether experts and router have biases.
        router_bias: Whether the router has one correction a expert.
        wide_experts: Whether ``intermediate_size`` is an expert's width.
        shared_gate: Whether the shared expert has a scalar gate.
        tied: Whether head and embedding are one matrix where the config is silent.
        head_bias: Whether the head has a bias.
        layers: Rule for the kinds of layers where ``layer_types`` is absent.
        mixer: What a ``linear`` or ``mamba`` layer is.
        single: Whether a layer is one block, either a mixer, attention or an MLP.
        defaults: Fields that published configs leave to the architecture's defaults.
    """

    attention: Attention = "grouped"
    qkv_bias: bool = False
    o_bias: Literal["never", "with-qkv", "always"] = "with-qkv"
    qk_norm: Literal["none", "head", "full"] = "none"
    n_norms: int = 2
    norm_bias: bool = False
    gated_attention: bool = False
    sinks: bool = False
    gated_mlp: bool = True
    mlp_bias: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    wide_experts: bool = False
    shared_gate: bool = False
    tied: bool = False
    head_bias: bool = False
    layers: str = "all-full"
    mixer: str = ""
    single: bool = False
    defaults: tuple[tuple[str, int], ...] = ()


LLAMA = Family()
QWEN2 = Family(qkv_bias=True, o_bias="never", layers="qwen2-window")
QWEN3 = Family(qk_norm="head", layers="qwen2-window")
QWEN_NEXT = Family(
    qk_norm="head", gated_attention=True, shared_gate=True,
    layers="full-interval", mixer="gated-delta",
)  # fmt: skip
MLA = Family(attention="latent", router_bias=True)
MISTRAL = Family(layers="all-window")
GEMMA3 = Family(
    n_norms=4, qk_norm="head", tied=True, layers="pattern",
    defaults=(
        ("num_attention_heads", 8), ("num_key_value_heads", 4), ("head_dim", 256),
        ("vocab_size", 262208), ("max_position_embeddings", 131072),
    ),
)  # fmt: skip
GLM = Family(o_bias="never", router_bias=True, qk_norm="head")

#: model_type -> habits. A type that is not here is refused.
FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "llama4": Family(layers="llama4"),
    "llama4_text": Family(layers="llama4"),
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "ministral3": MISTRAL,
    "mixtral": Family(wide_experts=True, layers="all-window"),
    "qwen2": QWEN2,
    "qwen2_moe": Family(qkv_bias=True, o_bias="never", shared_gate=True),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen3_vl_moe_text": QWEN3,
    "qwen3_next": QWEN_NEXT,
    "qwen3_5": QWEN_NEXT,
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe": QWEN_NEXT,
    "qwen3_5_moe_text": QWEN_NEXT,
    "gpt_oss": Family(
        qkv_bias=True, o_bias="always", sinks=True, expert_bias=True,
        wide_experts=True, layers="alternate",
    ),
    "glm4_moe": GLM,
    "glm_moe_dsa": MLA,
    "glm4_moe_lite": MLA,
    "minimax_m2": Family(qk_norm="full", router_bias=True, wide_experts=True),
    "minimax": Family(
        wide_experts=True, layers="attn-type-list", mixer="lightning"
    ),
    "minimax_text_01": Family(
        wide_experts=True, layers="attn-type-list", mixer="lightning"
    ),
    "deepseek_v2": Family(attention="latent"),
    "deepseek_v3": MLA,
    "deepseek_v32": MLA,
    "kimi_k2": MLA,
    "mistral_large_3": MLA,
    "deepseek_v4": Family(attention="deepseek-v4", router_bias=True),
    "deepseek_v41": Family(attention="deepseek-v4", router_bias=True),
    "deepseek_v41_text": Family(attention="deepseek-v4", router_bias=True),
    "gemma": Family(tied=True),
    "gemma2": Family(n_norms=4, tied=True, layers="alternate"),
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "phi": Family(
        qkv_bias=True, o_bias="always", n_norms=1, norm_bias=True, gated_mlp=False,
        mlp_bias=True, head_bias=True,
    ),
    "phi3": Family(layers="all-window"),
    "phimoe": Family(norm_bias=True, head_bias=True, wide_experts=True),
    "olmo2": Family(qk_norm="full"),
    "granitemoehybrid": Family(
        tied=True, layers="layer-types", mixer="mamba2", wide_experts=True
    ),
    "nemotron_h": Family(
        gated_mlp=False, router_bias=True, n_norms=1, layers="override-pattern",
        mixer="mamba2", single=True,
    ),
    "kimi_linear": Family(
        attention="latent", router_bias=True, layers="kimi-linear", mixer="kda"
    ),
    "bamba": Family(layers="bamba", mixer="mamba2"),
    "jamba": Family(layers="jamba", mixer="mamba1", wide_experts=True),
}  # fmt: skip
