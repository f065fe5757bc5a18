"""The table of ``vllm bench serve``: labels of 40, values of 10, same words."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.run.client import ClientHealth

_WIDTH = 50
_NAMES = {
    "client_queue_time": "Client Queue Time",
    "e2el_including_client_queue": "E2EL incl. Client Queue",
}
_TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
    "client_queue_time": "Client-side Queueing",
    "e2el_including_client_queue": "Queue-inclusive End-to-end Latency",
    "ttfat": "Time to First Answer Token",
}


def table(
    result: Mapping[str, Any],
    metrics: Sequence[str],
    percentiles: Sequence[float],
    health: ClientHealth,
) -> str:
    """Return the table of a saved result."""
    lines = ["", f"{' Serving Benchmark Result ':=^{_WIDTH}}"]
    lines += [
        _row("Successful requests:", result["completed"]),
        _row("Failed requests:", result["failed"]),
        _row("Maximum request concurrency:", result["max_concurrency"]),
        _row("Benchmark duration (s):", result["duration"]),
        _row("Total input tokens:", result["total_input_tokens"]),
        _row("Total generated tokens:", result["total_output_tokens"]),
        _row("Request throughput (req/s):", result["request_throughput"]),
    ]
    if result["request_goodput"] is not None:
        lines.append(_row("Request goodput (req/s):", result["request_goodput"]))
    lines += [
        _row("Output token throughput (tok/s):", result["output_throughput"]),
        _row(
            "Peak output token throughput (tok/s):", result["max_output_tokens_per_s"]
        ),
        _row("Peak concurrent requests:", _float(result["max_concurrent_requests"])),
        _row("Total token throughput (tok/s):", result["total_token_throughput"]),
    ]
    for metric in metrics:
        name = _NAMES.get(metric, metric.upper())
        lines.append(f"{_TITLES[metric]:-^{_WIDTH}}")
        lines.append(_row(f"Mean {name} (ms):", result[f"mean_{metric}_ms"]))
        lines.append(_row(f"Median {name} (ms):", result[f"median_{metric}_ms"]))
        lines += [
            _row(f"P{p:g} {name} (ms):", result[f"p{p:g}_{metric}_ms"])
            for p in percentiles
        ]
    lines += _speculation(result)
    lines += _client(health, result["server"])
    for kind, n in result["failures"].items():
        lines.append(_row(f"Failed ({kind}):", n))
    lines.append("=" * _WIDTH)
    return "\n".join(lines)


def _speculation(result: Mapping[str, Any]) -> list[str]:
    """Return what the server counted of drafts; ITL is then a gap between steps."""
    if "spec_decode_acceptance_length" not in result:
        return []
    length = result["spec_decode_acceptance_length"]
    return [
        f"{'Speculative Decoding':-^{_WIDTH}}",
        _row("Acceptance rate (%):", result["spec_decode_acceptance_rate"]),
        _row("Acceptance length:", length),
        _row("Tokens per step and sequence:", length),
        _row("Drafts:", result["spec_decode_num_drafts"]),
        "ITL is the gap between events, each of one step's tokens.",
    ]


def _client(health: ClientHealth, server: Mapping[str, Any]) -> list[str]:
    """Return what the client says of itself, and the server's own TPOT beside ours."""
    lines = [f"{'Client health':-^{_WIDTH}}"]
    delay = health.delay_ms
    if delay is not None:
        lines.append(_row(f"P99 delay, {health.stamps} stamps (ms):", delay.p99))
    lines += [
        _row("Busiest client loop (%):", health.busy_pct),
        _row("Requests held in flight (%):", health.held_pct),
        _row("Tokens per chunk:", health.tokens_per_chunk_mean),
        *_own_tpot(server),
        _row("Client verdict:", health.verdict),
    ]
    lines += [f"  {reason}" for reason in health.reasons]
    for node in health.nodes:
        lines.append(_row(f"{node.name}:", node.verdict))
        lines += [f"  {reason}" for reason in node.reasons]
    return lines


def _own_tpot(server: Mapping[str, Any]) -> list[str]:
    """Return the server's own TPOT, and by how much the client's is above it."""
    shown, gap = server["tpot_ms"], server["tpot_error_pct"]
    if gap is not None:
        shown = f"{shown:.2f} (ours {gap:+.1f} %)"
    by_token = server["weighted_by"] == "token"
    mean = "TPOT, by token" if by_token else "mean TPOT"
    lines = [_row(f"Server's own {mean} (ms):", shown)]
    if server["not_held"] is not None:
        lines.append(f"  not held against ours: {server['not_held']}")
    return lines


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _row(label: str, value: float | str | None) -> str:
    if value is None:
        shown = "unknown"
    elif isinstance(value, float):
        shown = f"{value:.2f}"
    else:
        shown = str(value)
    return f"{label:<40} {shown:<10}"
