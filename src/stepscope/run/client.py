"""The client's own health: what lets a cell convict its client, or acquit it."""

import msgspec

#: Client TPOT over the server's own: up to the first the two agree, above the second
#: a cell is void (design.md, section 2).
GAP_OK_PCT, GAP_VOID_PCT = 3.0, 5.0
#: Reads without a kernel stamp that leave the arrivals the kernel's, percent.
_UNSTAMPED_PCT = 1.0


class Delay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """User stamp minus kernel stamp over all reads, milliseconds."""

    mean: float
    p99: float
    max: float


class ClientNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several machines that the load came from.

    Attributes:
        name: Its host name and address.
        workers: Numbers of its client processes.
        clock_offset_ms: Its monotonic clock minus that of the machine that asked,
            before the cell; its requests have been moved by it.
        clock_error_ms: How wrong that can be at any time of the cell: instants of two
            machines differ by what is true give or take the sum of both. None: the
            machine was lost before its clock was read again.
        delay_ms: As of ``ClientHealth``, and so are the next.
        busy_pct: Busy share of its busiest loop.
        cpu_pct_max: CPU of its busiest process.
        held_pct: Requests in flight over those asked for.
        verdict: ``ok``, ``limited``, or ``lost``: none of its workers lived.
        reasons: Why it is limited.
    """

    name: str
    workers: tuple[int, ...]
    clock_offset_ms: float
    clock_error_ms: float | None
    delay_ms: Delay | None
    busy_pct: float | None
    cpu_pct_max: float | None
    held_pct: float | None
    verdict: str
    reasons: tuple[str, ...] = ()


class ClientHealth(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How well the load client kept up during one cell.

    Attributes:
        processes: Client processes.
        loop: ``uvloop`` or ``asyncio``.
        stamps: ``kernel`` (SO_TIMESTAMPNS) or ``user``.
        delay_ms: Queueing delay inside the client; with user stamps the bound from
            the previous poll.
        unstamped_pct: Reads without a kernel stamp, of all reads.
        merged_reads_pct: Reads that held more than one content chunk, of all reads;
            the server merges too, so alone it convicts nobody.
        busy_pct: Busy share of the busiest event loop; time in which another process
            had the core counts as busy.
        cpu_pct_max: CPU of the busiest client process, percent of one core.
        waited_pct: Share of the cell in which the client process that waited most was
            ready to run and had no core; None: the system does not say.
        late_sends_ms_p99: Lateness of sends against the moment a slot was free (or
            the schedule).
        held_pct: Requests in flight over those asked for, mean over the span in
            which requests were left to send.
        chunks_per_s_peak: Most content chunks in any one second.
        tokens_per_chunk_mean: Output tokens over content chunks.
        verdict: ``ok`` or ``limited``.
        reasons: Why it is limited.
        nodes: The machines that the load came from, where it was several's.
    """

    processes: int
    loop: str
    stamps: str
    delay_ms: Delay | None
    unstamped_pct: float | None
    merged_reads_pct: float | None
    busy_pct: float | None
    cpu_pct_max: float | None
    late_sends_ms_p99: float | None
    held_pct: float | None
    chunks_per_s_peak: float | None
    tokens_per_chunk_mean: float | None
    verdict: str
    reasons: tuple[str, ...] = ()
    waited_pct: float | None = None
    nodes: tuple[ClientNode, ...] = ()


def stamped_by_kernel(health: ClientHealth) -> bool:
    """Return whether arrivals are the kernel's: then no delay of ours is in them."""
    return health.stamps == "kernel" and (health.unstamped_pct or 0.0) <= _UNSTAMPED_PCT


def read_at_once(health: ClientHealth, server_tpot_ms: float) -> bool:
    """Return whether what a client's TPOT is above the server's was lost before it.

    Arrivals are stamped by the kernel, next to none waited for a read, and the client
    finds nothing that limited it.
    """
    delay, limited = health.delay_ms, health.verdict == "limited"
    if limited or delay is None or not stamped_by_kernel(health):
        return False
    return delay.mean <= server_tpot_ms * GAP_OK_PCT / 100


def most_added_pct(
    health: ClientHealth, server_tpot_ms: float, n_later: float
) -> float | None:
    """Return what reading late can have added to a client's TPOT at most, percent.

    TPOT is the time from the first content to the last over the tokens after the
    first, so a delay enters once and not once a token. Where several segments were
    read at once the stamp is the last one's: that can make TPOT too small, not too
    large.

    Args:
        health: What the client says of itself.
        server_tpot_ms: The server's own TPOT.
        n_later: Tokens after the first, of an answer.

    Returns:
        Percent of the server's TPOT; None where the kernel did not stamp.
    """
    if health.delay_ms is None or not stamped_by_kernel(health):
        return None
    return 100 * health.delay_ms.max / n_later / server_tpot_ms
