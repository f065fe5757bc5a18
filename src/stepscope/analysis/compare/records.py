"""What a comparison returns: records."""

from typing import Literal

import msgspec

Verdict = Literal["faster", "slower", "same", "undetermined"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B against A at one workload point; no interval without repeats.

    Attributes:
        a: The configuration that is compared with.
        b: The other one.
        concurrency: Requests in flight; None for an open loop.
        metric: What is compared.
        delta_pct: exp of the difference of mean logs, less one; None where figures of
            different sessions would have to be read raw.
        ci95_pct: Its interval; over all configurations together where there are
            several.
        verdict: ``faster`` and ``slower`` hold over all rows of the pair together;
            where no arm was started twice, in spite of what starts may differ by.
        runs_needed: Units an arm, those at hand included, that would settle it with
            80 % power; None where nothing says how much they spread. Further runs are
            on a start each where no arm was started twice.
        n_a: Units of A that the interval rests on.
        n_b: The same of B.
        unit: What repeats: a ``launch`` or a ``run`` on one launch.
        p: Two-sided, this row alone (among all configurations).
        p_adjusted: After Holm over the rows of the pair and their mean.
        session: Where both were measured; ``a / b`` through an anchor.
        anchor: The configuration measured in both sessions; None within one.
        input_tokens: What each request was given.
        output_tokens: What each was asked for.
        n_prompts: Requests of a run.
        request_rate: Of an open loop.
        reason: Why it is undetermined; None otherwise.
        minutes_needed: What the missing units would take.
        usd_needed: The same in money; None without prices.
        mean_a: Geometric mean of A, in the metric's unit.
        mean_b: The same of B.
    """

    a: str
    b: str
    concurrency: int | None
    metric: str
    delta_pct: float | None
    ci95_pct: tuple[float, float] | None
    verdict: Verdict
    runs_needed: int | None
    n_a: int = 1
    n_b: int = 1
    unit: Literal["launch", "run"] = "run"
    p: float | None = None
    p_adjusted: float | None = None
    session: str | None = None
    anchor: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    n_prompts: int | None = None
    request_rate: float | None = None
    reason: str | None = None
    minutes_needed: float | None = None
    usd_needed: float | None = None
    mean_a: float | None = None
    mean_b: float | None = None


class PooledComparison(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """B against A over all rows of a metric, as one number where it is one.

    ``rows_agree`` is False where Cochran's Q says that the rows differ by more than
    their errors: then ``delta_pct`` is the mean of different numbers and has no
    verdict. ``q_p`` is its probability.
    """

    a: str
    b: str
    metric: str
    n_rows: int
    delta_pct: float | None
    ci95_pct: tuple[float, float] | None
    verdict: Verdict
    rows_agree: bool | None
    q_p: float | None
    p: float | None = None
    p_adjusted: float | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell that is not compared, and why."""

    cell: str
    configuration: str
    concurrency: int | None
    reason: str
