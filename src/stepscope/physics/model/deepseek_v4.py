"""DeepSeek V4 and V4.1: one shared KV head, compressed and sparse caches, Engram.

Sources: tensor names and shapes of the public checkpoints. V4: every layer with a
ratio owns a compressor, ratio 4 also an indexer. V4.1: only ``kv_source_layer_ids``
own compressed keys and only ``index_source_layer_ids`` own index queries; the layers
after them read theirs.
"""

from dataclasses import dataclass

from stepscope.errors import RecipeError
from stepscope.physics.model import config as names
from stepscope.physics.model.build import Builder
from stepscope.physics.model.records import Cache

FP32_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class Geometry:
    """The widths that V4 layers are made of."""

    hidden: int
    heads: int
    width: int
    rope: int
    q_rank: int
    index_heads: int
    index_width: int
    top_k: int
    ratios: tuple[int, ...]
    kv_sources: tuple[int, ...] | None
    index_sources: tuple[int, ...]
    candidate_layer: int | None
    candidate_tokens: int

    @property
    def entry_bytes(self) -> int:
        """Bytes of one packed entry: fp8, one scale byte for each 64, bf16 rope."""
        nope = self.width - self.rope
        return nope + 2 * self.rope + -(-(nope // 64) // 8) * 8

    @property
    def index_bytes(self) -> int:
        """Bytes of one index key: fp8 and one fp32 scale."""
        return self.index_width + 4


def geometry(build: Builder) -> Geometry:
    """Read the widths.

    Raises:
        RecipeError: A field is absent, or ``compress_ratios`` is too short.
    """
    config = build.config
    n_layers = config.count(*names.LAYERS)
    ratios = config.counts("compress_ratios")
    if ratios is None:
        raise config.missing(("compress_ratios",))
    if len(ratios) < n_layers:
        raise RecipeError(
            f"{config.where}: compress_ratios",
            f"{len(ratios)} entries",
            f"one for each of {n_layers} layers",
        )
    sources = config.counts("kv_source_layer_ids")
    kept = tuple(max(r, 0) for r in ratios[:n_layers])
    if sources is None:  # V4: ratio 1 and 0 both mean that nothing is compressed
        kept = tuple(0 if r == 1 else r for r in kept)
        finest = min(filter(None, kept), default=0)
        indexed = tuple(i for i, r in enumerate(kept) if r and r == finest)
    else:
        indexed = tuple(config.counts("index_source_layer_ids") or sources)
    return Geometry(
        hidden=config.count(*names.HIDDEN),
        heads=config.count(*names.HEADS),
        width=config.count("head_dim"),
        rope=config.count("qk_rope_head_dim"),
        q_rank=config.count("q_lora_rank"),
        index_heads=config.count("index_n_heads"),
        index_width=config.count("index_head_dim"),
        top_k=config.count("index_topk"),
        ratios=kept,
        kv_sources=None if sources is None else tuple(sources),
        index_sources=indexed,
        candidate_layer=config.maybe("candidate_source_layer_id"),
        candidate_tokens=config.count("candidate_topk_blocks", default=0)
        * config.count("candidate_block_size", default=1),
    )


def attention(build: Builder, geo: Geometry) -> None:
    """Add the attention of the current layer: queries, window, output, compressor."""
    config, layer = build.config, build.layer
    assert layer is not None
    groups, o_rank = config.count("o_groups"), config.count("o_lora_rank")
    if not groups:
        raise RecipeError(f"{config.where}: o_groups", "0", "1 or more")
    heads, width, hidden = geo.heads, geo.width, geo.hidden
    build.matrix("attn.wq_a", (geo.q_rank, hidden), "replicated")
    build.vector("attn.q_norm", geo.q_rank)
    build.matrix("attn.wq_b", (heads * width, geo.q_rank))
    build.matrix("attn.wkv", (width, hidden), "replicated")
    build.vector("attn.kv_norm", width)
    build.matrix("attn.wo_a", (groups * o_rank, heads * width // groups))
    build.matrix("attn.wo_b", (hidden, groups * o_rank))
    build.vector("attn.attn_sink", heads, n_bytes=FP32_BYTES)
    build.cache(
        Cache(
            layer=layer,
            kind="window",
            n_elements=width,
            window=config.count("sliding_window"),
            packed_entry_bytes=geo.entry_bytes,
            flops_per_entry=4 * heads * width,
        )
    )
    if geo.kv_sources is None:
        _own_compression(build, geo)
    else:
        _shared_compression(build, geo)


def _compressed(geo: Geometry, layer: int, *, n_readers: int, sparse: bool) -> Cache:
    return Cache(
        layer=layer,
        kind="compressed",
        n_elements=geo.width,
        ratio=geo.ratios[layer],
        top_k=geo.top_k if sparse else None,
        n_readers=n_readers,
        packed_entry_bytes=geo.entry_bytes,
        flops_per_entry=4 * geo.heads * geo.width,
    )


def _index(geo: Geometry, layer: int, n_readers: int, top_k: int | None) -> Cache:
    return Cache(
        layer=layer,
        kind="index",
        n_elements=geo.index_width,
        ratio=geo.ratios[layer],
        top_k=top_k,
        n_readers=n_readers,
        fixed_entry_bytes=geo.index_bytes,
        flops_per_entry=2 * geo.index_heads * geo.index_width,
        allocated=top_k is None,
    )


def _index_queries(build: Builder, geo: Geometry) -> None:
    build.matrix(
        "attn.indexer.wq_b", (geo.index_heads * geo.index_width, geo.q_rank),
        "replicated",
    )  # fmt: skip
    build.matrix(
        "attn.indexer.weights_proj", (geo.index_heads, geo.hidden), "replicated",
        role="plain",
    )  # fmt: skip


def _own_compression(build: Builder, geo: Geometry) -> None:
    layer = build.layer
    assert layer is not None
    ratio = geo.ratios[layer]
    if not ratio:
        return
    indexed = layer in geo.index_sources
    # The lightly compressed form overlaps its windows: two projections, not one.
    n = 2 if indexed else 1

    def compressor(name: str, width: int) -> None:
        for part in ("wkv", "wgate"):
            build.matrix(
                f"{name}.{part}", (n * width, geo.hidden), "replicated", role="plain"
            )
        build.vector(f"{name}.ape", ratio * n * width, n_bytes=FP32_BYTES)
        build.vector(f"{name}.norm", width)

    compressor("attn.compressor", geo.width)
    build.cache(_compressed(geo, layer, n_readers=1, sparse=indexed))
    if indexed:
        _index_queries(build, geo)
        compressor("attn.indexer.compressor", geo.index_width)
        build.cache(_index(geo, layer, 1, None))


def _shared_compression(build: Builder, geo: Geometry) -> None:
    layer, sources = build.layer, geo.kv_sources
    assert layer is not None
    assert sources is not None
    if layer in geo.index_sources:
        _index_queries(build, geo)
    if layer not in sources:
        return
    ratio = geo.ratios[layer]
    if not ratio:
        raise RecipeError(
            f"{build.config.where}: kv_source_layer_ids",
            f"layer {layer} compresses nothing",
            "a layer whose entry in compress_ratios is above 0",
        )
    parts = ("wkv", "wgate") if ratio > 1 else ("wkv",)
    for part in parts:
        build.matrix(
            f"attn.compressor.{part}", (geo.width, geo.hidden), "replicated",
            role="plain",
        )  # fmt: skip
    build.vector("attn.compressor.norm", geo.width)
    build.matrix(
        "attn.indexer.wk", (geo.index_width, geo.width), "replicated", role="plain"
    )
    build.vector("attn.indexer.k_norm", geo.index_width)
    later = [s for s in sources if s > layer]
    end = min(later, default=len(geo.ratios))
    readers = sum(1 for i in range(layer, end) if geo.ratios[i])
    build.cache(_compressed(geo, layer, n_readers=readers, sparse=True))
    queries = [i for i in geo.index_sources if layer <= i < end]
    first = geo.candidate_layer
    limited = [i for i in queries if first is not None and i > first]
    build.cache(_index(geo, layer, len(queries) - len(limited), None))
    if limited:
        tokens = geo.candidate_tokens // ratio
        build.cache(_index(geo, layer, len(limited), tokens))


def streams(build: Builder, geo: Geometry) -> None:
    """Add the hyper-connections of the current layer: fp32, one set for each half."""
    n = build.config.count("hc_mult", default=1)
    if n <= 1:
        return
    rows = (2 + n) * n
    for half in ("attn", "ffn"):
        build.vector(f"hc_{half}", rows * n * geo.hidden + rows + 3, n_bytes=FP32_BYTES)


def head_streams(build: Builder, geo: Geometry) -> None:
    """Add the hyper-connection that folds the streams before the head."""
    n = build.config.count("hc_mult", default=1)
    if n > 1:
        build.vector("hc_head", n * n * geo.hidden + n + 1, n_bytes=FP32_BYTES)


def engram(build: Builder, geo: Geometry) -> None:
    """Add the Engram module of the current layer, if it has one.

    A token gathers one row for each hash head of each n-gram length from two up.
    A row is fp8 with one e8m0 scale for each 32 numbers.
    """
    config, layer = build.config, build.layer
    layers = config.counts("engram_layer_ids") or []
    if layer not in layers:
        return
    tables = config.counts("engram_num_embeddings")
    if tables is None or len(tables) < len(layers):
        raise config.missing(("engram_num_embeddings",))
    width, heads = config.count("engram_head_dim"), config.count("engram_n_heads")
    rows = (config.count("engram_max_ngram_size") - 1) * heads
    n = config.count("hc_mult", default=1)
    build.table(
        "engram.embed", (tables[layers.index(layer)], width), rows, width + width / 32
    )
    build.matrix("engram.wkv", ((n + 1) * geo.hidden, rows * width), "replicated")
    build.vector("engram.qk_weights", 2 * n * geo.hidden)
