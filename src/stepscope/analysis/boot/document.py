"""``stepscope log --json``: one record with the contract's keys."""

import msgspec

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.analysis.boot.explain import (
    AuditedSuggestion,
    KvReading,
    audited_suggestions,
    inert_flags,
    kv_reading,
)
from stepscope.findings import Finding
from stepscope.run.serverlog import (
    BootState,
    BootVerdict,
    CapturePass,
    InertFlag,
    Ledger,
    Phase,
    ServerLog,
)

Value = str | int | float | bool | None


class LogDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a server log says, its verdict included.

    Keys beyond the contract's are additions.
    """

    engine: str | None
    version: str | None
    resolved: dict[str, Value]
    non_default_args: dict[str, Value]
    phases: tuple[Phase, ...]
    ledger: Ledger
    capture_passes: tuple[CapturePass, ...]
    verdict: BootVerdict
    resolved_lines: dict[str, int] = {}
    kv: KvReading = KvReading()
    suggestions: tuple[AuditedSuggestion, ...] = ()
    inert_flags: tuple[InertFlag, ...] = ()
    ledgers: dict[str, Ledger] = {}
    boot: BootState = BootState()
    event_counts: dict[str, int] = {}
    findings: tuple[Finding, ...] = ()
    n_lines: int = 0


def log_document(log: ServerLog, *, exit_code: int | None = None) -> LogDocument:
    """Return the document of a parsed log."""
    return LogDocument(
        engine=log.engine,
        version=log.version,
        resolved=log.resolved,
        non_default_args=log.non_default_args,
        phases=log.phases,
        ledger=log.ledger,
        capture_passes=log.capture_passes,
        verdict=diagnose(log, exit_code=exit_code),
        resolved_lines=log.resolved_lines,
        kv=kv_reading(log),
        suggestions=audited_suggestions(log),
        inert_flags=inert_flags(log),
        ledgers=log.ledgers,
        boot=log.boot,
        event_counts=log.event_counts,
        findings=log.findings,
        n_lines=log.n_lines,
    )
