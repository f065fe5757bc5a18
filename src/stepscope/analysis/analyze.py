"""A run to everything that can be computed from it."""

from collections.abc import Sequence

import msgspec

from stepscope.analysis.across.anomalies import ttft_findings
from stepscope.analysis.across.drift import drift_findings
from stepscope.analysis.across.groups import repeat_findings, repeat_groups
from stepscope.analysis.across.stack import token_stacks
from stepscope.analysis.across.steplines import step_line_findings
from stepscope.analysis.across.stepmodel import Bytes, BytesOf, step_models
from stepscope.analysis.across.traces import traced_steps
from stepscope.analysis.across.warmup import warm_up_findings, with_warm_up
from stepscope.analysis.cell.findings import cell_findings
from stepscope.analysis.cell.loop_rules import stalled_in_decode
from stepscope.analysis.cell.measured import measured
from stepscope.analysis.cell.result import cell_result
from stepscope.analysis.cell.telemetry import Machine
from stepscope.analysis.compare.compare import within
from stepscope.analysis.compare.measured import Measured, anomalous, replaceable
from stepscope.analysis.fixes import differing_fixes, fixed_cells
from stepscope.analysis.floor import (
    StepAt,
    context_of,
    floor_points,
    step_bytes_of,
)
from stepscope.analysis.records import Analysis, CellResult
from stepscope.analysis.startup import boot_results, break_evens, startup_costs
from stepscope.findings import Finding
from stepscope.physics.hardware import find_gpu
from stepscope.run.run import Run


def analyze(run: Run) -> Analysis:
    """Return figures, groups, models, floors, boots, comparisons and findings."""
    machine = Machine.of(run.samples, run.n_gpus)
    found: list[Finding] = []
    results = []
    in_decode: set[str] = set()
    for cell in run.cells:
        m = measured(cell, run, machine)
        # A profiler stalls the load beside it; that is no news.
        mine = () if cell.capture == "traced" else cell_findings(m)
        found += mine
        results.append(cell_result(m, mine, run.cost))
        if stalled_in_decode(m):
            in_decode.add(cell.name)
    found += [*repeat_findings(results), *ttft_findings(results)]
    contaminated = _named(found, "first-run-contaminated")
    odd = anomalous(found)
    late = replaceable(found)
    groups = repeat_groups(results, odd | late)
    compiled = _named(found, "jit-during-measurement")
    results = with_warm_up(run, results, compiled)
    uneven = _named(found, "uneven-ranks")
    found += warm_up_findings(run, results, compiled, uneven)
    found += drift_findings(run, results, contaminated | in_decode)
    bytes_of, more = step_bytes_of(run)
    models, poor = step_models(
        results,
        max(run.layout.dp, 1),
        physics_of(run, bytes_of),
        contaminated | in_decode,
    )
    order = list(dict.fromkeys(c.configuration for c in run.cells))
    measured_run = Measured(run, results, odd, run.id, replaceable=late)
    between = within(measured_run, order)
    rows = () if between is None else between.comparisons
    boots = boot_results(run)
    costs = startup_costs(boots, run)
    if between is not None:
        found += between.findings
    found += [*more, *poor, *_from_logs(run), *step_line_findings(run)]
    found += [*differing_fixes(run, rows), *fixed_cells(run)]
    traced, more = traced_steps(run, results)
    found += more
    floor = floor_points(results, run, bytes_of, contaminated | in_decode)
    return Analysis(
        cells=tuple(results),
        traced=traced,
        stacks=token_stacks(results, floor, traced, contaminated | in_decode),
        groups=groups,
        step_model=models,
        floor=floor,
        boot=boots,
        startup=costs,
        break_even=break_evens(costs, rows),
        comparisons=rows,
        pooled=() if between is None else between.pooled,
        left_out=() if between is None else between.left_out,
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
