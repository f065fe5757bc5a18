"""What is read across cells: step models, floors, stacks, repeats; records."""

from typing import Literal

import msgspec

from stepscope.run.stepbudget import RankBudget

StepModelKind = Literal["constant", "line", "hinge", "coverage"]


class StepModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step time over sequences per rank, for one configuration of one session.

    ``step_source`` says which step time: ``engine step``, ``server TPOT`` or
    ``client TPOT``; one for all points. ``cells`` names the cell of each point.

    Level, slope, knee and asymptote are four numbers with their 95 % intervals; the
    asymptote (level - slope x knee) is not a cost anything ever pays. ``n_rows``:
    points that the intervals and the choice of shape rest on; fewer than ``n_points``
    where each concurrency counts once.
    """

    configuration: str
    kind: StepModelKind
    n_points: int
    level_ms: float | None
    level_ci95_ms: tuple[float, float] | None
    slope_ms_per_seq: float | None
    slope_ci95: tuple[float, float] | None
    knee_seqs_per_rank: float | None
    knee_ci95: tuple[float, float] | None
    asymptote_ms: float | None
    toll_share: dict[str, float]
    residual_pct: float | None
    bandwidth_bytes_per_s: float | None = None
    bandwidth_ci95: tuple[float, float] | None = None
    points: tuple[tuple[float, float], ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    rejected: tuple[str, ...] = ()
    session: str | None = None
    step_source: str | None = None
    asymptote_ci95_ms: tuple[float, float] | None = None
    n_rows: int | None = None
    cells: tuple[str, ...] = ()


class TracedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decode step by kernel timelines, beside the same step untraced.

    Attributes:
        usable: The quality gate lets idle time be told.
        traced_step_ms: Mean period, of the slowest rank.
        untraced_step_ms: Of the cells that ``untraced_source`` names.
        stretch_pct: Traced over untraced, less one.
        match: ``same`` within 15 %; ``stretched``: the profiler lengthened it by more,
            so the host's part is refused; ``other-steps``: it is shorter by more;
            ``unknown``: nothing was measured untraced.
        n_ranks: Ranks that were traced.
        ranks: Their mean steps.
    """

    configuration: str
    concurrency: int | None
    launch: str | None
    cell: str | None
    paths: tuple[str, ...]
    usable: bool
    defects: tuple[str, ...]
    step_kind: str | None
    step_source: str | None
    traced_step_ms: float | None
    untraced_step_ms: float | None
    untraced_source: str | None
    stretch_pct: float | None
    match: Literal["same", "stretched", "other-steps", "unknown"]
    n_ranks: int
    ranks: tuple[RankBudget, ...]
    straggler_rank: int | None = None
    straggler_reason: str | None = None


class FloorPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The byte floor beside the measured step at one concurrency.

    Attributes:
        needed_pct: What the floor's bytes come to over the whole cell, percent of the
            bandwidth, at least: as if every step were full.
        read_pct: What the DRAM counter of the GPU that reads most says, the larger of
            its mean and its median; None without a counter.
    """

    configuration: str
    concurrency: int
    seqs_per_rank: float
    coverage: float | None
    bytes_per_rank: float
    floor_ms: float
    step_ms: float | None
    times_floor: float | None
    expert_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    needed_pct: float | None = None
    read_pct: float | None = None


class StackPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of the time between two tokens."""

    name: str
    ms: float


class TokenStack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parts of TPOT at one concurrency, from the device outwards; they sum to it.

    Attributes:
        tpot_ms: Mean of the client's TPOT over the cells.
        step_ms: The decode step, untraced, for each token of a sequence.
        step_source: What it was taken from: engine step, median gap or TPOT.
        floor_ms: Time of the bytes alone; it is the sum of the floor's parts.
        traced: A timeline as long as the untraced step tells idle time apart.
        cells: Whose figures they are.
        rank: Of several ranks the one whose timeline it is: the one that the others
            wait for, else that of the longest step.
    """

    configuration: str
    concurrency: int
    tpot_ms: float
    step_ms: float
    step_source: str
    floor_ms: float | None
    parts: tuple[StackPart, ...]
    traced: bool
    cells: tuple[str, ...]
    rank: int | None = None


class RepeatGroup(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The repeats of one configuration and workload point, read together.

    ``ci95`` is a Student t interval on log values over valid repeats; None for one.
    """

    configuration: str
    session: str
    concurrency: int | None
    metric: str
    cells: tuple[str, ...]
    values: tuple[float, ...]
    mean: float
    ci95: tuple[float, float] | None
    cv_pct: float | None
    request_rate: float | None = None
    n_prompts: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
