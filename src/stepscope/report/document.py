"""``analyze --json``: one record with exactly the contract's keys."""

import msgspec

from stepscope.analysis.across.records import (
    FloorPoint,
    RepeatGroup,
    StepModel,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.analyze import analyze
from stepscope.analysis.boot.records import BootResult, BreakEven, StartupCost
from stepscope.analysis.compare.records import Comparison, LeftOut, PooledComparison
from stepscope.analysis.records import CellResult
from stepscope.board.judge import judge
from stepscope.board.records import BoardEntry, Ceiling, ExperimentResult, NotSolid
from stepscope.findings import Finding
from stepscope.recipe.records import Layout
from stepscope.run.run import Run

SCHEMA = 1


class RunHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured, in one line."""

    id: str
    engine: str
    engine_version: str | None
    gpu: str | None
    n_gpus: int | None
    layout: Layout
    complete: bool


class AnalyzeDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Everything that a run says. Keys beyond the contract's are additions."""

    schema: int
    run: RunHead
    cells: tuple[CellResult, ...]
    step_model: tuple[StepModel, ...]
    floor: tuple[FloorPoint, ...]
    stacks: tuple[TokenStack, ...]
    boot: tuple[BootResult, ...]
    board: tuple[BoardEntry, ...]
    ceilings: tuple[Ceiling, ...]
    comparisons: tuple[Comparison, ...]
    pooled: tuple[PooledComparison, ...]
    left_out: tuple[LeftOut, ...]
    solid: tuple[str, ...]
    not_solid: tuple[NotSolid, ...]
    findings: tuple[Finding, ...]
    verdict: tuple[str, ...]
    groups: tuple[RepeatGroup, ...]
    traces: tuple[TracedStep, ...]
    experiments: tuple[ExperimentResult, ...] = ()
    startup: tuple[StartupCost, ...] = ()
    break_even: tuple[BreakEven, ...] = ()


def document(run: Run) -> AnalyzeDocument:
    """Return the document of a run."""
    analysis = analyze(run)
    board = judge(run, analysis)
    version = run.engine_version
    if version is None:
        logs = [x.log for x in run.launches if x.log is not None]
        version = next((log.version for log in logs if log.version), None)
    return AnalyzeDocument(
        schema=SCHEMA,
        run=RunHead(
            id=run.id,
            engine=run.engine,
            engine_version=version,
            gpu=run.gpu,
            n_gpus=run.n_gpus,
            layout=run.layout,
            complete=run.complete,
        ),
        cells=analysis.cells,
        step_model=analysis.step_model,
        floor=analysis.floor,
        stacks=analysis.stacks,
        boot=analysis.boot,
        board=board.entries,
        ceilings=board.ceilings,
        comparisons=analysis.comparisons,
        pooled=analysis.pooled,
        left_out=analysis.left_out,
        solid=board.solid,
        not_solid=board.not_solid,
        findings=tuple(dict.fromkeys((*board.findings, *analysis.findings))),
        verdict=board.sentences,
        groups=analysis.groups,
        traces=analysis.traced,
        experiments=board.experiments,
        startup=analysis.startup,
        break_even=analysis.break_even,
    )
