"""KV accounting by vLLM's own allocation rules: blocks, groups, tokens that fit.

vLLM hands out blocks from one pool. Layers of one kind form groups of equal size; a
block holds one group's layers for ``block_tokens`` tokens, and a request takes blocks
from every group. "KV cache size: N tokens" is derived from that, not counted.
"""

from dataclasses import dataclass

import msgspec

from stepscope.errors import RefusedError
from stepscope.physics.kv import entry_bytes, rank_share
from stepscope.physics.model.records import Cache, ModelShape
from stepscope.physics.stages import stage_of
from stepscope.recipe.records import Layout

#: DeepSeek V4.1 pages are padded to a multiple of this, its window blocks hold so
#: many tokens and its compressed pages so many.
PAGE_ALIGN, WINDOW_BLOCK, COMPRESSED_BLOCK = 576, 32, 128


@dataclass(frozen=True, slots=True)
class KvRules:
    """What an engine's allocation depends on beside model and layout.

    Attributes:
        block_tokens: ``--block-size``; None: 16, or 128 for DeepSeek V4.1.
        max_batched_tokens: ``--max-num-batched-tokens``: a window must hold a chunk.
        batches_in_flight: 2 under asynchronous scheduling (vLLM 0.28 and later), 1
            before.
        kv_dtype: ``--kv-cache-dtype``.
        grow_blocks: Enlarge attention blocks to the size of a recurrent state, as
            vLLM does for hybrids.
    """

    block_tokens: int | None = None
    max_batched_tokens: int = 16_384
    batches_in_flight: int = 2
    kv_dtype: str = "auto"
    grow_blocks: bool = True


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers that share blocks.

    ``block_tokens`` None: one block a request, whatever its length. ``window`` None:
    it grows with the request.
    """

    kind: str
    n_layers: int
    block_tokens: int | None
    window: int | None = None


class KvPool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one rank's KV memory is handed out.

    Attributes:
        block_bytes: Bytes of one block, padding included.
        groups: Every group takes its own blocks of a request.
        max_batched_tokens: Prefill tokens that a window must hold on top.
    """

    block_bytes: int
    groups: tuple[Group, ...]
    max_batched_tokens: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes that each further token of a long request takes."""
        return sum(
            self.block_bytes / g.block_tokens
            for g in self.groups
            if g.block_tokens and g.window is None
        )

    def blocks_per_request(self, n_tokens: int, *, prefill: bool = True) -> int:
        """Return the blocks that a request of ``n_tokens`` takes.

        Args:
            n_tokens: Prompt and output.
            prefill: With the chunks in flight, as the engine reserves them; without:
                what a decoding request holds.
        """
        total = 0
        for group in self.groups:
            if group.block_tokens is None:
                total += 1
            elif group.window is None:
                total += -(-n_tokens // group.block_tokens)
            else:
                extra = self.max_batched_tokens if prefill else 0
                kept = min(group.window - 1 + max(extra, 1), n_tokens)
                total += -(-kept // group.block_tokens) + 1
        return total

    def fixed_bytes(self, n_tokens: int, *, prefill: bool = True) -> float:
        """Return what a request takes beyond its tokens' own bytes."""
        blocks = self.blocks_per_request(n_tokens, prefill=prefill)
        return blocks * self.block_bytes - n_tokens * self.bytes_per_token

    def n_blocks(self, budget_bytes: float) -> int:
        """Return the blocks that a budget holds."""
        return int(budget_bytes // self.block_bytes)


class KvCapacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine prints of its KV memory.

    Attributes:
        n_blocks: Blocks of the pool.
        blocks_per_request: Of a request of the longest context.
        max_concurrency: Requests of the longest context that fit at once.
        n_tokens: Tokens as the engine derives them.
    """

    n_blocks: int
    blocks_per_request: int
    max_concurrency: float
    n_tokens: int


def capacity(pool: KvPool, n_blocks: int, max_model_len: int) -> KvCapacity:
    """Return what vLLM prints for a pool of ``n_blocks``.

    Formula: concurrency = blocks / blocks per request; tokens = concurrency x context.
    Source: vLLM 0.28 to 0.33; earlier versions print blocks x block size / groups,
        which is the same for a pool of one group and a context of whole blocks.
    """
    per_request = pool.blocks_per_request(max_model_len)
    concurrency = n_blocks / per_request
    return KvCapacity(
        n_blocks=n_blocks,
        blocks_per_request=per_request,
        max_concurrency=concurrency,
        n_tokens=int(concurrency * max_model_len),
    )


def kv_pool(
    shape: ModelShape, layout: Layout | None = None, rules: KvRules | None = None
) -> KvPool:
    """Return the pool of the rank that keeps most.

    Raises:
        RefusedError: The engine's grouping for this mix of caches is not known.
    """
    layout, rules = layout or Layout(), rules or KvRules()
    stages = stage_of(shape.n_layers, layout.pp)
    pools = []
    for stage in range(layout.pp):
        caches = [c for c in shape.caches if c.allocated and stages[c.layer] == stage]
        if caches:
            pools.append(_pool(shape, caches, layout, rules))
    if not pools:
        raise RefusedError(shape.name, "a model without any cache", "nothing to count")
    return max(pools, key=lambda pool: pool.bytes_per_token)


def _pool(
    shape: ModelShape, caches: list[Cache], layout: Layout, rules: KvRules
) -> KvPool:
    chunk = rules.max_batched_tokens * rules.batches_in_flight
    if any(c.kind == "compressed" for c in caches):
        return _compressed(shape, caches, rules, chunk)
    if any(c.window is not None or c.kind == "state" for c in caches):
        return _grouped(shape, caches, layout, rules)
    # One group, whatever the sizes of its pages (latents and their index keys).
    block = rules.block_tokens or 16
    n_bytes = sum(_token_bytes(shape, c, layout, rules) for c in caches)
    group = Group(kind="full", n_layers=len(caches), block_tokens=block * layout.dcp)
    return KvPool(
        block_bytes=round(block * n_bytes), groups=(group,), max_batched_tokens=chunk
    )


def _token_bytes(
    shape: ModelShape, cache: Cache, layout: Layout, rules: KvRules
) -> float:
    """Bytes of one token on the rank that keeps it."""
    share = rank_share(cache, layout.tp, layout.dcp)
    whole = 1 if cache.window is not None else layout.dcp
    return share * whole * entry_bytes(shape, cache, rules.kv_dtype)


def _grouped(
    shape: ModelShape, caches: list[Cache], layout: Layout, rules: KvRules
) -> KvPool:
    """Layers of several kinds whose pages are, or are made, equal."""
    block = rules.block_tokens or 16
    states = [c for c in caches if c.kind == "state"]
    pages = {_token_bytes(shape, c, layout, rules) for c in caches if c.kind != "state"}
    if len(pages) != 1:
        raise RefusedError(
            shape.name,
            f"attention layers keep {sorted(pages)} bytes a token",
            "one size, or the grouping is not known",
        )
    page = pages.pop()
    state = max((s.state_bytes * rank_share(s, layout.tp) for s in states), default=0)
    if state and rules.grow_blocks:
        block = 16 * -(-round(state) // round(16 * page))
    by_kind: dict[tuple[str, int | None], int] = {}
    for cache in caches:
        key = (cache.kind, cache.window)
        by_kind[key] = by_kind.get(key, 0) + 1
    size = _group_size(list(by_kind.values()))
    groups: list[Group] = []
    for (kind, window), n in by_kind.items():
        tokens = None if kind == "state" else block
        tokens = tokens and tokens * (layout.dcp if window is None else 1)
        group = Group(kind=kind, n_layers=size, block_tokens=tokens, window=window)
        groups += [group] * -(-n // size)
    return KvPool(
        block_bytes=round(size * block * page),
        groups=tuple(groups),
        max_batched_tokens=rules.max_batched_tokens * rules.batches_in_flight,
    )


def _group_size(counts: list[int]) -> int:
    # vLLM: as large as the rarest kind, unless padding to the commonest is cheap.
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * 1.25 else smallest


def _compressed(
    shape: ModelShape, caches: list[Cache], rules: KvRules, chunk: int
) -> KvPool:
    if not any(c.n_readers > 1 for c in caches):
        raise RefusedError(
            shape.name,
            "every layer compresses for itself",
            "shared compression (DeepSeek V4.1): only its block rules are known",
        )
    block = rules.block_tokens or COMPRESSED_BLOCK

    def page(cache: Cache, tokens: int) -> int:
        n_bytes = tokens // cache.ratio * entry_bytes(shape, cache, rules.kv_dtype)
        return -(-round(n_bytes) // PAGE_ALIGN) * PAGE_ALIGN

    growing = [c for c in caches if c.window is None]
    windows = [c for c in caches if c.window is not None]
    n_bytes = sum(page(c, block) for c in growing)
    groups = [Group(kind="compressed", n_layers=len(growing), block_tokens=block)]
    if windows:
        fit = n_bytes // max(page(c, WINDOW_BLOCK) for c in windows)
        group = Group(
            kind="window",
            n_layers=fit,
            block_tokens=WINDOW_BLOCK,
            window=windows[0].window,
        )
        groups += [group] * -(-len(windows) // fit)
    # The compressor's ring of uncompressed tokens: one block a request.
    groups.append(Group(kind="ring", n_layers=1, block_tokens=None))
    return KvPool(block_bytes=n_bytes, groups=tuple(groups), max_batched_tokens=chunk)
