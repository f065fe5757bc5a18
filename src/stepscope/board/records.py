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
