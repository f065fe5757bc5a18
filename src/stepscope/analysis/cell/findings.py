"""What one cell's records say against it. One function a rule; add a rule here."""

from collections.abc import Callable, Iterator

from stepscope.analysis.cell import (
    beside_rules,
    bursts,
    loop_rules,
    modes,
    open_rules,
    published,
    rank_rules,
    records_rules,
    starved_rules,
)
from stepscope.analysis.cell.measured import Measured
from stepscope.findings import Finding

RULES: tuple[Callable[[Measured], Iterator[Finding]], ...] = (
    records_rules.status,
    records_rules.failed,
    records_rules.clocks,
    records_rules.identities,
    records_rules.token_counts,
    bursts.whole_answers,
    loop_rules.partial_waves,
    records_rules.unsent,
    loop_rules.steady,
    loop_rules.stall,
    rank_rules.uneven,
    modes.two_modes,
    open_rules.overloaded,
    open_rules.too_short,
    beside_rules.client,
    beside_rules.frontend,
    beside_rules.server,
    beside_rules.log,
    beside_rules.telemetry,
    beside_rules.other_gpus,
    starved_rules.starved,
    published.window_of_means,
    published.prefill_in_tpot,
    records_rules.few,
)


def cell_findings(m: Measured) -> tuple[Finding, ...]:
    """Return every finding of one cell."""
    return tuple(finding for rule in RULES for finding in rule(m))
