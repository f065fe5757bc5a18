"""What a sequence keeps, and what a decode step reads of it."""

import msgspec

from stepscope.errors import RecipeError
from stepscope.physics.model.records import Cache, ModelShape
from stepscope.physics.stages import stage_of
from stepscope.recipe.records import Layout

#: KV types by the names that engines use -> bytes of one number.
KV_DTYPES: dict[str, float] = {
    "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "fp32": 4, "float32": 4,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "nvfp4": 0.5 + 1 / 16,
}  # fmt: skip
#: Names of the packed forms that sparse latent attention brings itself.
PACKED = ("packed", "fp8_ds_mla")


class KvFootprint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What one rank keeps of one sequence, before any engine rounds to blocks.

    Attributes:
        bytes_per_token: Growth for each further token.
        bytes_per_request_fixed: What a long request keeps whatever its length:
            windows when full, recurrent states.
    """

    bytes_per_token: float
    bytes_per_request_fixed: float


def entry_bytes(shape: ModelShape, cache: Cache, kv_dtype: str = "auto") -> float:
    """Return the bytes of one entry of a cache, all heads.

    Args:
        shape: The model.
        cache: One of its caches; not a ``state``.
        kv_dtype: An engine's name; ``auto`` is what model or checkpoint ask for.

    Raises:
        RecipeError: The type is not known, or the model has no packed form.
    """
    if cache.fixed_entry_bytes is not None:
        return cache.fixed_entry_bytes
    dtype = shape.kv_dtype or "model" if kv_dtype == "auto" else kv_dtype
    if dtype == "model":
        return cache.n_elements * shape.element_bytes
    if dtype in PACKED or (dtype.startswith("fp8") and cache.packed_entry_bytes):
        if cache.packed_entry_bytes is None:
            raise RecipeError(
                "--kv-dtype", dtype, f"{shape.model_type} has no packed KV form"
            )
        return cache.packed_entry_bytes
    if dtype not in KV_DTYPES:
        raise RecipeError(
            "--kv-dtype", repr(dtype), f"auto, {', '.join((*KV_DTYPES, *PACKED))}"
        )
    return cache.n_elements * KV_DTYPES[dtype]


def rank_share(cache: Cache, tp: int, dcp: int = 1) -> float:
    """Return the part of a cache that one rank of a stage keeps.

    KV heads divide over tensor parallel ranks while there are enough of them; latents
    and index keys are whole on every rank. Decode context parallelism divides entries,
    not states.
    """
    share = max(1 / tp, 1 / max(cache.n_heads, 1))
    if cache.kind in ("state", "window"):
        return share
    return share / dcp


def entries_kept(cache: Cache, context: float) -> float:
    """Return the entries that a sequence of ``context`` tokens keeps."""
    if cache.window is not None:
        return min(context, cache.window)
    return context / cache.ratio


def entries_read(cache: Cache, context: float) -> float:
    """Return the entries that one decode step of one reader reads."""
    kept = entries_kept(cache, context)
    return kept if cache.top_k is None else min(kept, cache.top_k)


def step_read_bytes(
    shape: ModelShape, cache: Cache, context: float, kv_dtype: str = "auto"
) -> float:
    """Return what a decode step moves of one cache of one sequence, all ranks.

    A state is read and written back. The entry that a step adds is not counted.
    """
    if cache.kind == "state":
        return 2.0 * cache.state_bytes
    width = entry_bytes(shape, cache, kv_dtype)
    return entries_read(cache, context) * width * cache.n_readers


def footprint(
    shape: ModelShape, layout: Layout | None = None, *, kv_dtype: str = "auto"
) -> KvFootprint:
    """Return bytes per token and fixed bytes per request on one rank.

    Question: what does a token cost, and what a request?
    Assumes: the stage that keeps most; entries of a compressed cache cost
        ``entry / ratio`` a token.
    Leaves out: an engine's rounding to blocks and its reserve for prefill; see
        ``stepscope.physics.blocks``.
    """
    layout = layout or Layout()
    stages = stage_of(shape.n_layers, layout.pp)
    per_token, fixed = [0.0] * layout.pp, [0.0] * layout.pp
    for cache in shape.caches:
        if not cache.allocated:
            continue
        stage, share = stages[cache.layer], rank_share(cache, layout.tp, layout.dcp)
        if cache.kind == "state":
            fixed[stage] += share * cache.state_bytes
            continue
        width = share * entry_bytes(shape, cache, kv_dtype)
        if cache.window is not None:
            fixed[stage] += width * cache.window
        else:
            per_token[stage] += width / cache.ratio
    return KvFootprint(
        bytes_per_token=max(per_token), bytes_per_request_fixed=max(fixed)
    )
