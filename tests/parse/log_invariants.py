"""What holds of every log's record and verdict, whatever bytes it was read from."""

import math

import msgspec

from stepscope.analysis.boot.document import LogDocument, log_document
from stepscope.run.serverlog import Ledger, ServerLog

OUTCOMES = {"ready", "failed", "unfinished"}
DIRECTIONS = {"raise", "lower", "set", "remove"}
CONFIDENCES = {"high", "medium", "low"}
CAUSES = {
    "gpu-oom-load", "gpu-oom-profile", "gpu-oom-warmup-after-kv", "gpu-oom-capture",
    "gpu-oom-sampler", "gpu-oom-runtime", "no-kv-memory", "kv-smaller-than-context",
    "free-memory-below-request", "memory-race", "mamba-blocks", "host-oom-kill",
    "shm-exhausted", "nccl-system-error", "missing-package", "missing-toolchain",
    "unsupported-arch", "bad-argument", "port-in-use", "model-not-found",
    "ready-timeout", "hang", "unknown",
}  # fmt: skip


def check_log(log: ServerLog, data: bytes) -> None:
    """Fail unless a record's lines lie in its log and its figures are figures."""
    n_lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert log.n_lines == n_lines
    lines = [e.line for e in log.events] + [f.line for f in log.failures]
    lines += list(log.resolved_lines.values())
    lines += [x for x in (log.boot.ready_line, log.boot.shutdown_line) if x is not None]
    lines += [p.line for p in log.phases if p.line is not None]
    assert all(1 <= line <= n_lines for line in lines)
    assert [e.line for e in log.events] == sorted(e.line for e in log.events)
    assert set(log.resolved_lines) == set(log.resolved)
    for phase in log.phases:
        assert phase.seconds is None or phase.seconds >= 0
        assert not set(phase.overlaps) - {p.name for p in log.phases}
    kept: dict[str, int] = {}
    for event in log.events:
        kept[event.kind] = kept.get(event.kind, 0) + 1
    assert all(n <= log.event_counts[kind] for kind, n in kept.items())
    for ledger in (log.ledger, *log.ledgers.values()):
        check_ledger(ledger)
    again = msgspec.json.decode(msgspec.json.encode(log), type=ServerLog)
    assert again == log


def check_ledger(ledger: Ledger) -> None:
    """Fail unless the rows that are there sum to the request."""
    for name in ledger.__struct_fields__:
        value = getattr(ledger, name)
        assert not isinstance(value, float) or math.isfinite(value), name
    if ledger.requested_gib is None or ledger.unaccounted_gib is None:
        return
    if ledger.free_at_end_gib is not None:
        return
    graphs = ledger.graph_estimate_gib if ledger.graph_estimate_applied else None
    parts = (
        ledger.weights_gib,
        ledger.non_torch_gib,
        ledger.activation_peak_gib,
        ledger.kv_gib,
        graphs,
        ledger.unaccounted_gib,
    )
    if ledger.weights_gib is None or ledger.non_torch_gib is None:
        return
    total = sum(p for p in parts if p is not None)
    scale = max(abs(p) for p in (*parts, ledger.requested_gib) if p is not None)
    assert abs(total - ledger.requested_gib) <= 1e-6 * scale + 1e-6


def check_document(log: ServerLog, exit_code: int | None) -> LogDocument:
    """Fail unless the verdict is one of the contract's and points into the log."""
    document = log_document(log, exit_code=exit_code)
    verdict = document.verdict
    assert verdict.outcome in OUTCOMES
    assert (verdict.cause is not None) == (verdict.outcome == "failed")
    assert verdict.cause is None or verdict.cause in CAUSES
    assert verdict.root_line is None or 1 <= verdict.root_line <= log.n_lines
    assert verdict.why
    for fix in verdict.fixes:
        assert fix.flag
        assert fix.direction in DIRECTIONS
        assert fix.confidence in CONFIDENCES
        assert not isinstance(fix.value, float) or math.isfinite(fix.value)
    again = msgspec.json.decode(msgspec.json.encode(document), type=LogDocument)
    assert again == document
    return document
