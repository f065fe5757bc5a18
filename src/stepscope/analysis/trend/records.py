"""What ``trend --json`` says."""

import msgspec

from stepscope.findings import Finding


class TrendRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: its id, where it lies, and when it was taken."""

    id: str
    path: str
    at_unix_ns: int


class FieldChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One field of the session's identity that differs from the run before."""

    field: str
    before: str
    after: str


class IdentityChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Where the session changed: from this run on it is another."""

    run: str
    at_unix_ns: int
    fields: tuple[FieldChange, ...]


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run's figure: the geometric mean of its ``n`` repeats."""

    run: str
    at_unix_ns: int
    value: float
    n: int


class ChangePoint(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A shift of the level.

    Attributes:
        run: First run of the new level.
        at_unix_ns: When it was taken.
        delta_pct: New level over the old one.
        ci95_pct: Its 95 % interval, the place taken as given: a little too narrow.
        p: Of a permutation test, times the number of series (Bonferroni).
        fields: Identity fields that changed just there; empty: nothing that was
            recorded did.
    """

    run: str
    at_unix_ns: int
    delta_pct: float
    ci95_pct: tuple[float, float]
    p: float
    fields: tuple[str, ...]


class TrendSeries(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One metric at one workload point, over runs.

    Attributes:
        cv_pct: Spread within levels, percent; None below three runs.
        changes: None where it was not looked for: too few runs.
        runs_missing: How many more runs change points need.
        drift: Correlation of neighbours within levels; None below twenty runs. Far
            from 0 the runs are not independent and change points not to be trusted.
    """

    configuration: str
    concurrency: int | None
    metric: str
    input_tokens: int | None
    output_tokens: int | None
    n_prompts: int | None
    points: tuple[TrendPoint, ...]
    mean: float
    cv_pct: float | None
    changes: tuple[ChangePoint, ...] | None
    runs_missing: int
    drift: float | None
    request_rate: float | None = None


class TrendDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Runs in the order of their wall clock, and what moved."""

    schema: int
    runs: tuple[TrendRun, ...]
    runs_needed: int
    identity_changes: tuple[IdentityChange, ...]
    series: tuple[TrendSeries, ...]
    findings: tuple[Finding, ...]
