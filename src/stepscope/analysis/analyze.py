"""A run to everything that can be computed from it."""

import msgspec

from stepscope.analysis.across.anomalies import ttft_findings
from stepscope.analysis.across.compare import comparisons
from stepscope.analysis.across.groups import group_findings, repeat_groups
from stepscope.analysis.across.stepmodel import step_models
from stepscope.analysis.across.warmup import warm_up_findings
from stepscope.analysis.boot.document import log_document
from stepscope.analysis.cell.findings import cell_findings
from stepscope.analysis.cell.measured import measured
from stepscope.analysis.cell.result import cell_result
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.floor import floor_points, step_bytes_of
from stepscope.analysis.records import Analysis, BootResult
from stepscope.findings import Finding
from stepscope.run.run import Launch, Run
from stepscope.units import seconds


def analyze(run: Run) -> Analysis:
    """Return figures, groups, models, floors, boots, comparisons and findings."""
    machine = Machine.of(run.samples)
    found: list[Finding] = []
    results = []
    for cell in run.cells:
        m = measured(cell, run, machine)
        mine = cell_findings(m)
        found += mine
        results.append(cell_result(m, mine, run.cost))
    groups = repeat_groups(results)
    found += group_findings(groups)
    found += ttft_findings(results)
    contaminated = frozenset(
        f.cell for f in found if f.code == "first-run-contaminated" and f.cell
    )
    groups = repeat_groups(results, contaminated)
    found += warm_up_findings(run, results)
    bytes_of, more = step_bytes_of(run)
    found += more
    dp = max(run.layout.dp, 1)
    models = step_models(
        results,
        dp,
        None if bytes_of is None else lambda x: bytes_of(x * dp).path_bytes,
        contaminated,
    )
    order = list(dict.fromkeys(c.configuration for c in run.cells))
    compared, across = comparisons(groups, order)
    found += across
    boots = tuple(_boot(launch) for launch in run.launches)
    found += [f for launch in run.launches if launch.log for f in launch.log.findings]
    return Analysis(
        cells=tuple(results),
        groups=groups,
        step_model=models,
        floor=floor_points(results, run, bytes_of),
        boot=boots,
        comparisons=compared,
        findings=(*run.findings, *found),
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
        verdict = msgspec.to_builtins(document.verdict)
    return BootResult(
        launch=launch.name,
        ready=launch.ready,
        seconds_to_ready=took,
        phases=phases,
        ledger=ledger,
        verdict=verdict,
        log_path=launch.log_path,
    )
