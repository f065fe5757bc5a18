"""What ``plan --json`` says."""

from typing import Literal

import msgspec

from stepscope.findings import Finding


class Settles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One open entry of the board, or one claim with a hole.

    Attributes:
        kind: ``hypothesis`` or ``claim``.
        what: The hypothesis' id, or the claim in words.
        configuration: Whose; None where a claim is about several.
        concurrency_from: Least concurrency that it is open at.
        concurrency_to: Most.
        now: The status, or why the claim is not solid.
        how: ``decides``: it is the measurement that the board asks for; ``bears-on``:
            it narrows it down and may not decide.
    """

    kind: Literal["hypothesis", "claim"]
    what: str
    configuration: str | None
    concurrency_from: int | None
    concurrency_to: int | None
    now: str
    how: Literal["decides", "bears-on"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One next measurement.

    Attributes:
        id: Its kind, such as ``repeats`` or ``trace``.
        title: What would be done.
        reason: Why it settles what it settles.
        settles: Open entries and claims.
        value: Hypotheses and claims that it would decide, a quarter for those it only
            bears on; a hypothesis that is open in several ranges counts by range.
        minutes: What it takes alone, boot and warm-up included; None where it is no
            part of a recipe.
        usd: The same in money; None without prices.
        value_per_minute: None where ``minutes`` is.
        in_recipe: True when the printed recipe does it.
        added_minutes: What it adds to what was chosen before it; None when it is not
            in the recipe.
        not_in_recipe: Why it is not; None when it is.
        command: How to do it where no recipe can.
    """

    id: str
    title: str
    reason: str
    settles: tuple[Settles, ...]
    value: float
    minutes: float | None
    usd: float | None
    value_per_minute: float | None
    in_recipe: bool
    added_minutes: float | None
    not_in_recipe: str | None
    command: str | None


class PlanDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What to measure next.

    Attributes:
        candidates: Chosen ones first, in the order in which they were chosen; then
            by value per minute.
        minutes: Of the recipe, warm-ups at their fewest blocks.
        most_minutes: The same where every launch warms up to its cap.
        usd: Of the recipe; None without prices.
        pace: Where minutes are from, in words.
        left_open: What the recipe would not decide.
        recipe: TOML; None where nothing is worth a recipe.
        fill_in: What must be filled in before it runs.
    """

    schema: int
    run: str
    budget_minutes: float | None
    budget_usd: float | None
    candidates: tuple[Candidate, ...]
    minutes: float | None
    most_minutes: float | None
    usd: float | None
    pace: tuple[str, ...]
    left_open: tuple[Settles, ...]
    recipe: str | None
    fill_in: tuple[str, ...]
    findings: tuple[Finding, ...]
