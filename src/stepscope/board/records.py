"""What the board returns: hypotheses with evidence, what is solid and what is not."""

from typing import Literal

import msgspec

from stepscope.findings import Finding

#: design.md, section 5. Fixed ids, in the order in which they are printed.
HYPOTHESES = (
    "client", "frontend", "scheduler", "launch", "graph-launch", "kernel-gaps",
    "rank-wait", "imbalance", "communication", "bandwidth", "compute", "power",
    "kv-capacity", "host-memory", "prefill", "warm-up",
)  # fmt: skip

Status = Literal["supported", "ruled-out", "standing", "untestable"]


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a status holds."""

    configuration: str
    concurrency_from: int | None
    concurrency_to: int | None
    request_rate_from: float | None = None
    request_rate_to: float | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measurement that bears on a hypothesis.

    ``source`` names the cell, launch or file; ``reasoning`` says what it implies and
    what it can not see.
    """

    source: str
    quantity: str
    value: float | int | str | None
    unit: str
    reasoning: str


class BoardEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hypothesis in one scope.

    ``supported`` and ``ruled-out`` carry evidence; ``untestable`` says in
    ``would_decide`` which measurement would decide it and how to take it.
    ``next_ceiling`` says of a supported cause what would limit next without it.
    """

    hypothesis: str
    scope: Scope
    status: Status
    share_of_step_pct: float | None
    evidence: tuple[Evidence, ...]
    would_decide: str | None
    next_ceiling: str | None = None

    def __post_init__(self) -> None:
        if self.hypothesis not in HYPOTHESES:
            raise ValueError(f"no such hypothesis: {self.hypothesis}")
        if self.status in ("supported", "ruled-out") and not self.evidence:
            raise ValueError(f"{self.hypothesis}: {self.status} without evidence")
        if self.status == "untestable" and not self.would_decide:
            raise ValueError(f"{self.hypothesis}: untestable needs would_decide")


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one resource would allow by itself at one concurrency.

    Attributes:
        output_tokens_per_s: An upper bound under the assumption in ``basis``.
        times_measured: The same over what was measured there.
    """

    configuration: str
    concurrency: int
    hypothesis: str
    output_tokens_per_s: float
    times_measured: float
    basis: str


class Moved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a change did to TPOT at one workload point.

    Attributes:
        light_ms: Mean TPOT of the side expected to be faster.
        heavy_ms: Of the other.
        delta_pct: Heavier over lighter, less one.
        ci95_pct: Its interval; None where each side was measured once.
        n_light: Launches, or runs of one, behind ``light_ms``.
        n_heavy: The same behind ``heavy_ms``.
        outcome: ``needs-launches``: not told from noise.
        why: What that rests on.
    """

    concurrency: int | None
    request_rate: float | None
    light_ms: float
    heavy_ms: float
    delta_pct: float
    ci95_pct: tuple[float, float] | None
    n_light: int
    n_heavy: int
    outcome: Literal["longer", "shorter", "unchanged", "needs-launches"]
    why: str


class Told(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A status of a hypothesis, without its evidence."""

    hypothesis: str
    configuration: str
    concurrency_from: int | None
    concurrency_to: int | None
    status: Status
    share_of_step_pct: float | None


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment that was run because it could decide open causes.

    Attributes:
        number: From 0, in the order in which they were run.
        title: What was done.
        launches: Their names.
        splits: Hypotheses that its outcome could decide.
        before: Their statuses without it and what came after it.
        after: Their statuses with it.
        eliminated: Of them, what it ruled out.
        supported: Of them, what it supported.
        minutes: What its launches took, from start to stop.
        usd: The same in money; None without prices.
        failure: Why it measured nothing; None where it did.
    """

    number: int
    title: str
    launches: tuple[str, ...]
    splits: tuple[str, ...]
    before: tuple[Told, ...]
    after: tuple[Told, ...]
    eliminated: tuple[str, ...]
    supported: tuple[str, ...]
    minutes: float | None
    usd: float | None
    failure: str | None = None


class ExperimentResult(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Two configurations of one session that differ by one change, or a timeline.

    Attributes:
        change: Id of the table of changes, or ``trace``.
        title: What was changed.
        light: The side expected to be faster; for ``trace`` what was traced.
        heavy: The other side.
        session: Where both were measured.
        moved: By workload point; empty for ``trace``.
        said: What it says of hypotheses, on its own.
        moves: What the change moves.
        cannot_see: What the pair is blind to.
        chosen: Where ``explain`` ran it; None where the recipe had both sides.
    """

    change: str
    title: str
    light: str
    heavy: str | None
    session: str | None
    moved: tuple[Moved, ...]
    said: tuple[Told, ...]
    moves: str
    cannot_see: str
    chosen: Chosen | None = None


class NotSolid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim with a hole."""

    claim: str
    why: str
    what_would_settle_it: str


class Board(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict.

    ``sentences``: at most three, for the head of the page. They say no more than the
    entries support. ``findings``: what became of the claims of the run's source.
    """

    sentences: tuple[str, ...]
    entries: tuple[BoardEntry, ...]
    solid: tuple[str, ...]
    not_solid: tuple[NotSolid, ...]
    findings: tuple[Finding, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    experiments: tuple[ExperimentResult, ...] = ()


def told(entry: BoardEntry) -> Told:
    """Return the status of an entry without its evidence."""
    return Told(
        hypothesis=entry.hypothesis,
        configuration=entry.scope.configuration,
        concurrency_from=entry.scope.concurrency_from,
        concurrency_to=entry.scope.concurrency_to,
        status=entry.status,
        share_of_step_pct=entry.share_of_step_pct,
    )
