"""A cell in the words of ``vllm bench serve``: same fields, same formulas.

Differences, all on purpose: what is unknown is None and not 0, a request's output
tokens are the server's own count, and TTFT starts at the send on an open connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.run.requests import Request
from stepscope.units import NS_PER_S, ms, seconds

METRICS = (
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "client_queue_time",
    "e2el_including_client_queue",
)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Latencies of the successful requests in milliseconds, by metric name."""

    by_metric: Mapping[str, Values]


def samples(requests: Sequence[Request]) -> Samples:
    """Return TTFT, TPOT and E2EL of each successful request, and all chunk gaps.

    TPOT is (E2EL - TTFT) / (output tokens - 1) and leaves out answers of one token.
    ITL is the gap between content chunks of one request, pooled over requests.
    """
    ok = [r for r in requests if r.ok]
    gaps = [np.diff(r.chunks_ns) for r in ok]
    queued = queue_ns(requests)
    return Samples(
        {
            "client_queue_time": _ms([queued[r.index] for r in ok]),
            "e2el_including_client_queue": _ms(
                # E2EL of an open loop counts from when it was due already.
                [
                    queued[r.index] + (r.last_content_at_ns or 0) - r.sent_at_ns
                    for r in ok
                ]
            ),
            "ttfat": _ms([r.ttfat_ns for r in ok]),
            "ttft": _ms([r.ttft_ns for r in ok]),
            "tpot": _ms([r.tpot_ns for r in ok]),
            "itl": (np.concatenate(gaps) if gaps else np.zeros(0)) / 1e6,
            "e2el": _ms([r.e2el_ns for r in ok]),
        }
    )


def queue_ns(requests: Sequence[Request]) -> dict[int, int]:
    """Return how long each request waited in the client before its send, by index.

    From when it was due; in a closed loop, where all are due at once, from the first
    send.
    """
    start = min((r.sent_at_ns for r in requests), default=0)
    return {
        r.index: r.sent_at_ns
        - (start if r.intended_at_ns is None else r.intended_at_ns)
        for r in requests
    }


def _ms(values: Sequence[float | None]) -> Values:
    return np.array([ms(v) for v in values if v is not None], np.float64)


def span_s(requests: Sequence[Request]) -> float | None:
    """Return the time from the first send to the last end, seconds."""
    if not requests:
        return None
    start = min(r.sent_at_ns for r in requests)
    return seconds(max(r.ended_at_ns for r in requests) - start)


def totals(
    requests: Sequence[Request], goodput_ms: Mapping[str, float]
) -> dict[str, Any]:
    """Return counts and throughputs, in vLLM's order."""
    ok = [r for r in requests if r.ok]
    duration = span_s(requests)
    n_in = sum(r.prompt_tokens or 0 for r in ok)
    n_out = sum(r.output_tokens or 0 for r in ok)

    def rate(n: float) -> float | None:
        return n / duration if duration else None

    return {
        "duration": duration,
        "completed": len(ok),
        "failed": len(requests) - len(ok),
        "total_input_tokens": n_in,
        "total_output_tokens": n_out,
        "request_throughput": rate(len(ok)),
        "request_goodput": (
            rate(sum(_meets(r, goodput_ms) for r in ok)) if goodput_ms else None
        ),
        "output_throughput": rate(n_out),
        "total_token_throughput": rate(n_in + n_out),
    }


def _meets(request: Request, goodput_ms: Mapping[str, float]) -> bool:
    """Return whether a request keeps every limit; a missing TPOT breaks none."""
    found = {
        "ttft": request.ttft_ns,
        "tpot": request.tpot_ns,
        "e2el": request.e2el_ns,
    }
    for name, limit in goodput_ms.items():
        value = found[name]
        if value is not None and ms(value) > limit:
            return False
    return True


def peaks(requests: Sequence[Request]) -> dict[str, Any]:
    """Return vLLM's two peaks, counted by whole seconds from the first send.

    A second's concurrency counts every request that touches it, so it lies above what
    was ever in flight at once.
    """
    ok = [r for r in requests if r.ok and r.n_chunks]
    if not ok:
        return {"max_output_tokens_per_s": None, "max_concurrent_requests": None}
    start = min(r.sent_at_ns for r in ok)
    last = max(r.ended_at_ns for r in ok)
    n_bins = (last - start) // NS_PER_S + 1
    tokens, running = np.zeros(n_bins), np.zeros(n_bins, np.int64)
    for r in ok:
        at = (r.chunks_ns - start) // NS_PER_S
        each = (r.output_tokens or 0) / r.n_chunks
        tokens += np.bincount(at, minlength=n_bins) * each
        end = r.last_content_at_ns or r.ended_at_ns
        running[(r.sent_at_ns - start) // NS_PER_S : (end - start) // NS_PER_S + 1] += 1
    return {
        "max_output_tokens_per_s": float(tokens.max()),
        "max_concurrent_requests": int(running.max()),
    }


def by_replica(
    requests: Sequence[Request], base_urls: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what each of several servers did; empty for one."""
    if len(base_urls) < 2:
        return []
    found = []
    for number, url in enumerate(base_urls):
        own = [r for r in requests if r.replica == number]
        ok = [r for r in own if r.ok]
        found.append(
            {
                "base_url": url,
                "completed": len(ok),
                "failed": len(own) - len(ok),
                "output_tokens": sum(r.output_tokens or 0 for r in ok),
                "mean_ttft_ms": _mean([r.ttft_ns for r in ok]),
                "mean_tpot_ms": _mean([r.tpot_ns for r in ok]),
            }
        )
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = _ms(values)
    return float(known.mean()) if len(known) else None


def details(
    requests: Sequence[Request], texts: Mapping[int, str], input_tokens: int
) -> dict[str, Any]:
    """Return vLLM's per-request lists, in prompt order; times in seconds."""
    ordered = sorted(requests, key=lambda r: r.index)
    queued = queue_ns(requests)
    return {
        "input_lens": [r.prompt_tokens or input_tokens for r in ordered],
        "output_lens": [r.output_tokens if r.ok else 0 for r in ordered],
        "ttfts": [_seconds(r.ttft_ns) for r in ordered],
        "itls": [(np.diff(r.chunks_ns) / 1e9).tolist() for r in ordered],
        "latencies": [_seconds(r.e2el_ns) for r in ordered],
        "start_times": [seconds(r.sent_at_ns) for r in ordered],
        "queue_times": [seconds(queued[r.index]) for r in ordered],
        "generated_texts": [texts.get(r.index, "") for r in ordered],
        "errors": [
            "" if r.ok else f"{r.failure}: {r.failure_detail or ''}" for r in ordered
        ],
    }


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else seconds(value_ns)


def statistics(
    found: Samples, metrics: Sequence[str], percentiles: Sequence[float]
) -> dict[str, float | None]:
    """Return ``mean_ttft_ms`` and its like: mean, median, std, then percentiles.

    The standard deviation is the population's; percentiles are interpolated linearly.
    """
    result: dict[str, float | None] = {}
    for metric in metrics:
        values = found.by_metric[metric]
        some = len(values) > 0
        result[f"mean_{metric}_ms"] = float(np.mean(values)) if some else None
        result[f"median_{metric}_ms"] = float(np.median(values)) if some else None
        result[f"std_{metric}_ms"] = float(np.std(values)) if some else None
        for p in percentiles:
            value = float(np.percentile(values, p)) if some else None
            result[f"p{p:g}_{metric}_ms"] = value
    return result
