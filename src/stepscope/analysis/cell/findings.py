"""What one cell's records say against it. One function a rule; add a rule to RULES."""

from collections.abc import Callable, Iterator

import numpy as np

from stepscope.analysis.cell.columns import Floats
from stepscope.analysis.cell.latency import N_FOR_P90, N_FOR_P99, chunks_per_token
from stepscope.analysis.cell.little import OCCUPANCY_LIMIT, RESIDUAL_LIMIT
from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.result import client_gap_pct
from stepscope.analysis.cell.telemetry import MIN_SAMPLES, coverage_gap
from stepscope.analysis.cell.window import first_wave, waves
from stepscope.findings import Finding, Severity

#: design.md, section 2: a gap warns above 3 % and voids above 5 %.
_GAP_WARNS_PCT, _GAP_VOIDS_PCT = 3.0, 5.0
#: Events over tokens below which the stream was merged. A closing event without text
#: costs one in hundreds.
_MERGED_BELOW = 0.98
#: Gap rule on log TTFT. Source: facts of docs/analysis/anomalies.md (simulated).
_MODE_RATIO, _MODE_SHARE = 1.6, 0.05
_STALL_RATIO = 5.0
_CACHE_HIT_PCT = 1.0


def _say(
    m: Measured, code: str, message: str, hint: str = "", *, voids: bool = False
) -> Finding:
    severity: Severity = "error" if voids else "warning"
    return Finding(
        code=code,
        severity="info" if code in _MERE_INFO else severity,
        message=message,
        hint=hint,
        cell=m.cell.name,
        voids=voids,
    )


_MERE_INFO = frozenset({"few-samples"})


def _failed(m: Measured) -> Iterator[Finding]:
    n = int((~m.columns.ok).sum())
    if m.cell.summary is not None:
        n = m.cell.summary.n_failed
    if n:
        kinds = sorted({r.failure for r in m.cell.requests if r.failure})
        total = m.columns.n or n
        yield _say(
            m,
            "failed-requests",
            f"{n} of {total} requests failed ({', '.join(kinds) or 'kind unknown'});"
            " they are in no latency",
            "Look at their failure_detail: stepscope query.",
        )


def _token_counts(m: Measured) -> Iterator[Finding]:
    rows = m.columns
    chosen = rows.timed & rows.has_tokens & (rows.asked > 0)
    short = int((rows.tokens[chosen] < rows.asked[chosen]).sum())
    over = int((rows.tokens[chosen] > rows.asked[chosen]).sum())
    if over:
        yield _say(
            m,
            "token-count-mismatch",
            f"{over} requests report more output tokens than were asked for",
            "The server counts something else as a token; its usage can not be used.",
            voids=True,
        )
    if short:
        yield _say(
            m,
            "early-stop",
            f"{short} of {int(chosen.sum())} requests ended before the tokens they were"
            " asked for: the batch thins out",
            "Ask for ignore_eos, and check the context length.",
        )


def _identities(m: Measured) -> Iterator[Finding]:
    if m.little is None or m.cell.status != "done":
        return
    low = m.little
    message = None
    if low.n_doubled:
        message = f"{low.n_doubled} requests are recorded twice"
    elif abs(low.residual) > RESIDUAL_LIMIT:
        message = (
            f"throughput x mean latency differs from the mean in flight by"
            f" {100 * low.residual:.3f} %: requests are lost or mis-stamped"
        )
    elif m.concurrency and low.mean_in_flight / m.concurrency > OCCUPANCY_LIMIT:
        message = (
            f"{low.mean_in_flight:.2f} requests in flight on {m.concurrency} slots"
        )
    if message is not None:
        hint = "The records contradict themselves; nothing here can be read."
        yield _say(m, "little-violated", message, hint, voids=True)


def _partial_waves(m: Measured) -> Iterator[Finding]:
    n_waves = waves(m.cell.workload.n_prompts, m.concurrency)
    if n_waves is None or m.concurrency is None or n_waves == int(n_waves):
        return
    held = ""
    if m.little is not None:
        share = m.little.mean_in_flight / m.concurrency
        held = f": {share:.2f} of the slots were in use on average"
    left = m.cell.workload.n_prompts % m.concurrency
    whole = -(-m.cell.workload.n_prompts // m.concurrency) * m.concurrency
    yield _say(
        m,
        "partial-waves",
        f"{m.cell.workload.n_prompts} prompts on {m.concurrency} slots are"
        f" {n_waves:.3f} waves, the last with {left}{held}",
        f"Send whole waves: {whole} prompts. Throughput here is not that of"
        f" {m.concurrency} in flight.",
    )


def _client(m: Measured) -> Iterator[Finding]:
    gap = client_gap_pct(m)
    merged = chunks_per_token(m.columns)
    if gap is not None and gap > _GAP_WARNS_PCT:
        mine = float(m.columns.tpot_ns().mean()) / 1e6
        yield _say(
            m,
            "client-bound",
            f"the client's TPOT is {gap:.1f} % above the server's own"
            f" ({mine:.2f} against {m.server.tpot_ms:.2f} ms): what lies between the"
            " server's stamp and the client's is in the figure",
            "Measure again with a client that stamps on arrival (stepscope run), or"
            " with more client processes.",
            voids=gap > _GAP_VOIDS_PCT,
        )
    health = m.cell.client
    if health is not None and health.verdict == "limited":
        yield _say(
            m,
            "client-bound",
            "the client says that it was limited: " + "; ".join(health.reasons),
            "Give the client processors of its own, or more processes.",
        )
    if merged is not None and merged < _MERGED_BELOW and not _speculates(m):
        yield _say(
            m,
            "frontend-bound",
            f"{merged:.3f} events a token: tokens waited for each other before they"
            " were sent, as when the server's frontend lags",
            "Look at the frontend's CPU; gaps between events are not gaps between"
            " tokens here.",
        )


def _speculates(m: Measured) -> bool:
    steps = m.steps
    several = steps is not None and (steps.tokens_per_sequence or 1) > 1.01
    return m.server.accepted_per_draft is not None or several


def _few(m: Measured) -> Iterator[Finding]:
    n = int(m.columns.timed.sum())
    if 0 < n < N_FOR_P99:
        which = "p90 and p99" if n < N_FOR_P90 else "p99"
        need = N_FOR_P90 if n < N_FOR_P90 else N_FOR_P99
        yield _say(
            m,
            "few-samples",
            f"{which} of {n} requests say little; {need} are needed for the first",
            "Read the maximum instead.",
        )


def _stall(m: Measured) -> Iterator[Finding]:
    rows = m.columns
    if m.concurrency is None or not rows.timed.any():
        return
    first = first_wave(rows, m.concurrency) & rows.timed
    later = ~first_wave(rows, m.concurrency) & rows.timed
    ttft = (rows.first - rows.sent) / 1e6
    if first.any() and later.any():
        early, late = float(np.median(ttft[first])), float(np.median(ttft[later]))
        # C prompts at once queue for each other: a first wave may take longer, by at
        # most about the number of waves of prefill that it makes.
        if early > _STALL_RATIO * late and early - late > 500:
            yield _say(
                m,
                "stall",
                f"the first wave waited {early:.0f} ms for its first token (median),"
                f" later requests {late:.0f} ms",
                "Something held the server when the cell began; measure it again.",
            )
    values = np.log(ttft[later]) if later.any() else np.empty(0)
    split = _two_modes(np.sort(values))
    if split is not None:
        low, high, share = split
        yield _say(
            m,
            "bimodal-ttft",
            f"TTFT after the first wave falls in two groups, up to {low:.0f} and from"
            f" {high:.0f} ms ({100 * share:.0f} % of requests)",
            "One stall or two queues: look whether the slow ones are consecutive.",
        )


def _two_modes(logs: Floats) -> tuple[float, float, float] | None:
    """Return the ends of the largest jump in sorted logs, if both sides are big."""
    n = logs.size
    edge = max(int(np.ceil(_MODE_SHARE * n)), 2)
    if n < 20 or n <= 2 * edge:
        return None
    jumps = np.diff(logs)[edge - 1 : n - edge]
    at = int(np.argmax(jumps)) + edge - 1
    if jumps.max() <= np.log(_MODE_RATIO):
        return None
    return float(np.exp(logs[at])), float(np.exp(logs[at + 1])), (n - at - 1) / n


def _server(m: Measured) -> Iterator[Finding]:
    hits = m.server.cache_hit_pct
    if hits is not None and hits > _CACHE_HIT_PCT:
        yield _say(
            m,
            "prefix-cache-hits",
            f"{hits:.1f} % of prompt tokens came from the prefix cache: prefill was"
            " not done for them",
            "Use fresh prompts, or switch prefix caching off.",
        )
    if m.server.preemptions:
        yield _say(
            m,
            "preemptions",
            f"{m.server.preemptions} requests were preempted for lack of KV memory",
            "Fewer sequences at once, or more KV memory.",
        )


def _log(m: Measured) -> Iterator[Finding]:
    if m.span is None:
        return
    for event in m.events:
        if event.kind not in ("jit", "autotune") or event.at_ns is None:
            continue
        # A one-second clock: the line was written in [at, at + error).
        after = event.at_ns + (event.error_ns or 0)
        if after > m.span.from_ns - m.span.slack_ns and event.at_ns < m.span.to_ns:
            yield _say(
                m,
                "jit-during-measurement",
                f"line {event.line} of the log: {event.text[:160]}",
                "The cell holds a compilation; warm up with this shape and repeat it.",
            )


def _telemetry(m: Measured) -> Iterator[Finding]:
    if m.window is None or not m.machine.gpus:
        return
    gap = coverage_gap(m.machine, m.window)
    if gap is not None:
        yield _say(
            m,
            "telemetry-window-mismatch",
            gap,
            "Means of this cell are not those of its window.",
        )
    inside = sum(
        m.window.from_ns <= at <= m.window.to_ns for at in m.machine.gpus[0].at.tolist()
    )
    if inside < MIN_SAMPLES:
        yield _say(
            m,
            "telemetry-too-sparse",
            f"{inside} samples lie in the window of"
            f" {m.window.length_ns / 1e9:.1f} s; {MIN_SAMPLES} are needed for a mean",
            "Sample faster, or measure for longer.",
        )


RULES: tuple[Callable[[Measured], Iterator[Finding]], ...] = (
    _failed, _token_counts, _identities, _partial_waves, _client, _few, _stall,
    _server, _log, _telemetry,
)  # fmt: skip


def cell_findings(m: Measured) -> tuple[Finding, ...]:
    """Return every finding of one cell."""
    return tuple(finding for rule in RULES for finding in rule(m))
