"""What the engine's own metrics say happened between two scrapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stepscope.run.samples import MetricsSnapshot

#: Per-request mean decode time a token, stamped in the frontend.
_REQUEST_TPOT = ("vllm:request_time_per_output_token_seconds",)
#: Gap before each token: its mean is weighted by tokens.
_TOKEN_GAP = (
    "vllm:inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "sglang:inter_token_latency_seconds",
    "sglang:time_per_output_token_seconds",
)
_TTFT = ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
_QUEUE = ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds")
_PREFILL = ("vllm:request_prefill_time_seconds",)
_GENERATED = (
    "vllm:generation_tokens_total",
    "sglang:generation_tokens_total",
    "llamacpp:tokens_predicted_total",
)
_PREEMPTED = ("vllm:num_preemptions_total",)
# llama-server counts the prompt tokens that it processed and those from its cache
# apart; the others count all that were looked up.
_CACHE_QUERIES = (
    "vllm:prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_queries_total",
    "sglang:prompt_tokens_total",
)
_CACHE_HITS = (
    "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits_total",
    "sglang:cached_tokens_total",
)
_SLOT_CACHED = "llamacpp:prompt_tokens_cached_total"
_SLOT_PROMPT = "llamacpp:prompt_tokens_total"
_DRAFTS = (
    "vllm:spec_decode_num_drafts_total",
    "llamacpp:spec_decode_num_drafts_total",
)
_ACCEPTED = (
    "vllm:spec_decode_num_accepted_tokens_total",
    "llamacpp:spec_decode_num_accepted_tokens_total",
)
_SLOT_SECONDS = "llamacpp:tokens_predicted_seconds_total"
_SLOT_TOKENS = "llamacpp:tokens_predicted_total"
_ITERATIONS = "vllm:iteration_tokens_total_count"


@dataclass(frozen=True, slots=True)
class ServerSide:
    """Differences between a cell's two scrapes; None where the engine has no such.

    Attributes:
        tpot_ms: Mean TPOT by the server's own stamps: vLLM's are those of its engine,
            SGLang's those of its frontend.
        tpot_per_token: True where ``tpot_ms`` is weighted by tokens, not requests.
        tpot_metric: Name of the metric that it came from.
        n_requests: Requests in that metric (None where it counts tokens).
        n_tokens: Tokens after the first in that metric, where it counts those.
        ttft_ms: Mean TTFT as the frontend stamped it.
        queue_ms: Mean time waiting for a place in the batch.
        prefill_ms: Mean time from being scheduled to the first token.
        generated_tokens: Tokens generated.
        preemptions: Requests that were put back for lack of KV memory.
        cache_hit_pct: Prompt tokens found in the prefix cache.
        accepted_per_draft: Accepted draft tokens a draft; None without drafts.
        n_steps: Engine iterations, all engines.
        n_engines: Engines behind the endpoint.
    """

    tpot_ms: float | None = None
    tpot_per_token: bool = False
    tpot_metric: str | None = None
    n_requests: int | None = None
    n_tokens: int | None = None
    ttft_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    generated_tokens: int | None = None
    preemptions: int | None = None
    cache_hit_pct: float | None = None
    accepted_per_draft: float | None = None
    n_steps: int | None = None
    n_engines: int | None = None
    restarted: bool = False


NOTHING = ServerSide()


def totals(snapshot: MetricsSnapshot) -> Mapping[str, float]:
    """Return each metric summed over its labels (engines, reasons, handlers)."""
    sums: dict[str, float] = {}
    for value in snapshot.values:
        if value.name.endswith("_bucket"):
            continue
        sums[value.name] = sums.get(value.name, 0.0) + value.value
    return MappingProxyType(sums)


def n_engines(snapshot: MetricsSnapshot) -> int | None:
    """Return how many engines count iterations; None where none does."""
    engines = {
        value.labels.get("engine", "0")
        for value in snapshot.values
        if value.name == _ITERATIONS
    }
    return len(engines) or None


@dataclass(frozen=True, slots=True)
class Changes:
    """Two scrapes, each metric summed over its labels."""

    before: Mapping[str, float]
    after: Mapping[str, float]

    def of(self, names: tuple[str, ...], suffix: str = "") -> float | None:
        """Return the growth of the first name that grew.

        An older name may linger beside the new one with nothing in it. None where
        none is exposed.
        """
        best: float | None = None
        for name in names:
            key = name + suffix
            if key in self.after:
                delta = self.after[key] - self.before.get(key, 0.0)
                if delta > 0:
                    return delta
                best = delta if best is None else best
        return best

    def mean_ms(self, names: tuple[str, ...], n_left_out: int = 0) -> float | None:
        """Return the mean of a histogram of seconds between the scrapes.

        Args:
            names: Of the metric.
            n_left_out: Observations of 0 that are to be left out.
        """
        total, count = self.of(names, "_sum"), self.of(names, "_count")
        if total is None or count is None or count <= n_left_out or total < 0:
            return None
        return total / (count - n_left_out) * 1e3

    def restarted(self) -> bool:
        """Return True where a counter that can only grow fell."""
        return any(
            self.after.get(name, 0.0) < self.before.get(name, 0.0)
            for name in (*_GENERATED, _ITERATIONS)
        )


def server_side(
    before: MetricsSnapshot | None,
    after: MetricsSnapshot | None,
    n_ok: int,
    n_single: int = 0,
) -> ServerSide:
    """Return what the engine counted between two scrapes.

    vLLM counts an answer of one token with a TPOT of 0, which is none: those are taken
    out of its mean.

    llama-server has no latency histogram. Its ``tokens_predicted_seconds_total``
    grows, when a slot is released, by the wall time from that slot's first token to
    its last, so over scrapes that enclose whole requests its change over the tokens
    after the first is a token-weighted TPOT (checked: 120.0 s against 120.4 s as a
    client saw the same 124 requests).

    Args:
        before: Scraped just before the first send.
        after: Scraped just after the last content.
        n_ok: Requests that the client saw succeed between them.
        n_single: Those of them whose answer had no second token.
    """
    if before is None or after is None:
        return NOTHING
    changes = Changes(totals(before), totals(after))
    if changes.restarted():
        return ServerSide(restarted=True)
    tpot, gap = changes.mean_ms(_REQUEST_TPOT, n_single), changes.mean_ms(_TOKEN_GAP)
    gap_name, n_tokens = _name(changes.after, _TOKEN_GAP), None
    if gap is not None:
        n_tokens = _whole(changes.of(_TOKEN_GAP, "_count"))
    else:
        gap, gap_name = _slot_tpot_ms(changes, n_ok), _SLOT_SECONDS
        n_tokens = None if gap is None else _slot_tokens(changes, n_ok)
    drafts, accepted = changes.of(_DRAFTS), changes.of(_ACCEPTED)
    n_requests = changes.of(_REQUEST_TPOT, "_count")
    return ServerSide(
        tpot_ms=tpot if tpot is not None else gap,
        tpot_per_token=tpot is None and gap is not None,
        tpot_metric=_metric(tpot, gap, gap_name),
        n_requests=None if tpot is None or n_requests is None else int(n_requests),
        n_tokens=n_tokens if tpot is None else None,
        ttft_ms=changes.mean_ms(_TTFT),
        queue_ms=changes.mean_ms(_QUEUE),
        prefill_ms=changes.mean_ms(_PREFILL),
        generated_tokens=_whole(changes.of(_GENERATED)),
        preemptions=_whole(changes.of(_PREEMPTED)),
        cache_hit_pct=_cache_hit_pct(changes),
        accepted_per_draft=accepted / drafts
        if drafts and accepted is not None
        else None,
        n_steps=_whole(changes.of((_ITERATIONS,))),
        n_engines=n_engines(after),
    )


def n_beside(counted: int, n_known: int, *, spare: int = 0) -> int:
    """Return how many the server counted beside what the client knows of.

    One in fifty (a probe, a request that the client gave up) does not move a mean by
    more than the limits that it is held against, and counts as none.

    Args:
        counted: Requests, or tokens, in the server's metric.
        n_known: As the client counts them; more than the server's are beside it too.
        spare: So many are none however few there are in all.
    """
    extra = abs(counted - n_known)
    return extra if extra > max(spare, n_known // 50) else 0


def _cache_hit_pct(changes: Changes) -> float | None:
    queries, hits = changes.of(_CACHE_QUERIES), changes.of(_CACHE_HITS)
    if hits is None:
        hits, processed = changes.of((_SLOT_CACHED,)), changes.of((_SLOT_PROMPT,))
        queries = None if hits is None or processed is None else hits + processed
    return _share_pct(hits, queries)


def _slot_tpot_ms(changes: Changes, n_ok: int) -> float | None:
    seconds, n_tokens = changes.of((_SLOT_SECONDS,)), _slot_tokens(changes, n_ok)
    if not seconds or n_tokens is None or n_tokens <= 0:
        return None
    return seconds / n_tokens * 1e3


def _slot_tokens(changes: Changes, n_ok: int) -> int | None:
    tokens = changes.of((_SLOT_TOKENS,))
    return None if tokens is None else round(tokens) - n_ok


def _metric(tpot: float | None, gap: float | None, gap_name: str | None) -> str | None:
    if tpot is not None:
        return _REQUEST_TPOT[0]
    return gap_name if gap is not None else None


def _name(values: Mapping[str, float], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if values.get(name + "_count")), None)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _share_pct(part: float | None, whole: float | None) -> float | None:
    # Without any look-up (a disabled cache) nothing was found: 0 of 0 is no hit.
    if part is None or whole is None:
        return None
    return 100 * part / whole if whole > 0 else 0.0
