"""A cell in the words of ``vllm bench serve``: same fields, same formulas.

Differences, all on purpose: what is unknown is None and not 0, a request's output
tokens are the server's own count, and TTFT starts at the send on an open connection.

A cell is walked and not held: first its requests (``columns``), then its stamps, if
need be twice (``chunks``), so that memory does not grow with its tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stepscope.load.columns import UNKNOWN, Columns
from stepscope.load.server_tpot import Decoded
from stepscope.run.gaps import GapStatistics, gaps_of
from stepscope.run.requests import Request
from stepscope.units import NS_PER_S, seconds

Values = npt.NDArray[np.float64]
#: Chunks that are looked at together.
_BATCH = 1 << 16


class Stamped(Protocol):
    """What of a request tells when its chunks came: ``Stamps``, or ``Request``."""

    @property
    def sent_at_ns(self) -> int: ...  # noqa: D102
    @property
    def ended_at_ns(self) -> int: ...  # noqa: D102
    @property
    def last_content_at_ns(self) -> int | None: ...  # noqa: D102
    @property
    def output_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def n_chunks(self) -> int: ...  # noqa: D102
    @property
    def chunk_offsets_ns(self) -> bytes: ...  # noqa: D102
    @property
    def failure(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Chunks:
    """What the chunks of the successful requests say.

    Attributes:
        gaps: ITL: the gaps between content chunks of a request, over all requests.
        peaks: vLLM's ``max_output_tokens_per_s`` and ``max_concurrent_requests``,
            counted by whole seconds from the first send. A second's concurrency
            counts every request that touches it, so it lies above what was ever in
            flight at once.
    """

    gaps: GapStatistics
    peaks: Mapping[str, float | int | None]


def chunks(
    stamps: Iterable[Stamped], cell: Columns, percentiles: Sequence[float]
) -> Chunks:
    """Walk the stamps of a cell: once, or twice where its gaps are too many to hold.

    Args:
        stamps: Of all its requests; walked as often as that.
        cell: Their columns.
        percentiles: What will be asked of the gaps, beside the median.
    """
    gaps, peaks = GapStatistics(), _Peaks(cell)
    for s in stamps:
        if s.failure is None:
            offsets = np.frombuffer(s.chunk_offsets_ns, "<i8")
            gaps.count(offsets[1:] - offsets[:-1])
            peaks.add(s, offsets)
    gaps.want((50.0, *percentiles))
    if gaps.walk_again:
        for found in gaps_of(s.chunk_offsets_ns for s in stamps if s.failure is None):
            gaps.pick(found)
        gaps.finish()
    return Chunks(gaps, peaks.found())


class _Peaks:
    """Tokens and requests by second of a cell."""

    def __init__(self, cell: Columns) -> None:
        told = cell.good("n_chunks") > 0
        sent, ended = cell.good("sent_at_ns")[told], cell.good("ended_at_ns")[told]
        last = cell.good("last_content_at_ns")[told]
        self._none = not told.any()
        self._start = 0 if self._none else int(sent.min())
        n_bins = 1 if self._none else (int(ended.max()) - self._start) // NS_PER_S + 1
        begun = np.bincount((sent - self._start) // NS_PER_S, minlength=n_bins)
        last = np.where(last == UNKNOWN, ended, last)
        over = np.bincount((last - self._start) // NS_PER_S + 1, minlength=n_bins)
        self._running = np.cumsum(begun - over[:n_bins])
        self._tokens = np.zeros(n_bins)
        self._waiting: list[tuple[npt.NDArray[np.int64], float]] = []
        self._n_waiting = 0

    def add(self, s: Stamped, offsets: npt.NDArray[np.int64]) -> None:
        if not s.n_chunks:
            return
        at_ns = offsets + (s.sent_at_ns - self._start)
        self._waiting.append((at_ns, (s.output_tokens or 0) / s.n_chunks))
        self._n_waiting += s.n_chunks
        if self._n_waiting > _BATCH:
            self._count()

    def _count(self) -> None:
        """Count the tokens of many requests at once: one by one takes five times."""
        if not self._waiting:
            return
        parts, each = zip(*self._waiting, strict=True)
        tokens = np.repeat(each, [len(part) for part in parts])
        seconds_in = np.concatenate(parts) // NS_PER_S
        self._tokens += np.bincount(seconds_in, tokens, minlength=len(self._tokens))
        self._waiting, self._n_waiting = [], 0

    def found(self) -> dict[str, float | int | None]:
        if self._none:
            return {"max_output_tokens_per_s": None, "max_concurrent_requests": None}
        self._count()
        return {
            "max_output_tokens_per_s": float(self._tokens.max()),
            "max_concurrent_requests": int(self._running.max()),
        }


def samples(cell: Columns) -> dict[str, Values]:
    """Return each metric of the successful requests in milliseconds, by name.

    TPOT is (E2EL - TTFT) / (output tokens - 1) and leaves out answers of one token.
    ITL is not among them: see ``chunks``.
    """
    queued = cell.queued_ns
    last = np.maximum(cell.of("last_content_at_ns"), 0)
    found = {
        "client_queue_time": queued,
        # E2EL of an open loop counts from when it was due already.
        "e2el_including_client_queue": queued + last - cell.of("sent_at_ns"),
        "ttfat": cell.since_due_ns("first_answer_at_ns"),
        "ttft": cell.since_due_ns("first_content_at_ns"),
        "tpot": cell.tpot_ns,
        "e2el": cell.since_due_ns("last_content_at_ns"),
    }
    return {name: _known_ms(values[cell.ok]) for name, values in found.items()}


def _known_ms(values_ns: npt.NDArray[Any]) -> Values:
    values = values_ns.astype(np.float64)
    known: Values = values[~np.isnan(values)] / 1e6
    return known


def decoded(cell: Columns) -> Decoded:
    """Return what is held against the server's own time between tokens."""
    tokens, tpot_ns = cell.good("output_tokens"), cell.tpot_ns[cell.ok]
    timed = ~np.isnan(tpot_ns)
    n_later = int((tokens[timed] - 1).sum())
    by_token = _known_ms(tpot_ns * (tokens - 1)).sum() / n_later if n_later else None
    return Decoded(
        n_ok=len(tokens),
        n_single=int(((tokens != UNKNOWN) & (tokens < 2)).sum()),
        n_timed=int(timed.sum()),
        n_later=n_later,
        tpot_ms=_mean(_known_ms(tpot_ns)),
        tpot_by_token_ms=None if by_token is None else float(by_token),
        n_later_each=float(1 / (1 / (tokens[timed] - 1)).mean()) if n_later else None,
    )


def totals(cell: Columns, goodput_ms: Mapping[str, float]) -> dict[str, Any]:
    """Return counts and throughputs, in vLLM's order.

    The duration is from the first send to the last end, seconds.
    """
    duration: float | None = None
    if len(cell):
        start = int(cell.of("sent_at_ns").min())
        duration = seconds(int(cell.of("ended_at_ns").max()) - start)
    n_ok = int(cell.ok.sum())
    n_in = int(np.maximum(cell.good("prompt_tokens"), 0).sum())
    n_out = int(np.maximum(cell.good("output_tokens"), 0).sum())

    def rate(n: float) -> float | None:
        return n / duration if duration else None

    return {
        "duration": duration,
        "completed": n_ok,
        "failed": len(cell) - n_ok,
        "total_input_tokens": n_in,
        "total_output_tokens": n_out,
        "request_throughput": rate(n_ok),
        "request_goodput": rate(_n_good(cell, goodput_ms)) if goodput_ms else None,
        "output_throughput": rate(n_out),
        "total_token_throughput": rate(n_in + n_out),
    }


def _n_good(cell: Columns, goodput_ms: Mapping[str, float]) -> int:
    """Return how many requests keep every limit; a missing TPOT breaks none."""
    found = {
        "ttft": cell.since_due_ns("first_content_at_ns"),
        "tpot": cell.tpot_ns,
        "e2el": cell.since_due_ns("last_content_at_ns"),
    }
    good = cell.ok.copy()
    for name, limit in goodput_ms.items():
        good &= ~(found[name] / 1e6 > limit)
    return int(good.sum())


def by_replica(cell: Columns, base_urls: Sequence[str]) -> list[dict[str, Any]]:
    """Return what each of several servers did; empty for one."""
    if len(base_urls) < 2:
        return []
    found = []
    ttft, tpot = cell.since_due_ns("first_content_at_ns"), cell.tpot_ns
    for number, url in enumerate(base_urls):
        own = cell.of("replica") == number
        ok = own & cell.ok
        found.append(
            {
                "base_url": url,
                "completed": int(ok.sum()),
                "failed": int((own & ~cell.ok).sum()),
                "output_tokens": int(np.maximum(cell.of("output_tokens")[ok], 0).sum()),
                "mean_ttft_ms": _mean(_known_ms(ttft[ok])),
                "mean_tpot_ms": _mean(_known_ms(tpot[ok])),
            }
        )
    return found


def _mean(values: Values) -> float | None:
    return float(values.mean()) if len(values) else None


def details(
    requests: Iterable[Request], texts: Mapping[int, str], input_tokens: int
) -> dict[str, Any]:
    """Return vLLM's per-request lists, in prompt order; times in seconds.

    All of a cell's chunks are in them, so they and the requests must fit into memory.
    """
    ordered = sorted(requests, key=lambda r: r.index)
    start = min((r.sent_at_ns for r in ordered), default=0)
    queued = [
        r.sent_at_ns - (start if r.intended_at_ns is None else r.intended_at_ns)
        for r in ordered
    ]
    return {
        "input_lens": [r.prompt_tokens or input_tokens for r in ordered],
        "output_lens": [r.output_tokens if r.ok else 0 for r in ordered],
        "ttfts": [_seconds(r.ttft_ns) for r in ordered],
        "itls": [(np.diff(r.chunks_ns) / 1e9).tolist() for r in ordered],
        "latencies": [_seconds(r.e2el_ns) for r in ordered],
        "start_times": [seconds(r.sent_at_ns) for r in ordered],
        "queue_times": [seconds(waited) for waited in queued],
        "generated_texts": [texts.get(r.index, "") for r in ordered],
        "errors": [
            "" if r.ok else f"{r.failure}: {r.failure_detail or ''}" for r in ordered
        ],
    }


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else seconds(value_ns)


def statistics(
    found: Mapping[str, Values],
    itl: GapStatistics,
    metrics: Sequence[str],
    percentiles: Sequence[float],
) -> dict[str, float | None]:
    """Return ``mean_ttft_ms`` and its like: mean, median, std, then percentiles.

    The standard deviation is the population's; percentiles are interpolated linearly.

    Args:
        found: Values of each metric but ITL, milliseconds.
        itl: The gaps; they know these percentiles.
        metrics: Which, in their order.
        percentiles: Of 0 to 100.
    """
    result: dict[str, float | None] = {}
    for metric in metrics:
        names = [f"p{p:g}_{metric}_ms" for p in percentiles]
        if metric == "itl":
            result[f"mean_{metric}_ms"] = itl.mean_ms
            result[f"median_{metric}_ms"] = itl.percentile_ms(50.0)
            result[f"std_{metric}_ms"] = itl.std_ms
            result |= zip(names, map(itl.percentile_ms, percentiles), strict=True)
            continue
        values = found[metric]
        some = len(values) > 0
        result[f"mean_{metric}_ms"] = float(np.mean(values)) if some else None
        result[f"median_{metric}_ms"] = float(np.median(values)) if some else None
        result[f"std_{metric}_ms"] = float(np.std(values)) if some else None
        for name, p in zip(names, percentiles, strict=True):
            result[name] = float(np.percentile(values, p)) if some else None
    return result


def answered_later(cell: Columns) -> bool:
    """Return whether any answer began after other content of its request."""
    answer, first = cell.good("first_answer_at_ns"), cell.good("first_content_at_ns")
    return bool((answer != first).any())


def length_notes(cell: Columns, asked_tokens: int | None) -> list[str]:
    """Return a line for each way in which lengths were not those asked for.

    Args:
        cell: The cell.
        asked_tokens: Length of each prompt; None: they differ.
    """
    notes = []
    prompts = cell.good("prompt_tokens")
    prompts = prompts[prompts != UNKNOWN]
    if len(prompts) and asked_tokens is not None and (prompts != asked_tokens).any():
        notes.append(
            f"prompts: {asked_tokens} tokens asked, {prompts.mean():.1f} on average by"
            " the server's count"
        )
    got, asked = cell.good("output_tokens"), cell.good("requested_output_tokens")
    n_short = int((np.maximum(got, 0) < np.maximum(asked, 0)).sum())
    if n_short:
        lengths = np.unique(asked)
        end = f"{lengths[0]}" if len(lengths) == 1 else "all their"
        notes.append(f"answers: {n_short} of {len(got)} ended before {end} tokens")
    return notes
