"""Do a cell's records agree with themselves, with the request, with the server?"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from stepscope.analysis.cell.latency import N_FOR_P90, N_FOR_P99
from stepscope.analysis.cell.little import OCCUPANCY_LIMIT, RESIDUAL_LIMIT
from stepscope.analysis.cell.measured import Measured, summary_in_flight
from stepscope.analysis.cell.saying import about
from stepscope.findings import Finding
from stepscope.units import seconds

#: Token counts may differ by this much before the cell is void.
_TOKENS_OFF = 0.01
#: An occupancy from means of a foreign file is no identity: rounding is allowed.
_SUMMARY_OCCUPANCY_LIMIT = 1.02


def status(m: Measured) -> Iterator[Finding]:
    """A cell that did not run to its end says so."""
    if m.cell.status == "failed":
        yield about(
            m,
            "cell-failed",
            f"the cell failed: {m.cell.failure or 'no reason was recorded'}",
            "Read the launch's log: stepscope log.",
            severity="error",
        )
    elif m.cell.status == "interrupted":
        yield about(
            m,
            "cell-interrupted",
            f"the run ended in mid-cell, after {m.columns.n} requests: its figures"
            " hold the beginning only",
            "Go on with it: stepscope run --resume.",
        )


def failed(m: Measured) -> Iterator[Finding]:
    """Failed requests are counted by kind and enter no latency."""
    summary = m.cell.summary
    if summary is not None and not m.cell.requests:
        n, total = summary.n_failed, summary.n_failed + summary.n_completed
    else:
        n, total = int((~m.columns.ok).sum()), m.columns.n
    if not n:
        return
    kinds = Counter(r.failure for r in m.cell.requests if r.failure)
    words = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    yield about(
        m,
        "failed-requests",
        f"{n} of {total} requests failed ({words or 'kind unknown'}); they are in no"
        " latency, and while they failed the batch was thinner",
        "Read their failure_detail (stepscope query), mend that, and repeat the cell.",
        severity="error" if n == total else "warning",
    )


def token_counts(m: Measured) -> Iterator[Finding]:
    """Output tokens against what was asked, and against the chunks that carried them.

    Short answers are an early stop where the server says ``stop``, or where stopping
    was allowed; otherwise the count contradicts the request.
    """
    rows = m.columns
    chosen = rows.timed & rows.has_tokens & (rows.asked > 0)
    stopped = chosen & (rows.tokens < rows.asked)
    if m.cell.workload.ignore_eos:
        stopped &= rows.said_stop
    if stopped.any():
        against = " though ignore_eos was asked" if m.cell.workload.ignore_eos else ""
        yield about(
            m,
            "early-stop",
            f"{int(stopped.sum())} of {int(chosen.sum())} requests stopped before the"
            f" tokens they were asked for{against}: the batch thins out",
            "Ask for ignore_eos, on an endpoint that honours it.",
        )
    off = chosen & ~stopped & (rows.tokens != rows.asked)
    if off.any():
        wrong = int(rows.tokens[off].sum() - rows.asked[off].sum())
        share = wrong / max(1, int(rows.asked[chosen].sum()))
        yield about(
            m,
            "token-count-mismatch",
            f"{int(off.sum())} of {int(chosen.sum())} requests report other output"
            f" token counts than they were asked for ({wrong:+d} tokens, {share:+.1%})",
            "Look at usage and finish_reason of these requests, and at the context"
            " length: every rate and TPOT is divided by this count.",
            voids=abs(share) > _TOKENS_OFF,
        )
    yield from _chunks_against_tokens(m)
    yield from _server_tokens(m)


def _chunks_against_tokens(m: Measured) -> Iterator[Finding]:
    rows = m.columns
    chosen = rows.timed & rows.has_tokens & (rows.n_chunks > 0)
    tokens, chunks = int(rows.tokens[chosen].sum()), int(rows.n_chunks[chosen].sum())
    if tokens and chunks > tokens * (1 + _TOKENS_OFF):
        yield about(
            m,
            "token-count-mismatch",
            f"{chunks} content chunks carried {tokens} tokens: a chunk holds at least"
            " one token, so the count is too low",
            "The server's usage record is wrong; count another way.",
            voids=True,
        )


def _server_tokens(m: Measured) -> Iterator[Finding]:
    counted, rows = m.server.generated_tokens, m.columns
    mine = int(rows.tokens[rows.ok].sum())
    if counted is None or not mine or counted <= 0:
        return
    if counted < mine * (1 - _TOKENS_OFF):
        yield about(
            m,
            "token-count-mismatch",
            f"the client counts {mine} output tokens, the server {counted} in the same"
            " time",
            "The usage record counts tokens that were never generated, or the scrapes"
            " do not enclose the cell.",
            voids=True,
        )
    elif m.other_requests or (rows.ok.all() and counted > mine * (1 + 2 * _TOKENS_OFF)):
        yield about(
            m,
            "other-traffic",
            f"the server generated {counted} tokens, the client received {mine}:"
            " somebody else used it, or requests were given up",
            "Server-side figures of this cell hold that too; measure alone.",
        )


def clocks(m: Measured) -> Iterator[Finding]:
    """Instants that run backwards."""
    rows = m.columns
    timed = rows.has_content
    backwards = int(
        (((rows.first < rows.sent) | (rows.last < rows.first)) & timed).sum()
    ) + sum(int(np.count_nonzero(gaps < 0)) for gaps in rows.chunks.gaps())
    if backwards:
        yield about(
            m,
            "clock-step",
            f"{backwards} instants lie before the one that they follow",
            "The client's clock stepped; use one that stamps with a monotonic clock.",
            voids=True,
        )
    if m.span is None:
        return
    begin, end = m.span.from_ns - m.span.slack_ns, m.span.to_ns
    for at, by in m.machine.steps_back:
        if begin <= at + by and at <= end:
            yield about(
                m,
                "clock-step",
                f"the samples' clock went back by {seconds(by):.3f} s in the cell",
                "Requests and samples can not be laid side by side; repeat the cell.",
                voids=True,
            )
            return


def identities(m: Measured) -> Iterator[Finding]:
    """Little's law, which holds exactly unless records are wrong."""
    message = _contradiction(m)
    if message is not None:
        yield about(
            m,
            "little-violated",
            message,
            "The records contradict themselves: nothing else in this cell can be"
            " trusted.",
            voids=True,
        )


def _contradiction(m: Measured) -> str | None:
    if m.cell.status != "done":
        return None
    if m.cell.summary is not None and not m.cell.requests:
        held, limit = summary_in_flight(m.cell.summary), _SUMMARY_OCCUPANCY_LIMIT
    elif m.little is None:
        return None
    else:
        held, limit = m.little.mean_in_flight, OCCUPANCY_LIMIT
        if m.little.n_doubled:
            return f"{m.little.n_doubled} requests are recorded twice"
        if abs(m.little.residual) > RESIDUAL_LIMIT:
            return (
                f"throughput x mean E2EL differs from the mean in flight by"
                f" {100 * m.little.residual:+.3f} %: {m.little.n_expected} requests"
                f" were to be sent, {m.columns.n} are recorded"
            )
    if held is not None and m.concurrency and held > m.concurrency * limit:
        return f"{held:.2f} requests in flight on average, on {m.concurrency} slots"
    return None


def few(m: Measured) -> Iterator[Finding]:
    """Percentiles from too few requests."""
    n = m.n_ok
    if 0 < n < N_FOR_P99 and _prints_tails(m):
        both = n < N_FOR_P90
        yield about(
            m,
            "few-samples",
            f"{'p90 and p99 are' if both else 'p99 is'} taken from {n} requests;"
            f" {N_FOR_P90} are needed for a p90 and {N_FOR_P99} for a p99",
            "Read the maximum instead, or send more requests.",
            severity="info",
        )


def _prints_tails(m: Measured) -> bool:
    """Tell whether any high percentile is there; a published cell may have none."""
    summary = m.cell.summary
    if summary is None or m.cell.requests:
        return True
    return any({"p90", "p99"} & set(stats) for stats in summary.stats.values())


def unsent(m: Measured) -> Iterator[Finding]:
    """A closed loop whose slots stood empty more than its latencies explain."""
    if m.little is None or not m.concurrency or m.expected_occupancy is None:
        return
    held = m.little.mean_in_flight / m.concurrency
    low = m.expected_occupancy[0]
    if m.cell.status == "done" and held < low - 0.02 and bool(np.all(m.columns.ok)):
        yield about(
            m,
            "slots-empty",
            f"{held:.3f} of the slots were in use, a closed loop with these latencies"
            f" would hold at least {low:.3f} of them",
            "The client left slots empty: give it more processors or processes.",
        )
