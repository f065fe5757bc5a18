"""A model as a list of weights and caches; everything else is a sum over them."""

from typing import Literal

import msgspec

#: How a weight divides over the ranks of one stage.
#: ``tp``: evenly over tensor parallel ranks; ``kv``: over at most as many ranks as
#: there are KV heads; ``replicated``: whole on every rank; ``experts``: over the
#: whole expert group (tp x dp).
Split = Literal["tp", "kv", "replicated", "experts"]

#: When a decode step reads a weight. ``step``: always, whole; ``coverage``: as far as
#: its experts are hit; ``gather``: some rows a token; ``never``: not in decode.
Read = Literal["step", "coverage", "gather", "never"]

CacheKind = Literal["full", "window", "latent", "compressed", "index", "state", "ring"]


class Weight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One weight, or several alike, of one layer.

    Attributes:
        name: Module name below the layer, such as ``self_attn.q_proj``.
        layer: Index of the layer; None for what belongs to no layer.
        n_params: Parameters, scales and zero points not counted.
        n_bytes: Bytes as stored, scales and zero points included.
        split: How it divides over ranks.
        read: When a decode step reads it.
        n_heads: KV heads, for ``kv``.
        n_rows: Rows of a table that is gathered from; None for matrices.
        rows_per_token: Rows that one token gathers.
    """

    name: str
    layer: int | None
    n_params: int
    n_bytes: float
    split: Split
    read: Read
    n_heads: int = 0
    n_rows: int | None = None
    rows_per_token: int = 0


class Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one layer keeps of every sequence.

    Attributes:
        layer: Index of the layer that owns it.
        kind: ``full``, ``window``, ``latent`` (MLA), ``compressed``, ``index`` (of a
            sparse attention), ``state`` (constant a sequence) or ``ring``.
        n_elements: Numbers of one entry (a token, or ``ratio`` tokens), all heads.
        n_heads: KV heads over which tensor parallelism divides it; 1: replicated.
        window: Most recent tokens that are kept; None: all.
        ratio: Tokens that one entry stands for.
        top_k: Entries that one query reads; None: all that are kept.
        n_readers: Layers that read it; more than one where layers share it.
        fixed_entry_bytes: Bytes of an entry whatever the KV type; None: by type.
        packed_entry_bytes: Bytes of an entry in the model's own packed fp8 form.
        state_bytes: Bytes of a ``state``, whole.
        flops_per_entry: Operations of one token on one entry, all heads.
        allocated: False where it stands for further reads of another layer's cache.
    """

    layer: int
    kind: CacheKind
    n_elements: int = 0
    n_heads: int = 1
    window: int | None = None
    ratio: int = 1
    top_k: int | None = None
    n_readers: int = 1
    fixed_entry_bytes: int | None = None
    packed_entry_bytes: int | None = None
    state_bytes: int = 0
    flops_per_entry: int = 0
    allocated: bool = True


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The routed experts of a model; one layer's figures.

    Attributes:
        n: Routed experts a layer.
        per_token: Experts that one token uses.
        params_each: Parameters of one.
        bytes_each: Bytes of one, scales included.
        n_layers: Layers that have them.
        n_shared: Shared experts, always read (counted as dense).
    """

    n: int
    per_token: int
    params_each: int
    bytes_each: float
    n_layers: int
    n_shared: int = 0


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model: weights, caches, experts, and what had to be assumed.

    Attributes:
        name: ``_name_or_path`` or the architecture's name.
        model_type: As config.json spells it.
        n_layers: Decoder layers, drafts not counted.
        hidden_size: Width of the residual stream.
        vocab_size: Rows of the embedding.
        max_context: ``max_position_embeddings``; None where not given.
        weights: Every weight.
        caches: Every cache.
        experts: None for a dense model.
        weight_format: Name of the quantization, ``bf16`` where there is none.
        element_bytes: Bytes of an unquantized number.
        kv_dtype: KV type that the model or checkpoint asks for; None: its own type.
        stream_width: Residual streams (hyper-connections); 1 otherwise.
        n_attention_heads: Query heads of a layer; None where not given.
        assumptions: Sentences, printed with every figure.
    """

    name: str
    model_type: str
    n_layers: int
    hidden_size: int
    vocab_size: int
    max_context: int | None
    weights: tuple[Weight, ...]
    caches: tuple[Cache, ...]
    experts: Experts | None
    weight_format: str
    element_bytes: float
    kv_dtype: str | None = None
    stream_width: int = 1
    n_attention_heads: int | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def params_total(self) -> int:
        """Parameters of the language model, tables included, drafts not."""
        return sum(w.n_params for w in self.weights)

    @property
    def params_expert(self) -> int:
        """Parameters of all routed experts."""
        return sum(w.n_params for w in self.weights if w.read == "coverage")

    @property
    def params_table(self) -> int:
        """Parameters of lookup tables other than the embedding (Engram)."""
        return sum(w.n_params for w in self.weights if is_table(w))

    @property
    def params_active(self) -> int:
        """Non-expert weights, embedding and head included, plus one token's experts.

        Assumes: lookup tables other than the embedding count as the rows that one
            token gathers.
        """
        dense = sum(
            w.n_params for w in self.weights if w.read != "coverage" and not is_table(w)
        )
        rows = sum(
            w.n_params * w.rows_per_token // w.n_rows
            for w in self.weights
            if is_table(w) and w.n_rows
        )
        if self.experts is None:
            return dense + rows
        used = self.params_expert * self.experts.per_token // self.experts.n
        return dense + rows + used

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as stored."""
        return sum(w.n_bytes for w in self.weights)


def is_table(weight: Weight) -> bool:
    """Return whether a weight is a lookup table other than the token embedding."""
    return weight.read == "gather" and weight.layer is not None
