"""A client that kept up, for the board's tests."""

from typing import Any

from stepscope.run.client import ClientHealth, Delay


def health(**over: Any) -> ClientHealth:
    """A client with kernel stamps and room to spare, with some fields replaced."""
    fields: dict[str, Any] = {
        "processes": 1,
        "loop": "uvloop",
        "stamps": "kernel",
        "delay_ms": Delay(mean=0.05, p99=0.2, max=1.0),
        "unstamped_pct": 0.0,
        "merged_reads_pct": 0.0,
        "busy_pct": 20.0,
        "cpu_pct_max": 25.0,
        "late_sends_ms_p99": 0.1,
        "held_pct": 99.0,
        "chunks_per_s_peak": 1600.0,
        "tokens_per_chunk_mean": 1.0,
        "verdict": "ok",
    }
    return ClientHealth(**{**fields, **over})
