"""Step budgets of kernel timelines beside the same steps untraced.

A profiler lengthens the host's part of a step. How much is told by the period of the
steps when nobody traces: of the load that was driven on the same launch before the
profiler ran, else of the measured cells of that configuration and concurrency. A server
that is in a session of nsys has CUPTI attached to it even while nothing is recorded, so
of its launch only measured cells of other launches tell.

A cell of the same load may have had other steps than the traced one: data-parallel
ranks all run the graph of the fullest of them, so that one request more on a rank is
another step. The timeline is not read for such a cell.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from stepscope.analysis.across.points import tokens_a_step
from stepscope.analysis.across.records import TracedStep
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Run
from stepscope.run.stepbudget import StepBudget

#: Source: a step that the profiler lengthens by more is another step; the host's part
#: of it is then refused.
MOST_STRETCH_PCT = 15.0
#: Defects under which idle time is only the least there may have been.
_BLURRED = frozenset(
    {
        "stitched-timestamps",
        "duration-overflow",
        "microsecond-resolution",
        "host-clock-skew",
    }
)
_ATTACHED = (
    "; what that launch served while nothing was recorded ran with the profiler"
    " attached"
)
#: Chunks a token from which a gap between chunks is a step.
_UNMERGED = 0.98


def decode_step_ms(cell: CellResult) -> tuple[float, str] | None:
    """Return the time of a decode step as it was untraced, and what it is.

    The engine's own period, else the median gap where tokens come one by one, else
    TPOT. The median gap leaves out steps that prefill lengthened, as long as they are
    fewer than half; TPOT does not.
    """
    if cell.engine_step_ms is not None:
        return cell.engine_step_ms, "engine step"
    per_step = tokens_a_step(cell)
    plain = per_step < 1.05 and (cell.chunks_per_token or 0.0) >= _UNMERGED
    if plain and cell.itl_ms.median is not None:
        return cell.itl_ms.median, "median gap"
    tpot = cell.tpot_ms.mean if cell.server_tpot_ms is None else cell.server_tpot_ms
    return None if tpot is None else (tpot * per_step, "TPOT")


def is_step_of(step: TracedStep, cell: CellResult) -> bool:
    """Return whether a cell's decode step is the one that a timeline was held against.

    True too where one of the two is not known.
    """
    own, untraced = decode_step_ms(cell), step.untraced_step_ms
    if own is None or not untraced:
        return True
    return abs(100 * (own[0] / untraced - 1)) <= MOST_STRETCH_PCT


def traced_steps(
    run: Run, cells: Sequence[CellResult]
) -> tuple[tuple[TracedStep, ...], list[Finding]]:
    """Return the run's step budgets, each beside its untraced step, and findings.

    Args:
        run: With ``step_budgets``.
        cells: Figures of all its cells.
    """
    configurations = {x.name: x.configuration for x in run.launches}
    attached = {x.name for x in run.launches if x.wrapper}
    free = [c for c in cells if c.launch not in attached]
    steps: list[TracedStep] = []
    findings: list[Finding] = []
    for budget in run.step_budgets:
        findings += budget.findings
        configuration = configurations.get(budget.launch or "")
        concurrency = _concurrency(run, budget)
        if configuration is None:
            continue
        peers = _peers(budget, configuration, concurrency, free)
        step = _step(budget, configuration, concurrency, peers)
        steps.append(step)
        finding = _finding(step, attached=budget.launch in attached)
        if finding is not None:
            findings.append(finding)
        findings += _of_another(step, _alike(configuration, concurrency, free))
    return tuple(steps), findings


def _concurrency(run: Run, budget: StepBudget) -> int | None:
    if budget.concurrency is not None or budget.cell is None:
        return budget.concurrency
    of_it = (c.workload.concurrency for c in run.cells if c.name == budget.cell)
    return next(of_it, None)


def _peers(
    budget: StepBudget,
    configuration: str,
    concurrency: int | None,
    cells: Sequence[CellResult],
) -> list[CellResult]:
    """Return the untraced cells that had the same steps, the nearest kind only."""
    alike = _alike(configuration, concurrency, cells)
    own = [c for c in alike if c.capture == "untraced" and c.launch == budget.launch]
    return own or _measured(alike)


def _alike(
    configuration: str, concurrency: int | None, cells: Sequence[CellResult]
) -> list[CellResult]:
    return [
        c
        for c in cells
        if c.configuration == configuration
        and c.concurrency == concurrency
        and concurrency is not None
        and c.request_rate is None
        and decode_step_ms(c) is not None
    ]


def _measured(cells: Sequence[CellResult]) -> list[CellResult]:
    return [c for c in cells if c.valid and not c.warm_up]


def _of_another(step: TracedStep, alike: Sequence[CellResult]) -> list[Finding]:
    """Name the measured cells that had another step than the timeline's load."""
    if not step.usable or step.match not in ("same", "stretched"):
        return []
    found = []
    for cell in _measured(alike):
        own = decode_step_ms(cell)
        if own is None or is_step_of(step, cell):
            continue
        found.append(
            Finding(
                code="trace-of-another-step",
                severity="warning",
                message=f"the decode step of {cell.name} took {own[0]:.3g} ms"
                f" ({own[1]}), and the timeline at concurrency {cell.concurrency} is of"
                f" one that took {step.untraced_step_ms:.3g} ms untraced"
                f" ({step.untraced_source}): it is not read for that cell",
                hint="Take the timeline again, or repeat the cell. With data"
                " parallelism look at each engine's running requests: every rank runs"
                " the graph of the fullest one.",
                cell=cell.name,
                launch=cell.launch,
            )
        )
    return found


def _step(
    budget: StepBudget,
    configuration: str,
    concurrency: int | None,
    peers: Sequence[CellResult],
) -> TracedStep:
    traced = max((r.step_ms for r in budget.ranks), default=None)
    found = [d for c in peers if (d := decode_step_ms(c)) is not None]
    untraced = float(np.mean([value for value, _ in found])) if found else None
    stretch = None
    if traced is not None and untraced:
        stretch = 100 * (traced / untraced - 1)
    names = ", ".join(c.name for c in peers)
    return TracedStep(
        configuration=configuration,
        concurrency=concurrency,
        launch=budget.launch,
        cell=budget.cell,
        paths=budget.paths,
        usable=budget.usable
        and bool(budget.ranks)
        and not _BLURRED.intersection(budget.defects),
        defects=budget.defects,
        step_kind=budget.step_kind,
        step_source=budget.step_source,
        traced_step_ms=traced,
        untraced_step_ms=untraced,
        untraced_source=f"{found[0][1]} of {names}" if found else None,
        stretch_pct=stretch,
        match=_match(stretch),
        n_ranks=budget.n_ranks,
        ranks=budget.ranks,
        straggler_rank=budget.straggler_rank,
        straggler_reason=budget.straggler_reason,
    )


def _idle(step: TracedStep) -> str:
    """Return in words how long the idlest rank idles, and why."""
    known = [(r.idle_ms, r) for r in step.ranks if r.idle_ms is not None]
    if not known:
        return ""
    idle_ms, rank = max(known, key=lambda pair: pair[0])
    causes = sorted(
        ((ms, name) for name, ms in rank.idle_by_cause.items() if ms), reverse=True
    )
    parts = ", ".join(f"{name} {ms:.3g}" for ms, name in causes)
    of_rank = f" of rank {rank.rank}" if step.n_ranks > 1 else ""
    share = 100 * idle_ms / rank.step_ms
    text = f"; the device{of_rank} idles {share:.3g} % of a step"
    return f"{text} (ms: {parts})" if parts else text


def _match(
    stretch: float | None,
) -> Literal["same", "stretched", "other-steps", "unknown"]:
    if stretch is None:
        return "unknown"
    if stretch > MOST_STRETCH_PCT:
        return "stretched"
    return "other-steps" if stretch < -MOST_STRETCH_PCT else "same"


def _finding(step: TracedStep, *, attached: bool) -> Finding | None:
    traced, untraced = step.traced_step_ms, step.untraced_step_ms
    where = f"at concurrency {step.concurrency}"
    if not step.usable or traced is None:
        why = ", ".join(step.defects) or "no step was found in it"
        return Finding(
            code="trace-unusable",
            severity="warning",
            message=f"the timeline {where} says nothing of idle time: {why}",
            hint="stepscope trace says what is wrong with it.",
            cell=step.cell,
            launch=step.launch,
        )
    if untraced is None:
        return Finding(
            code="trace-unchecked",
            severity="info",
            message=f"nothing was measured {where} on a server without the profiler, so"
            f" how far it lengthened the step of {traced:.3g} ms is not known"
            + (_ATTACHED if attached else ""),
            hint="Measure the same concurrency without the profiler.",
            cell=step.cell,
            launch=step.launch,
        )
    beside = (
        f"steps of the timeline {where} take {traced:.3g} ms, {step.stretch_pct:+.1f} %"
        f" against {untraced:.3g} ms untraced ({step.untraced_source})"
    )
    told = {
        "same": ("trace-agrees", "info", _idle(step), ""),
        "stretched": (
            "trace-stretches-step",
            "warning",
            ": its host part is refused",
            "Trace fewer steps, without stacks and shapes.",
        ),
        "other-steps": (
            "trace-of-other-steps",
            "warning",
            ": it holds other steps than the requests saw, and is not read further",
            "Take it in the middle of the same load.",
        ),
    }
    code, severity, more, hint = told[step.match]
    return Finding(
        code=code,
        severity="warning" if severity == "warning" else "info",
        message=beside + more,
        hint=hint,
        cell=step.cell,
        launch=step.launch,
    )
