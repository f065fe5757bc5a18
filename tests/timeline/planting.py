"""Real traces, read once, and ways to spoil them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from stepscope.timeline.columns import I64, Bool, Trace
from stepscope.timeline.graphs import call_of_ops
from stepscope.timeline.load import load_trace

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
TRACES = SHARED / "traces"
SWEEP = SHARED / "h200x1-qwen3moe-baseline"
#: vLLM, Qwen3-30B-A3B, 14 decode steps of one graph each.
DECODE = "trace_decode_c8.pt.trace.json.gz"
#: Ten decode-like steps of one 327-node graph, after one of 1,608 nodes.
PI0 = "h200_cudagraph_pi0_10steps.json.gz"


@cache
def real(name: str) -> Trace:
    folder = SWEEP if name == DECODE else TRACES
    return load_trace(folder / name)[0]


def without(trace: Trace, gone: Bool | I64) -> Trace:
    """Drop device operations."""
    mask = np.zeros(len(trace.ops), dtype=np.bool_)
    mask[gone] = True
    return replace(trace, ops=trace.ops.take(~mask))


def shifted_host(trace: Trace, by_ns: int) -> Trace:
    """Move the host's clock."""
    calls = replace(
        trace.calls,
        start_ns=trace.calls.start_ns + by_ns,
        end_ns=trace.calls.end_ns + by_ns,
    )
    spans = replace(
        trace.spans,
        start_ns=trace.spans.start_ns + by_ns,
        end_ns=trace.spans.end_ns + by_ns,
    )
    return replace(trace, calls=calls, spans=spans)


def replay_of_ops(trace: Trace) -> I64:
    """Return for each operation which graph replay it is of, -1 for none."""
    graph = np.flatnonzero(trace.calls.is_graph)
    call = call_of_ops(trace)
    at = np.searchsorted(graph, call)
    at = np.minimum(at, len(graph) - 1)
    return np.where((call >= 0) & (graph[at] == call), at, -1)
