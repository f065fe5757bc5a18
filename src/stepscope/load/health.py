"""From what the workers counted to the client's verdict on itself."""

from collections import Counter
from collections.abc import Sequence

from stepscope.load.messages import Tally
from stepscope.load.spread import Spread
from stepscope.run.client import ClientHealth, Delay
from stepscope.units import ms

#: With stamps of our own a delay is an error of the measurement.
MAX_USER_DELAY_PCT = 1.0
#: Kernel stamps do not carry the delay. It harms only when reads lag by a whole step,
#: so that the next tokens arrive before these were read. Measured: 2,048 streams that
#: start and end together make a p99 of half a step and no error (docs/client.md).
MAX_KERNEL_DELAY_PCT = 100.0
#: Each merged read makes one gap of nothing and one too long. Measured: 0.2 % left p99
#: ITL within 3 %, 0.9 % moved it by 15 %.
MAX_LATE_MERGED_PCT = 0.25
MAX_BUSY_PCT = 80.0
MIN_HELD_PCT = 97.0
#: An open loop's sends may be this late at p99; latencies count from when they were
#: due, so that what is beyond is the client's doing.
MAX_LATE_MS = 10.0
#: Share of a cell with requests left, below which held slots mean nothing, percent.
_LEAST_ASKED_PCT = 10.0
#: Fewer reads or sends than this make no 99th percentile.
_FEW_READS = 100


def client_health(
    tallies: Sequence[Tally], n_processes: int, lost: Sequence[str] = ()
) -> ClientHealth:
    """Merge what the workers counted and judge it.

    The verdict is ``limited`` when any of these holds: the p99 delay exceeds 1 % of
    the mean TPOT (100 % where the kernel stamps); more than 0.25 % of the reads may
    have been merged by the client; a loop was busy for more than 80 % of the cell, or
    its process used more than that of a core; less than 97 % of the slots were in use
    while requests were left and the server was not the reason; a worker was lost.

    Args:
        tallies: One for each worker that lived to give one.
        n_processes: Workers that were started.
        lost: One line for each worker that was lost.
    """
    delays, late_sends = Spread(), Spread()
    by_second: Counter[int] = Counter()
    for tally in tallies:
        delays.merge(tally.delays)
        late_sends.merge(tally.late_sends)
        by_second.update(tally.chunks_by_second)
    n_reads = sum(t.n_reads for t in tallies)
    n_unstamped = sum(t.n_unstamped for t in tallies)
    n_chunks = sum(t.n_chunks for t in tallies)
    held = [t for t in tallies if _was_asked_to_hold(t)]
    asked_ns = sum(t.asked_ns for t in held)
    held_ns = sum(t.held_ns for t in held)
    late_p99_ns = late_sends.quantile_ns(0.99)
    opened = [t for t in tallies if t.offered_ns is not None]
    kept_pct = _kept_pct(opened)
    stamps = "kernel" if n_reads and 2 * n_unstamped < n_reads else "user"
    delay = _delay(delays)
    busy_pct = _most(tallies, [t.busy_ns for t in tallies])
    cpu_pct = _most(tallies, [t.cpu_ns for t in tallies])
    reasons = [
        *lost,
        *_delay_reasons(tallies, delay, stamps, n_reads),
        *_load_reasons(held, busy_pct, cpu_pct, asked_ns),
        *_schedule_reasons(opened, late_p99_ns, kept_pct),
    ]
    return ClientHealth(
        processes=n_processes,
        loop=tallies[0].loop if tallies else "unknown",
        stamps=stamps,
        delay_ms=delay,
        unstamped_pct=_pct(n_unstamped, n_reads),
        merged_reads_pct=_pct(sum(t.n_merged for t in tallies), n_reads),
        busy_pct=busy_pct,
        cpu_pct_max=cpu_pct,
        late_sends_ms_p99=None if late_p99_ns is None else ms(late_p99_ns),
        held_pct=kept_pct if opened else _pct(held_ns, asked_ns),
        chunks_per_s_peak=float(max(by_second.values())) if by_second else None,
        tokens_per_chunk_mean=(
            sum(t.output_tokens for t in tallies) / n_chunks if n_chunks else None
        ),
        verdict="limited" if reasons else "ok",
        reasons=tuple(reasons),
        waited_pct=_waited_pct(tallies),
    )


def _was_asked_to_hold(tally: Tally) -> bool:
    """Return False for a cell of one wave: its requests are out at once.

    Requests are then left only while the first are handed over, a moment that says
    nothing of how full the slots were kept.
    """
    whole_ns = tally.wall_ns * tally.n_slots
    return 100 * tally.asked_ns >= _LEAST_ASKED_PCT * whole_ns


def _delay(delays: Spread) -> Delay | None:
    mean, p99, most = delays.mean_ns, delays.quantile_ns(0.99), delays.max_ns
    if mean is None or p99 is None or most is None:
        return None
    return Delay(mean=ms(mean), p99=ms(p99), max=ms(most))


def _delay_reasons(
    tallies: Sequence[Tally], delay: Delay | None, stamps: str, n_reads: int
) -> list[str]:
    reasons = []
    n_tpot = sum(t.n_tpot for t in tallies)
    tpot_ms = ms(sum(t.tpot_sum_ns for t in tallies) / n_tpot) if n_tpot else 0.0
    limit_pct = MAX_KERNEL_DELAY_PCT if stamps == "kernel" else MAX_USER_DELAY_PCT
    if delay is not None and tpot_ms and n_reads >= _FEW_READS:
        share = 100 * delay.p99 / tpot_ms
        if share > limit_pct:
            reasons.append(
                f"p99 delay {delay.p99:.3f} ms is {share:.1f} % of the mean TPOT"
                f" ({tpot_ms:.3f} ms), above {limit_pct:g} % with {stamps} stamps"
            )
    late = _pct(sum(t.n_late_merged for t in tallies), n_reads)
    if late is not None and n_reads >= _FEW_READS and late > MAX_LATE_MERGED_PCT:
        reasons.append(
            f"{late:.1f} % of the reads held several chunks after waiting here for"
            f" up to 1 ms or more, above {MAX_LATE_MERGED_PCT:g} %"
        )
    return reasons


def _load_reasons(
    tallies: Sequence[Tally],
    busy_pct: float | None,
    cpu_pct: float | None,
    asked_ns: int,
) -> list[str]:
    reasons = []
    if cpu_pct is not None and cpu_pct > MAX_BUSY_PCT:
        reasons.append(
            f"a client process used {cpu_pct:.0f} % of a core, above {MAX_BUSY_PCT:g} %"
        )
    if busy_pct is not None and busy_pct > MAX_BUSY_PCT:
        reasons.append(
            f"a client loop was busy for {busy_pct:.0f} % of the cell, above"
            f" {MAX_BUSY_PCT:g} %"
        )
    used = _pct(sum(t.held_ns + t.blocked_ns for t in tallies), asked_ns)
    if used is not None and used < MIN_HELD_PCT:
        reasons.append(
            f"{used:.1f} % of the slots were in use while requests were left, below"
            f" {MIN_HELD_PCT:g} %"
        )
    return reasons


def _kept_pct(opened: Sequence[Tally]) -> float | None:
    """Return the rate achieved over the rate offered, percent; at most 100."""
    spans = [(t.offered_ns, t.achieved_ns) for t in opened]
    offered = max((o for o, _ in spans if o is not None), default=0)
    achieved = max((a for _, a in spans if a is not None), default=0)
    # A burst that is due at once has no rate.
    return min(100.0, 100 * offered / achieved) if offered and achieved else None


def _schedule_reasons(
    opened: Sequence[Tally], late_p99_ns: float | None, kept_pct: float | None
) -> list[str]:
    """Say where the client itself was late; a cap on requests in flight is no fault."""
    if not opened or any(t.capped for t in opened):
        return []
    reasons = []
    many = sum(t.n_ok + t.n_failed for t in opened) >= _FEW_READS
    if many and late_p99_ns is not None and ms(late_p99_ns) > MAX_LATE_MS:
        reasons.append(
            f"the p99 of sends was {ms(late_p99_ns):.1f} ms late, above"
            f" {MAX_LATE_MS:g} ms"
        )
    if kept_pct is not None and kept_pct < MIN_HELD_PCT:
        reasons.append(
            f"{kept_pct:.1f} % of the offered rate was achieved, below"
            f" {MIN_HELD_PCT:g} %"
        )
    return reasons


def _waited_pct(tallies: Sequence[Tally]) -> float | None:
    told = [t for t in tallies if t.waited_ns is not None]
    return _most(told, [t.waited_ns or 0 for t in told])


def _most(tallies: Sequence[Tally], parts_ns: list[int]) -> float | None:
    """Return the largest share that a worker spent, percent of its cell."""
    shares = [
        100 * part / tally.wall_ns
        for tally, part in zip(tallies, parts_ns, strict=True)
        if tally.wall_ns
    ]
    return max(shares, default=None)


def _pct(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None
