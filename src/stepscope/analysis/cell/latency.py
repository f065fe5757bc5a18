"""Latencies and rates as the client saw them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.analysis.cell.chunks import Chunks
from stepscope.analysis.cell.columns import Columns
from stepscope.analysis.cell.window import Window
from stepscope.analysis.records import Stats
from stepscope.run.gaps import walked
from stepscope.units import NS_PER_MS

NO_STATS = Stats(mean=None, median=None, p90=None, p99=None, max=None)

#: A percentile needs this many values for a binomial bound on it to exist that is
#: worth printing: MLPerf's early-stopping floors.
N_FOR_P90 = 64
N_FOR_P99 = 662


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Decode efficiency and how well the throughput identity closes on it."""

    value: float
    residual: float


def stats(values_ns: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> Stats:
    """Return the distribution of durations in milliseconds.

    Percentiles interpolate linearly, as ``vllm bench serve`` does.
    """
    if values_ns.size == 0:
        return NO_STATS
    median, p90, p99 = np.percentile(values_ns, [50, 90, 99])
    return Stats(
        mean=float(values_ns.mean()) / NS_PER_MS,
        median=float(median) / NS_PER_MS,
        p90=float(p90) / NS_PER_MS,
        p99=float(p99) / NS_PER_MS,
        max=float(values_ns.max()) / NS_PER_MS,
        n=int(values_ns.size),
    )


def gap_stats(chunks: Chunks) -> Stats:
    """Return the distribution of the gaps between chunks, however many there are.

    Exact: percentiles are order statistics and what lies between two of them.
    """
    found = walked(chunks.gaps, (50.0, 90.0, 99.0))
    return Stats(
        mean=found.mean_ms,
        median=found.percentile_ms(50.0),
        p90=found.percentile_ms(90.0),
        p99=found.percentile_ms(99.0),
        max=None if found.longest is None else found.longest / NS_PER_MS,
        n=found.n,
    )


def summary_stats(figures: Mapping[str, float] | None, n: int) -> Stats:
    """Return a foreign file's own figures (milliseconds); what it lacks is None."""
    if not figures:
        return NO_STATS
    return Stats(
        mean=figures.get("mean"),
        median=figures.get("median", figures.get("p50")),
        p90=figures.get("p90"),
        p99=figures.get("p99"),
        max=figures.get("max"),
        n=n,
    )


def decode_efficiency(
    columns: Columns, span: Window, in_flight: float
) -> Efficiency | None:
    """Return the share of a request's time that it spends decoding: 1 - TTFT/E2EL.

    Checked through tokens/s = (mean in flight / TPOT) x efficiency x n / (n - 1),
    where TPOT is token-weighted and n / (n - 1) is the ratio of all output tokens to
    those after the first. With these the equality is an identity.

    Source: Little's law, written for the decoding part of a stay.
    Assumes: every request succeeded and had two tokens; otherwise None, since the
        in-flight average then holds stays that delivered nothing.

    Args:
        columns: The cell's requests.
        span: Its span.
        in_flight: Mean in flight over the span.
    """
    if not columns.counted.all():
        return None
    # From the send, also in an open loop: what waits in the client is not in flight.
    ttft = float((columns.first - columns.sent).sum())
    e2el = float((columns.last - columns.sent).sum())
    n_tokens = int(columns.tokens.sum())
    n_later = n_tokens - columns.n
    if e2el <= ttft or n_later < 1:
        return None
    value = 1 - ttft / e2el
    tpot = (e2el - ttft) / n_later
    measured = n_tokens / span.length_ns
    predicted = in_flight / tpot * value * n_tokens / n_later
    return Efficiency(value=value, residual=(predicted - measured) / measured)


def token_weighted_tpot_ns(columns: Columns) -> float | None:
    """Return all decode time over all tokens after the first, nanoseconds."""
    chosen = columns.counted
    n_later = int((columns.tokens[chosen] - 1).sum())
    if n_later < 1:
        return None
    return float((columns.last - columns.first)[chosen].sum()) / n_later


def chunks_per_token(columns: Columns) -> float | None:
    """Return content chunks over output tokens of successful requests.

    Below 1 the stream was merged: by a frontend that lags, by speculative decoding,
    or by an engine told to send several tokens at once.
    """
    chosen = columns.timed & columns.has_tokens & (columns.n_chunks > 0)
    n_tokens = int(columns.tokens[chosen].sum())
    return float(columns.n_chunks[chosen].sum()) / n_tokens if n_tokens else None
