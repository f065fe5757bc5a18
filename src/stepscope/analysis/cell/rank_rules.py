"""Did data-parallel ranks hold as many requests as an even share of the load?"""

from collections.abc import Iterator

from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.saying import about
from stepscope.findings import Finding
from stepscope.run.samples import MetricsSnapshot

_RUNNING = "vllm:num_requests_running"


def uneven(m: Measured) -> Iterator[Finding]:
    """A rank that holds more than its share, and runs a larger graph for it.

    Only scrapes in which all of the load ran count: while slots are filled again ranks
    differ by nature.

    Source: vLLM 0.26 replays the smallest captured graph that holds a rank's tokens;
        ranks that share experts all take the largest that one of them needs. On two
        H200s 32 and 32 of 64 requests ran the graph of 32 (5.3 ms), 33 and 31 that of
        128 (7.0 ms).
    Assumes: one token a sequence, so that requests are what a graph must hold.
    """
    slots, span = m.concurrency, m.span
    log = None if m.launch is None else m.launch.log
    sizes = _sizes(None if log is None else log.resolved.get("cudagraph_capture_sizes"))
    if slots is None or span is None or not sizes:
        return
    held = [
        running
        for snapshot in m.machine.samples.metrics
        if span.from_ns <= snapshot.at_ns <= span.to_ns
        and len(running := _running(snapshot)) > 1
        and sum(running) == slots
    ]
    if not held:
        return
    share, most = -(-slots // len(held[0])), max(max(running) for running in held)
    even, taken = _graph(sizes, share), _graph(sizes, most)
    if even is None or even == taken:
        return
    n_uneven = sum(_graph(sizes, max(running)) != even for running in held)
    runs = "no graph" if taken is None else f"the graph of {taken}"
    yield about(
        m,
        "uneven-ranks",
        f"{slots} requests were {min(min(r) for r in held)} to {most} on a rank in"
        f" {n_uneven} of {len(held)} scrapes: the fullest runs {runs}, where an even"
        f" {share} would run that of {even}, and ranks that share experts run it with"
        " it: another step than that of a cell whose ranks are alike",
        "Capture a size between the two (cudagraph_capture_sizes), and compare cells"
        " only where the ranks were alike.",
        severity="info" if m.cell.warm_up else "warning",
    )


def _sizes(told: object) -> tuple[int, ...]:
    """Return the graphs' sizes, ascending; empty where nobody says them."""
    words = str(told or "").replace(",", " ").split()
    return tuple(sorted(int(word) for word in words if word.isdigit()))


def _graph(sizes: tuple[int, ...], n: int) -> int | None:
    """Return the graph that holds so many tokens; None: none is large enough."""
    return next((size for size in sizes if size >= n), None)


def _running(snapshot: MetricsSnapshot) -> list[int]:
    """Return the running requests of each engine."""
    return [round(v.value) for v in snapshot.values if v.name == _RUNNING]
