"""From a measured cell to the figures of the contract."""

import math
from collections import Counter
from typing import Any

from stepscope.analysis.cell.bursts import in_one_piece, tpot_stats
from stepscope.analysis.cell.latency import (
    chunks_per_token,
    decode_efficiency,
    gap_stats,
    stats,
    summary_stats,
    token_weighted_tpot_ns,
)
from stepscope.analysis.cell.measured import (
    Measured,
    summary_e2el_ms,
    summary_in_flight,
)
from stepscope.analysis.cell.published import published_telemetry
from stepscope.analysis.cell.steady import steady_tokens_per_s
from stepscope.analysis.cell.taking_part import asked_of
from stepscope.analysis.cell.telemetry import cell_telemetry
from stepscope.analysis.cell.window import Window, waves
from stepscope.analysis.records import CellResult, CellTelemetry, Stats
from stepscope.findings import Finding
from stepscope.recipe.records import Cost
from stepscope.run.run import Summary
from stepscope.units import ms, seconds


def cell_result(
    m: Measured, findings: tuple[Finding, ...], cost: Cost | None
) -> CellResult:
    """Return the figures of one cell.

    Args:
        m: The cell.
        findings: Its findings; those that void it make it invalid.
        cost: Prices; None: no figure of money.
    """
    cell = m.cell
    if cell.summary is not None and not cell.requests:
        return _from_summary(m, findings, cost)
    rows, span = m.columns, m.span
    chosen = rows.timed & rows.has_tokens
    tokens = int(rows.tokens[chosen].sum())
    duration_s = None if span is None else seconds(span.length_ns)
    n_waves = waves(rows.n, m.concurrency) if rows.n else None
    occupancy = None
    if m.little is not None and m.concurrency:
        occupancy = m.little.mean_in_flight / m.concurrency
    efficiency = None
    if span is not None and m.little is not None:
        efficiency = decode_efficiency(rows, span, m.little.mean_in_flight)
    rate = tokens / duration_s if duration_s and tokens else None
    known_input = [
        r.prompt_tokens for r in cell.requests if r.ok and r.prompt_tokens is not None
    ]
    return CellResult(
        **_identity(m, findings),
        n_requests=rows.n,
        n_failed=int((~rows.ok).sum()),
        failure_kinds=dict(Counter(r.failure for r in cell.requests if r.failure)),
        input_tokens=sum(known_input) if known_input else None,
        output_tokens=tokens if chosen.any() else None,
        duration_s=duration_s,
        waves=n_waves,
        occupancy=occupancy,
        occupancy_expected=m.expected_occupancy,
        little_residual=None if m.little is None else m.little.residual,
        output_tokens_per_s=rate,
        requests_per_s=int(rows.timed.sum()) / duration_s if duration_s else None,
        steady_output_tokens_per_s=steady_tokens_per_s(rows, m.concurrency, m.steady),
        ttft_ms=stats(rows.ttft_ns()),
        tpot_ms=tpot_stats(rows),
        itl_ms=gap_stats(rows.chunks),
        e2el_ms=stats(rows.e2el_ns()),
        decode_efficiency=None if efficiency is None else efficiency.value,
        decode_efficiency_residual=None if efficiency is None else efficiency.residual,
        chunks_per_token=chunks_per_token(rows),
        **_server_side(m),
        telemetry=_telemetry(m),
        usd_per_million_output_tokens=_usd(rate, cost),
        mean_in_flight=None if m.little is None else m.little.mean_in_flight,
        **_steady(m),
    )


def client_gap_pct(m: Measured) -> float | None:
    """Return by how much the client's mean TPOT exceeds the server's, percent.

    The client's mean is weighted as the server's is: by request, or by token where
    the server's metric counts tokens. None where the server saw other requests too.
    """
    if m.server.tpot_ms is None or m.other_requests:
        return None
    mine = client_tpot_ms(m)
    return None if mine is None else 100 * (mine / m.server.tpot_ms - 1)


def client_tpot_ms(m: Measured) -> float | None:
    """Return the client's mean TPOT, weighted as the server's metric is."""
    if m.cell.summary is not None and not m.cell.requests:
        return m.cell.summary.stats.get("tpot_ms", {}).get("mean")
    if in_one_piece(m.columns):
        return None
    if m.server.tpot_per_token:
        weighted = token_weighted_tpot_ns(m.columns)
        return None if weighted is None else ms(weighted)
    return tpot_stats(m.columns).mean


def _identity(m: Measured, findings: tuple[Finding, ...]) -> dict[str, Any]:
    cell = m.cell
    void = tuple(dict.fromkeys(f.code for f in findings if f.voids))
    return {
        "name": cell.name,
        "configuration": cell.configuration,
        "launch": cell.launch,
        "session": m.launch.session if m.launch is not None else "s0",
        "concurrency": m.concurrency,
        **_open_loop(m),
        "repeat": cell.repeat,
        "warm_up": cell.warm_up,
        "capture": cell.capture,
        "valid": cell.status == "done" and not void,
        "void_reasons": void,
        "status": cell.status,
        "n_prompts": cell.workload.n_prompts,
        "asked_input_tokens": cell.workload.input_tokens,
        "asked_output_tokens": cell.workload.output_tokens,
    }


def _open_loop(m: Measured) -> dict[str, Any]:
    """Return what was asked of an open loop, and how it went."""
    work, rows, seen = m.cell.workload, m.columns, m.open_loop
    if m.concurrency is not None or (work.arrival is None and not work.request_rate):
        return {}
    return {
        "request_rate": work.request_rate,
        "arrival": work.arrival,
        "burstiness": work.burstiness,
        "max_concurrency": work.max_concurrency or work.concurrency,
        "ramp_rps": work.ramp_rps,
        "offered_requests_per_s": None if seen is None else seen.offered_per_s,
        "completed_requests_per_s": None if seen is None else seen.completed_per_s,
        "keeps_up": None
        if seen is None or seen.overloaded is None
        else not seen.overloaded,
        "client_queue_ms": None if rows.due is None else stats(rows.sent - rows.due),
    }


def _server_side(m: Measured) -> dict[str, Any]:
    steps = m.steps
    return {
        "server_tpot_ms": m.server.tpot_ms,
        "server_ttft_ms": m.server.ttft_ms,
        "server_queue_ms": m.server.queue_ms,
        "client_tpot_error_pct": client_gap_pct(m),
        "engine_step_ms": None if steps is None else steps.step_ms,
        "engine_step_source": None if steps is None else steps.source,
        "tokens_per_step_and_sequence": _per_step(m),
        "sequences_per_step": None if steps is None else steps.sequences,
        "prefill_share_of_steps": None if steps is None else steps.prefill_share,
        "preemptions": m.server.preemptions,
        "prefix_cache_hit_pct": m.server.cache_hit_pct,
    }


def _per_step(m: Measured) -> float | None:
    """Return tokens that a step gives a sequence.

    The counters first: an iteration line counts what was scheduled, drafts that are
    then rejected among it.
    """
    if m.server.accepted_per_draft is not None:
        return 1 + m.server.accepted_per_draft
    return None if m.steps is None else m.steps.tokens_per_sequence


def _steady(m: Measured) -> dict[str, Any]:
    found, span = m.steady, m.span
    if found is None or span is None:
        return {}
    drift = found.drift
    return {
        "steady_occupancy": found.occupancy if found.judged else None,
        "steady_from_s": seconds(found.from_ns - span.from_ns),
        "steady_step_ms": found.step_ms,
        "drift_pct": None
        if drift is None or not found.judged
        else 100 * math.expm1(drift),
        "batch_means_error_pct": found.error_pct,
    }


def _telemetry(m: Measured) -> CellTelemetry | None:
    if m.window is None:
        return None
    command = None
    if m.cell.started_at_ns is not None and m.cell.ended_at_ns is not None:
        command = Window(m.cell.started_at_ns, m.cell.ended_at_ns)
    asked = asked_of(m.launch, m.machine.n_gpus)
    return cell_telemetry(m.machine, m.window, command, asked)


def _usd(rate: float | None, cost: Cost | None) -> float | None:
    if rate is None or cost is None or not cost.usd_per_hour:
        return None
    return cost.usd_per_hour / (rate * 3600) * 1e6


def _from_summary(
    m: Measured, findings: tuple[Finding, ...], cost: Cost | None
) -> CellResult:
    """Return the figures of a foreign result without single requests."""
    cell, summary = m.cell, m.cell.summary
    assert summary is not None
    n, took = summary.n_completed, summary.duration_s
    rate = None
    if summary.output_tokens is not None and took:
        rate = summary.output_tokens / took
    figures: dict[str, Stats] = {
        key: summary_stats(summary.stats.get(key), n)
        for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
    }
    e2el, ttft = figures["e2el_ms"].mean, figures["ttft_ms"].mean
    if e2el is None:
        e2el = summary_e2el_ms(summary)
    held = summary_in_flight(summary)
    occupancy = held / m.concurrency if m.concurrency and held is not None else None
    return CellResult(
        **_identity(m, findings),
        n_requests=n + summary.n_failed,
        n_failed=summary.n_failed,
        failure_kinds={},
        input_tokens=summary.input_tokens,
        output_tokens=summary.output_tokens,
        duration_s=took,
        waves=waves(cell.workload.n_prompts, m.concurrency),
        occupancy=occupancy,
        occupancy_expected=None,
        little_residual=None,
        output_tokens_per_s=rate,
        requests_per_s=n / took if took else None,
        steady_output_tokens_per_s=_steady_of(summary, m.concurrency, e2el),
        ttft_ms=figures["ttft_ms"],
        tpot_ms=figures["tpot_ms"],
        itl_ms=figures["itl_ms"],
        e2el_ms=figures["e2el_ms"],
        decode_efficiency=1 - ttft / e2el if ttft is not None and e2el else None,
        decode_efficiency_residual=None,
        chunks_per_token=None,
        **_server_side(m),
        telemetry=published_telemetry(cell.telemetry_means, took),
        mean_in_flight=held,
        usd_per_million_output_tokens=_usd(rate, cost),
    )


def _steady_of(
    summary: Summary, concurrency: int | None, e2el_ms: float | None
) -> float | None:
    tokens, n = summary.output_tokens, summary.n_completed
    if not concurrency or not e2el_ms or not tokens or not n:
        return None
    per_request = tokens / n
    return concurrency * per_request / e2el_ms * 1e3
