"""When a warm-up has settled: one law for whoever warms up and whoever reads it.

A block is one wave of the measured shape. Settled: the last three blocks are no faster
than the three before by more than 2 %, and nothing in them stalled or compiled.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from stepscope.run.requests import Request

#: Blocks on either side of the comparison.
SIDE = 3
#: Fewer blocks can not be judged.
LEAST_BLOCKS = 2 * SIDE
#: The upper bound of the rise that still counts as settled, in logs.
MOST_RISE = 0.02
#: A first token that took longer than so many median ones was a stall.
STALLED_TIMES = 10.0
#: A first block below this part of the slowest other is the cold start itself.
_COLD = 0.9
#: Upper 5 % point of Student's t with 2 (SIDE - 1) = 4 degrees of freedom.
_T = 2.1318468
_NS_PER_S = 1_000_000_000


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One warm-up block.

    Attributes:
        name: Its cell.
        tokens_per_s: Output tokens over first send to last content; None where
            nothing was answered.
        ttft_ns: First-token times of its requests, nanoseconds.
        n_compiled: Lines in the server's log about compiling or tuning while it ran.
    """

    name: str
    tokens_per_s: float | None
    ttft_ns: tuple[int, ...] = ()
    n_compiled: int = 0


class WarmUpVerdict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What came of a launch's warm-up.

    Attributes:
        settled: None: too few blocks to tell.
        n_blocks: Blocks that were run.
        most_blocks: Blocks that were allowed; None where nobody said.
        rise_bound_pct: The rise that the last six blocks still allow, percent: upper
            95 % bound, one-sided.
        why: What stood against it; empty where it settled.
        tokens_per_s: Throughput of the blocks that were judged, in order.
    """

    settled: bool | None
    n_blocks: int
    most_blocks: int | None = None
    rise_bound_pct: float | None = None
    why: str = ""
    tokens_per_s: tuple[float, ...] = ()


def block_of(name: str, requests: Sequence[Request], n_compiled: int = 0) -> Block:
    """Return a block from its requests: throughput over first send to last content."""
    timed = [
        r
        for r in requests
        if r.ok
        and r.first_content_at_ns is not None
        and r.last_content_at_ns is not None
    ]
    tokens = sum(r.output_tokens or 0 for r in timed)
    rate = None
    if tokens:
        begin = min(r.sent_at_ns for r in requests)
        took = max(r.last_content_at_ns or 0 for r in timed) - begin
        rate = tokens * _NS_PER_S / took if took > 0 else None
    ttft = tuple((r.first_content_at_ns or 0) - r.sent_at_ns for r in timed)
    return Block(name=name, tokens_per_s=rate, ttft_ns=ttft, n_compiled=n_compiled)


def rise_bound(rates: Sequence[float]) -> float:
    """Return the upper 95 % bound of the rise of log throughput over six blocks.

    Source: t with 4 degrees of freedom on mean(log, last 3) - mean(log, previous 3),
        variance pooled over both sides.
    Assumes: blocks of one shape, noise of one size. Asking again after each block
        stops at a lucky six now and then; docs/analysis/warm-up.md has the bias that
        this leaves.

    Args:
        rates: Throughput of ``LEAST_BLOCKS`` blocks, in order.
    """
    logs = [math.log(rate) for rate in rates]
    old, new = logs[:SIDE], logs[SIDE:]
    pooled = (statistics.variance(old) + statistics.variance(new)) / 2
    error = math.sqrt(pooled * 2 / SIDE)
    return statistics.fmean(new) - statistics.fmean(old) + _T * error


def judged(blocks: Sequence[Block], most_blocks: int | None = None) -> WarmUpVerdict:
    """Return whether the warm-up has settled, by its last six blocks.

    Blocks without an answer are not counted. A stall (a first token later than ten
    medians of these six blocks) or a compilation in the last three blocks is against
    it whatever the throughput says: a slow last block looks like no rise at all.
    """
    known = [b for b in blocks if b.tokens_per_s is not None]
    last = known[-LEAST_BLOCKS:]
    rates = tuple(b.tokens_per_s for b in last if b.tokens_per_s is not None)
    if len(last) < LEAST_BLOCKS:
        return WarmUpVerdict(
            settled=None,
            n_blocks=len(blocks),
            most_blocks=most_blocks,
            why=f"{len(last)} blocks; {LEAST_BLOCKS} are needed to tell",
            tokens_per_s=rates,
        )
    bound = rise_bound(rates)
    against = [_hard(block, last) for block in last[SIDE:]]
    if bound >= MOST_RISE:
        against.insert(
            0,
            f"the last {SIDE} blocks are {_apart(rates)} than the {SIDE} before, and at"
            f" most {100 * math.expm1(bound):.1f} % faster by how blocks scatter, where"
            f" at most {100 * MOST_RISE:.0f} % is settled"
            f" ({', '.join(f'{rate:.0f}' for rate in rates)} tokens/s){_cold(rates)}",
        )
    why = "; ".join(reason for reason in against if reason)
    return WarmUpVerdict(
        settled=not why,
        n_blocks=len(blocks),
        most_blocks=most_blocks,
        rise_bound_pct=100 * math.expm1(bound),
        why=why,
        tokens_per_s=rates,
    )


def _apart(rates: Sequence[float]) -> str:
    """Return how far the later blocks are from the earlier ones, in words."""
    logs = [math.log(rate) for rate in rates]
    moved = math.expm1(statistics.fmean(logs[SIDE:]) - statistics.fmean(logs[:SIDE]))
    return f"{abs(100 * moved):.1f} % {'faster' if moved >= 0 else 'slower'}"


def _cold(rates: Sequence[float]) -> str:
    """Return what to do where the first of the blocks alone stands apart."""
    others = list(rates[1:])
    warm = [statistics.fmean(others[: SIDE - 1]), *others]
    if rates[0] >= _COLD * min(others) or rise_bound(warm) >= MOST_RISE:
        return ""
    return "; the first alone is cold, and one block more leaves it behind"


def _hard(block: Block, beside: Sequence[Block]) -> str:
    """Return what disqualifies a block by itself; empty: nothing."""
    if block.n_compiled:
        return f"the server's log reports a compilation while {block.name} ran"
    usual = statistics.median(
        [at for each in beside for at in each.ttft_ns] or [math.inf]
    )
    slow = [at for at in block.ttft_ns if at > STALLED_TIMES * usual]
    if not slow:
        return ""
    requests = "1 request" if len(slow) == 1 else f"{len(slow)} requests"
    return (
        f"{requests} of {block.name} waited up to"
        f" {max(slow) / _NS_PER_S:.2f} s for a first token, the median one"
        f" {usual / _NS_PER_S:.3f} s"
    )
