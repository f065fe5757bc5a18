"""What an open loop's records say: a server that does not keep up, a cell too short."""

from collections.abc import Iterator

from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.saying import about
from stepscope.findings import Finding


def overloaded(m: Measured) -> Iterator[Finding]:
    """More came than was served: the queue grows, and latencies with it."""
    seen = m.open_loop
    if seen is None or not seen.overloaded:
        return
    grew = ""
    if seen.completed_per_s is not None:
        before, after = seen.n_system
        grew = (
            f": in the steady part {seen.n_arrived} requests came and {seen.n_left}"
            f" left ({seen.completed_per_s:.2f} a second), and the number in the"
            f" system went from {before} to {after}"
        )
    if seen.wait_growth_s is not None:
        grew += (
            f"; the median TTFT grew by {seen.wait_growth_s:.2f} s from the first to"
            " the last quarter of the arrivals"
        )
    yield about(
        m,
        "overloaded",
        f"{seen.offered_per_s:.2f} requests a second are more than the server keeps"
        f" up with{grew}. Its latencies are those of a queue that grows: they say how"
        " long the cell lasted",
        "Read its throughput as the capacity, and latencies at lower rates.",
    )


def too_short(m: Measured) -> Iterator[Finding]:
    """An open loop that ended before it can show that it is steady."""
    seen = m.open_loop
    if seen is None or seen.overloaded is not None:
        return
    yield about(
        m,
        "open-loop-short",
        f"{m.columns.n} arrivals at {seen.offered_per_s:.2f} a second are too few, or"
        " over too soon beside the latency of a request, to tell whether the server"
        " keeps up",
        "Send for longer: at least 60 requests, and several times the latency of one.",
    )
