"""What kernel timelines say of a decode step: the part that a verdict needs.

Milliseconds, since the records come from `trace --json`; None is unknown.
"""

import msgspec

from stepscope.findings import Finding


class KernelTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel of a step, by short name."""

    name: str
    ms_per_step: float
    count_per_step: float


class RankBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mean step of one rank; see ``stepscope trace`` for the parts.

    Attributes:
        step_ms: Mean period; compute, communication, memcpy and idle sum to it.
        communication_wait_ms: Part of ``communication_ms``; None where it can not be
            told from transfer.
        idle_ms: None where the timeline can not be trusted with it.
        idle_by_cause: Cause to milliseconds; sums to ``idle_ms``.
        kernels: The largest.
        host_wait_ms: Time in which its host waited in collectives of the processors
            (gloo), whether its device idled or not; None: none were matched.
        host_transfer_ms: From the last arrival to the end of these; None likewise.
    """

    rank: int
    n_periods: int
    step_ms: float
    compute_ms: float
    communication_ms: float
    communication_wait_ms: float | None
    memcpy_ms: float
    idle_ms: float | None
    idle_by_cause: dict[str, float | None] = {}
    kernels: tuple[KernelTime, ...] = ()
    host_wait_ms: float | None = None
    host_transfer_ms: float | None = None


class StepBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The timelines of one capture, one a rank, read together.

    Attributes:
        paths: Their files.
        launch: The launch that they were taken on.
        cell: The cell that was driven meanwhile; None: not known.
        concurrency: Requests in flight meanwhile; None: not known.
        usable: False: not even idle time can be told.
        defects: Codes of the quality gate.
        step_kind: ``decode``, ``mixed``...; None: steps were not told apart.
        step_source: How steps were found: ``graph-launches``, ``annotations``
            or ``period``.
        ranks: Those whose steps were found.
        n_ranks: Ranks that were read.
        straggler_rank: For whom the others wait; None: nobody, or not known.
        straggler_reason: Why.
        findings: What the reader must know.
    """

    paths: tuple[str, ...]
    launch: str | None
    cell: str | None
    concurrency: int | None
    usable: bool
    defects: tuple[str, ...]
    step_kind: str | None
    step_source: str | None
    ranks: tuple[RankBudget, ...]
    n_ranks: int
    straggler_rank: int | None = None
    straggler_reason: str | None = None
    findings: tuple[Finding, ...] = ()
