"""From what the workers counted to the client's verdict on itself."""

from collections import Counter

import numpy as np

from stepscope.load.histogram import percentile_ns
from stepscope.load.spec import LoadSpec
from stepscope.load.worker import WorkerHealth
from stepscope.run.client import ClientHealth, Delay
from stepscope.units import ms

#: Above these the client disturbs what it measures. Source: clients that were slowed
#: on purpose against a server of known times; a loop above 80 % has no room for a
#: burst, and a slot that is empty 3 % of the time was not a closed loop.
_MOST_BUSY_PCT = 80.0
_LEAST_HELD_PCT = 97.0
#: The wall clock may drift this far in a cell before kernel stamps are doubted.
_MOST_DRIFT_NS = 1_000_000


def merged(
    parts: list[WorkerHealth], spec: LoadSpec, *, n_workers: int, lost: int
) -> ClientHealth:
    """Return the health of a whole cell.

    Args:
        parts: One a worker that lived to tell.
        spec: What was asked.
        n_workers: Workers started.
        lost: Workers that died.
    """
    if not parts:
        return _nothing(n_workers)
    reads = sum(p.n_reads for p in parts)
    counts = np.sum([p.delay_counts for p in parts], axis=0)
    n_stamped = int(counts.sum())
    delay = None
    if n_stamped:
        delay = Delay(
            mean=ms(sum(p.delay_total_ns for p in parts) / n_stamped),
            p99=ms(percentile_ns(counts, 99)),
            max=ms(max(p.delay_max_ns for p in parts)),
        )
    busy = max(100 * p.cpu_ns / max(p.wall_ns, 1) for p in parts)
    held = 100 * sum(p.held_area / p.held_ns for p in parts) / spec.concurrency
    chunks = sum(p.n_chunks for p in parts)
    per_second: Counter[int] = Counter()
    for part in parts:
        per_second.update(part.per_second)
    reasons = _reasons(parts, busy, held, lost)
    return ClientHealth(
        processes=n_workers,
        loop=parts[0].loop,
        stamps="kernel" if all(p.kernel_stamps for p in parts) else "user",
        delay_ms=delay,
        unstamped_pct=_share(sum(p.n_unstamped for p in parts), reads),
        merged_reads_pct=_share(sum(p.n_merged for p in parts), reads),
        busy_pct=busy,
        cpu_pct_max=busy,
        late_sends_ms_p99=_late(parts),
        held_pct=min(held, 100.0),
        chunks_per_s_peak=float(max(per_second.values())) if per_second else None,
        tokens_per_chunk_mean=(
            sum(p.output_tokens for p in parts) / chunks if chunks else None
        ),
        verdict="limited" if reasons else "ok",
        reasons=tuple(reasons),
    )


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _late(parts: list[WorkerHealth]) -> float | None:
    """The 99th percentile over all sends; each worker kept its latest 2 %."""
    kept = sorted((x for p in parts for x in p.latest_ns), reverse=True)
    if not kept:
        return None
    return ms(kept[min(sum(p.n_late for p in parts) // 100, len(kept) - 1)])


def _reasons(
    parts: list[WorkerHealth], busy: float, held: float, lost: int
) -> list[str]:
    found = []
    if busy > _MOST_BUSY_PCT:
        found.append(
            f"a client process was {busy:.0f} % busy, above {_MOST_BUSY_PCT:.0f} %"
        )
    if held < _LEAST_HELD_PCT:
        found.append(
            f"{held:.1f} % of the asked requests were in flight, below"
            f" {_LEAST_HELD_PCT:.0f} %"
        )
    if lost:
        found.append(f"{lost} client processes died")
    drift = max(abs(p.clock_drift_ns) for p in parts)
    if drift > _MOST_DRIFT_NS:
        found.append(f"the wall clock moved by {ms(drift):.1f} ms: stamps are in doubt")
    return found


def _nothing(n_workers: int) -> ClientHealth:
    return ClientHealth(
        processes=n_workers, loop="unknown", stamps="user", delay_ms=None,
        unstamped_pct=None, merged_reads_pct=None, busy_pct=None, cpu_pct_max=None,
        late_sends_ms_p99=None, held_pct=None, chunks_per_s_peak=None,
        tokens_per_chunk_mean=None, verdict="limited",
        reasons=("every client process died",),
    )  # fmt: skip
