"""A run to everything that can be computed from it."""

from collections.abc import Sequence

import msgspec

from stepscope.analysis.across.anomalies import ttft_findings
from stepscope.analysis.across.compare import comparisons
from stepscope.analysis.across.groups import repeat_findings, repeat_groups
from stepscope.analysis.across.stepmodel import Bytes, BytesOf, step_models
from stepscope.analysis.across.warmup import warm_up_findings
from stepscope.analysis.boot.document import log_document
from stepscope.analysis.cell.findings import cell_findings
from stepscope.analysis.cell.loop_rules import stalled_in_decode
from stepscope.analysis.cell.measured import measured
from stepscope.analysis.cell.result import cell_result
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.floor import (
    StepAt,
    context_of,
    floor_points,
    step_bytes_of,
)
from stepscope.analysis.records import Analysis, BootResult, CellResult
from stepscope.findings import Finding
from stepscope.physics.hardware import find_gpu
from stepscope.run.run import Launch, Run
from stepscope.run.serverlog import BootVerdict
from stepscope.units import seconds


def analyze(run: Run) -> Analysis:
    """Return figures, groups, models, floors, boots, comparisons and findings."""
    machine = Machine.of(run.samples)
    found: list[Finding] = []
    results = []
    in_decode: set[str] = set()
    for cell in run.cells:
        m = measured(cell, run, machine)
        mine = cell_findings(m)
        found += mine
        results.append(cell_result(m, mine, run.cost))
        if stalled_in_decode(m):
            in_decode.add(cell.name)
    found += [*repeat_findings(results), *ttft_findings(results)]
    contaminated = _named(found, "first-run-contaminated")
    anomalous = contaminated | _named(found, "stall", "ttft-not-monotone")
    groups = repeat_groups(results, anomalous)
    found += warm_up_findings(run, results)
    bytes_of, more = step_bytes_of(run)
    models, poor = step_models(
        results,
        max(run.layout.dp, 1),
        physics_of(run, bytes_of),
        contaminated | in_decode,
    )
    order = list(dict.fromkeys(c.configuration for c in run.cells))
    launches = {cell.name: cell.launch for cell in run.cells}
    compared, notes = comparisons(groups, order, launches, anomalous)
    found += [*more, *poor, *notes, *_from_logs(run)]
    return Analysis(
        cells=tuple(results),
        groups=groups,
        step_model=models,
        floor=floor_points(results, run, bytes_of, contaminated | in_decode),
        boot=tuple(_boot(launch) for launch in run.launches),
        comparisons=compared,
        findings=tuple(dict.fromkeys((*run.findings, *found))),
    )


def _named(findings: Sequence[Finding], *codes: str) -> frozenset[str]:
    return frozenset(f.cell for f in findings if f.code in codes and f.cell)


def _from_logs(run: Run) -> list[Finding]:
    return [
        msgspec.structs.replace(finding, launch=finding.launch or launch.name)
        for launch in run.launches
        if launch.log is not None
        for finding in launch.log.findings
    ]


def physics_of(run: Run, bytes_of: StepAt | None) -> BytesOf | None:
    """Return bytes by cells for a mixture of experts; a dense model's grow in a line.

    Without coverage the bytes are a constant and a line in the batch, which toll and
    slope already are.
    """
    if bytes_of is None or bytes_of(1, 1).coverage is None:
        return None
    gpu = find_gpu(run.gpu) if run.gpu else None
    dp = max(run.layout.dp, 1)

    def of(cells: Sequence[CellResult]) -> Bytes | None:
        context = context_of(cells)
        if context is None:
            return None
        return Bytes(
            at=lambda x: bytes_of(x * dp, context).path_bytes,
            peak_bytes_per_s=None if gpu is None else gpu.bandwidth_bytes_per_s,
        )

    return of


def _with_failure(verdict: BootVerdict, launch: Launch) -> BootVerdict:
    """Let what the session saw speak where the log says nothing."""
    if launch.ready or launch.failure is None or verdict.outcome != "unfinished":
        return verdict
    late = launch.failure.startswith("not ready after")
    return msgspec.structs.replace(
        verdict,
        outcome="failed",
        cause="ready-timeout" if late else "unknown",
        why=f"The log does not say why. {launch.failure}",
    )


def _boot(launch: Launch) -> BootResult:
    took = None
    if launch.started_at_ns is not None and launch.ready_at_ns is not None:
        took = seconds(launch.ready_at_ns - launch.started_at_ns)
    phases: tuple[dict[str, object], ...] = ()
    ledger: dict[str, object] = {}
    verdict: dict[str, object] = {}
    if launch.log is not None:
        code = None if launch.ready else launch.exit_code
        document = log_document(launch.log, exit_code=code)
        phases = tuple(msgspec.to_builtins(document.phases))
        ledger = msgspec.to_builtins(document.ledger)
        verdict = msgspec.to_builtins(_with_failure(document.verdict, launch))
    return BootResult(
        launch=launch.name,
        ready=launch.ready,
        seconds_to_ready=took,
        phases=phases,
        ledger=ledger,
        verdict=verdict,
        log_path=launch.log_path,
    )
