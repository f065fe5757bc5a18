"""What was seen beside the requests: the server's metrics and log, the machine."""

from collections.abc import Iterator

from stepscope.analysis.cell.latency import chunks_per_token
from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.result import client_gap_pct, client_tpot_ms
from stepscope.analysis.cell.saying import about
from stepscope.analysis.cell.taking_part import asked_of
from stepscope.analysis.cell.telemetry import (
    MIN_SAMPLES,
    coverage_gap,
    n_inside,
    part_of,
)
from stepscope.findings import Finding
from stepscope.run.client import GAP_OK_PCT, GAP_VOID_PCT
from stepscope.units import seconds

#: Chunks over tokens below which the stream was merged. A closing chunk without text
#: costs one in hundreds.
MERGED_BELOW = 0.98
_CACHE_HIT_PCT = 1.0


def client(m: Measured) -> Iterator[Finding]:
    """The client's TPOT against the server's, and the client's own health."""
    gap, mine = client_gap_pct(m), client_tpot_ms(m)
    if gap is not None and mine is not None and gap > GAP_OK_PCT:
        yield about(
            m,
            "client-bound",
            f"the client's TPOT is {gap:.1f} % above the server's own ({mine:.2f}"
            f" against {m.server.tpot_ms:.2f} ms): the difference arose after the"
            " server had the token, so this cell does not measure the engine",
            "Measure again with a client that stamps on arrival (stepscope run), or"
            " with more client processes; where chunks are merged, look at the"
            " frontend first.",
            voids=gap > GAP_VOID_PCT,
        )
    if gap is not None and mine is not None and gap < -GAP_VOID_PCT:
        yield about(
            m,
            "clocks-disagree",
            f"the client's TPOT is {-gap:.1f} % below the server's own ({mine:.2f}"
            f" against {m.server.tpot_ms:.2f} ms), and no token arrives before the"
            " server has it: one clock runs wrong, or one of the two stamps late or"
            " counts other requests",
            "Repeat it with more requests and nothing else on the server; where it"
            " stays, hold the client's clock against the server's.",
        )
    health = m.cell.client
    if health is not None and health.verdict == "limited":
        yield about(
            m,
            "client-bound",
            "the client says that it was limited: " + "; ".join(health.reasons),
            "Give the client processors of its own, or more processes.",
        )


def frontend(m: Measured) -> Iterator[Finding]:
    """Tokens that arrive merged."""
    merged = chunks_per_token(m.columns)
    if merged is None or merged >= MERGED_BELOW or _speculates(m):
        return
    yield about(
        m,
        "frontend-bound",
        f"{merged:.3f} chunks a token: tokens waited for each other before they were"
        " sent, as when the server's frontend lags",
        "Look at the frontend's CPU, and whether the engine was told to send several"
        " tokens at once; gaps between chunks are not gaps between tokens here.",
    )


def _speculates(m: Measured) -> bool:
    several = m.steps is not None and (m.steps.tokens_per_sequence or 1) > 1.01
    log = m.launch.log if m.launch is not None else None
    asked = log is not None and log.resolved.get("speculative_config") not in (
        None,
        "None",
        False,
    )
    return m.server.accepted_per_draft is not None or several or asked


def server(m: Measured) -> Iterator[Finding]:
    """Prefix cache hits, preemptions, counters that fell."""
    hits = m.server.cache_hit_pct
    if hits is not None and hits > _CACHE_HIT_PCT:
        yield about(
            m,
            "prefix-cache-hits",
            f"{hits:.1f} % of prompt tokens came from the prefix cache: their prefill"
            " was not done",
            "Use prompts that were not sent before, or switch prefix caching off.",
        )
    if m.server.preemptions:
        yield about(
            m,
            "preemptions",
            f"{m.server.preemptions} requests were preempted for lack of KV memory and"
            " computed again",
            "Fewer sequences at once, shorter ones, or more KV memory.",
        )
    if m.server.restarted:
        yield about(
            m,
            "server-restarted",
            "counters of the server fell between the two scrapes: it was restarted, so"
            " nothing server-side is known of this cell",
            "Repeat the cell on one server.",
        )


def log(m: Measured) -> Iterator[Finding]:
    """Compilations that the log places in the cell."""
    if m.span is None:
        return
    found = [
        event
        for event in m.events
        if event.kind in ("jit", "autotune")
        and event.at_ns is not None
        # A one-second clock: the line was written in [at, at + error).
        and event.at_ns + (event.error_ns or 0) > m.span.from_ns - m.span.slack_ns
        and event.at_ns < m.span.to_ns
    ]
    if found:
        more = f", and {len(found) - 1} more lines" if len(found) > 1 else ""
        yield about(
            m,
            "jit-during-measurement",
            f"line {found[0].line} of the log, in the cell's span:"
            f" {found[0].text[:120]}{more}",
            "The cell holds a compilation; warm up with this shape and repeat it.",
        )


def other_gpus(m: Measured) -> Iterator[Finding]:
    """Name GPUs that another program holds, or say that nobody can tell them."""
    if m.window is None or not m.machine.gpus:
        return
    asked = asked_of(m.launch, m.machine.n_gpus)
    part = part_of(m.machine, m.window, asked)
    names = [g.samples[0].gpu for g in m.machine.gpus]
    if part.told and part.others:
        others = ", ".join(str(names[i]) for i in part.others)
        yield about(
            m,
            "gpus-of-others",
            f"another program holds memory of GPU {others}; utilization, power and"
            " counters are those of GPU"
            f" {', '.join(str(names[i]) for i in part.own)}, which the server's memory"
            " is on",
            severity="info",
        )
    elif not part.told:
        yield about(
            m,
            "gpus-not-told",
            f"{len(part.others)} GPUs hold memory and the server uses {asked.n_gpus};"
            " nothing tells which are its own, so utilization, power and counters are"
            " left out",
            "Measure where no other program uses a GPU.",
        )


def telemetry(m: Measured) -> Iterator[Finding]:
    """Samples that miss the window, or are too few in it."""
    if m.window is None or not m.machine.gpus:
        return
    gap = coverage_gap(m.machine, m.window)
    if gap is not None:
        yield about(
            m,
            "telemetry-window-mismatch",
            gap,
            "Means of this cell are not those of its window.",
        )
    n = n_inside(m.machine, m.window)
    if n < MIN_SAMPLES:
        yield about(
            m,
            "telemetry-too-sparse",
            f"{n} samples of a GPU lie in the window of"
            f" {seconds(m.window.length_ns):.1f} s; a mean needs {MIN_SAMPLES}",
            "Sample faster (telemetry.interval_s), or measure for longer.",
        )
