"""The kernel timelines of a run, read once and remembered.

A timeline of many steps takes seconds to read. What was read is kept in the cache
folder under the hash of the files and of the code that read them, so that a run
directory stays as it was closed and a better reader is used at once.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec

from stepscope.archive.atomic import write_bytes
from stepscope.errors import StepscopeError
from stepscope.findings import Finding
from stepscope.run.run import Run, TraceRef
from stepscope.run.stepbudget import KernelTime, RankBudget, StepBudget
from stepscope.timeline.analyze import analyze_traces
from stepscope.timeline.load import load_trace
from stepscope.timeline.records import Rank, TraceResult

#: What analysis of a whole run checks itself.
_CHECKED_LATER = frozenset({"untraced-period-unknown"})


def with_timelines(run: Run, folder: Path | None = None) -> Run:
    """Return the run with the step budgets of its timelines.

    A timeline that is missing or damaged is a finding and hides nothing else.

    Args:
        run: The run.
        folder: Where results are kept; None: the user's cache folder.
    """
    if not run.traces:
        return run
    kept = folder or _cache_folder()
    captures: dict[tuple[str | None, ...], list[TraceRef]] = {}
    for trace in run.traces:
        key = (trace.launch, trace.cell, str(trace.concurrency))
        captures.setdefault(key, []).append(trace)
    budgets: list[StepBudget] = []
    findings: list[Finding] = []
    for traces in captures.values():
        try:
            result = _result(tuple(Path(t.path) for t in traces), kept)
        except (StepscopeError, OSError) as error:
            findings.append(_unreadable(traces[0], error))
            continue
        budgets.append(budget_of(result, traces))
    return msgspec.structs.replace(
        run, step_budgets=tuple(budgets), findings=(*run.findings, *findings)
    )


def budget_of(result: TraceResult, traces: Sequence[TraceRef]) -> StepBudget:
    """Return what a verdict needs of timelines that were read.

    Args:
        result: Of all of them together.
        traces: What the run says of them; at least one.
    """
    first = traces[0]
    ranks = [rank for rank in result.ranks if rank.budget_ms is not None]
    budgets = (_rank(rank, i, result) for i, rank in enumerate(result.ranks))
    return StepBudget(
        paths=tuple(trace.path for trace in traces),
        launch=first.launch,
        cell=first.cell,
        concurrency=first.concurrency,
        usable=result.quality.usable,
        defects=result.quality.defects,
        step_kind=ranks[0].step_kind if ranks else None,
        step_source=ranks[0].step_source if ranks else None,
        ranks=tuple(budget for budget in budgets if budget is not None),
        n_ranks=len(result.ranks),
        straggler_rank=result.straggler_rank,
        straggler_reason=result.straggler_reason,
        findings=tuple(
            # What spoils a timeline spoils no measurement.
            msgspec.structs.replace(
                f,
                cell=first.cell,
                launch=first.launch,
                severity="warning" if f.severity == "error" else f.severity,
            )
            for f in result.findings
            if f.code not in _CHECKED_LATER
        ),
    )


def _rank(rank: Rank, index: int, result: TraceResult) -> RankBudget | None:
    """Return the mean step of the rank at ``index``; None where there is none."""
    budget, step = rank.budget_ms, rank.step_ms
    if budget is None or step is None:
        return None
    on_host = [c for c in result.collectives if c.on_host]
    causes = {} if rank.idle_ms is None else msgspec.structs.asdict(rank.idle_ms)
    return RankBudget(
        rank=rank.rank,
        n_periods=rank.n_periods,
        step_ms=step.mean,
        compute_ms=budget.compute,
        communication_ms=budget.communication,
        communication_wait_ms=budget.communication_wait,
        memcpy_ms=budget.memcpy,
        idle_ms=budget.idle,
        idle_by_cause=causes,
        kernels=tuple(
            KernelTime(
                name=k.name, ms_per_step=k.ms_per_step, count_per_step=k.count_per_step
            )
            for k in rank.top_kernels
        ),
        host_wait_ms=sum(c.wait_ms_by_rank[index] for c in on_host)
        if on_host
        else None,
        host_transfer_ms=sum(c.transfer_ms for c in on_host) if on_host else None,
    )


def _result(paths: tuple[Path, ...], folder: Path) -> TraceResult:
    place = folder / f"{_key(paths)}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(place.read_bytes(), type=TraceResult)
    traces = [found for path in paths for found in load_trace(path)]
    traces.sort(key=lambda t: -1 if t.rank is None else t.rank)
    result = analyze_traces(traces)
    # A cache that can not be written costs time and nothing else.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(place, msgspec.json.encode(result))
    return result


def _key(paths: tuple[Path, ...]) -> str:
    digest = hashlib.sha256(_reader().encode())
    for path in paths:
        digest.update(str(path).encode())
        if path.is_file():
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:40]


@cache
def _reader() -> str:
    """Return a digest of the code that reads timelines."""
    digest = hashlib.sha256()
    sources = files("stepscope.timeline")
    for name in sorted(s.name for s in sources.iterdir() if s.name.endswith(".py")):
        digest.update(sources.joinpath(name).read_bytes())
    return digest.hexdigest()


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(home) / "stepscope" / "timelines"


def _unreadable(trace: TraceRef, error: Exception) -> Finding:
    return Finding(
        code="trace-unreadable",
        severity="warning",
        message=f"a timeline is left out: {error}",
        hint="Restore the file, or take the timeline again.",
        cell=trace.cell,
        launch=trace.launch,
    )
