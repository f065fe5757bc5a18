"""Attention with keys and values kept per token: grouped heads and MLA."""

from stepscope.errors import RecipeError
from stepscope.physics.model import config as names
from stepscope.physics.model.build import Builder
from stepscope.physics.model.families import Family
from stepscope.physics.model.records import Cache

#: Bytes of one token's index key in fp8: 128 numbers and one fp32 scale.
INDEX_SCALE_BYTES = 4


def head_dim(build: Builder) -> int:
    """Return the width of one head: given, or hidden size over heads."""
    config = build.config
    given = config.maybe("head_dim", "attention_head_dim", "kv_channels")
    if given:
        return given
    hidden, heads = config.count(*names.HIDDEN), config.count(*names.HEADS)
    if heads == 0 or hidden % heads:
        raise RecipeError(
            f"{config.where}: hidden_size",
            f"{hidden} does not divide by {heads} heads",
            "a field head_dim",
        )
    return hidden // heads


def grouped(build: Builder, family: Family, kind: str) -> None:
    """Add grouped-query attention to the current layer.

    Args:
        build: The model.
        family: The architecture's habits.
        kind: ``full``, ``window`` or ``chunk``.
    """
    config = build.config
    hidden, heads = config.count(*names.HIDDEN), config.count(*names.HEADS)
    kv_heads = config.count(*names.KV_HEADS, default=heads)
    width = head_dim(build)
    if kv_heads == 0 or heads % kv_heads:
        raise RecipeError(
            f"{config.where}: num_key_value_heads",
            f"{kv_heads}",
            f"a divisor of num_attention_heads ({heads})",
        )
    queries = heads * width * (2 if family.gated_attention else 1)
    build.matrix("self_attn.q_proj", (queries, hidden))
    for name in ("k_proj", "v_proj"):
        build.matrix(
            f"self_attn.{name}", (kv_heads * width, hidden), "kv", n_heads=kv_heads
        )
    build.matrix("self_attn.o_proj", (hidden, heads * width))
    qkv_bias = config.get("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias")
    if family.qkv_bias if qkv_bias is None else qkv_bias:
        build.vector("self_attn.qkv_bias", queries + 2 * kv_heads * width)
    if family.o_bias == "always" or (family.o_bias == "with-qkv" and qkv_bias):
        build.vector("self_attn.o_bias", hidden)
    if family.qk_norm == "head" and config.flag("use_qk_norm", default=True):
        build.vector("self_attn.qk_norm", 2 * width)
    elif family.qk_norm == "full":
        build.vector("self_attn.qk_norm", (heads + kv_heads) * width)
    if family.sinks:
        build.vector("self_attn.sinks", heads)
    assert build.layer is not None
    window = _window(build, kind)
    build.cache(
        Cache(
            layer=build.layer,
            kind="full" if window is None else "window",
            n_elements=2 * kv_heads * width,
            n_heads=kv_heads,
            window=window,
            flops_per_entry=4 * heads * width,
        )
    )


def _window(build: Builder, kind: str) -> int | None:
    if kind == "full":
        return None
    if kind == "chunk":
        return build.config.count("attention_chunk_size", default=8192)
    return build.config.count("sliding_window", "sliding_window_size")


def latent(build: Builder) -> None:
    """Add multi-head latent attention (MLA) to the current layer.

    One latent and one rotary key a token, the same for all heads: tensor parallelism
    divides the heads' projections and replicates the down-projections and the cache.
    """
    config = build.config
    hidden, heads = config.count(*names.HIDDEN), config.count(*names.HEADS)
    rank, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
    nope = config.count("qk_nope_head_dim")
    value = config.count("v_head_dim")
    q_rank = config.maybe("q_lora_rank")
    q_inputs = hidden
    if q_rank:
        build.matrix("self_attn.q_a_proj", (q_rank, hidden), "replicated")
        build.vector("self_attn.q_a_layernorm", q_rank)
        q_inputs = q_rank
    build.matrix("self_attn.q_b_proj", (heads * (nope + rope), q_inputs))
    build.matrix("self_attn.kv_a_proj_with_mqa", (rank + rope, hidden), "replicated")
    build.vector("self_attn.kv_a_layernorm", rank)
    build.matrix("self_attn.kv_b_proj", (heads * (nope + value), rank))
    build.matrix("self_attn.o_proj", (hidden, heads * value))
    assert build.layer is not None
    top_k = config.maybe("index_topk") or None
    build.cache(
        Cache(
            layer=build.layer,
            kind="latent",
            n_elements=rank + rope,
            top_k=top_k,
            # Sparse MLA's own form: fp8 latent, fp32 scale for each 128, bf16 rope.
            packed_entry_bytes=rank + rank // 128 * 4 + 2 * rope if top_k else None,
            flops_per_entry=2 * heads * (2 * rank + rope),
        )
    )
    kinds = config.texts("indexer_types") or []
    own = build.layer >= len(kinds) or kinds[build.layer] == "full"
    if top_k and own:
        _indexer(build, q_inputs)


def _indexer(build: Builder, q_inputs: int) -> None:
    config = build.config
    hidden = config.count(*names.HIDDEN)
    heads, width = config.count("index_n_heads"), config.count("index_head_dim")
    build.matrix("self_attn.indexer.wq_b", (heads * width, q_inputs), "replicated")
    build.matrix("self_attn.indexer.wk", (width, hidden), "replicated")
    build.vector("self_attn.indexer.k_norm", 2 * width)
    build.matrix(
        "self_attn.indexer.weights_proj", (heads, hidden), "replicated", role="plain"
    )
    assert build.layer is not None
    build.cache(
        Cache(
            layer=build.layer,
            kind="index",
            n_elements=width,
            fixed_entry_bytes=width + INDEX_SCALE_BYTES,
            flops_per_entry=2 * heads * width,
        )
    )
