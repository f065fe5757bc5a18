"""At most three sentences for the head of the page."""

from collections.abc import Sequence

from stepscope.analysis.across.records import RepeatGroup
from stepscope.analysis.records import Analysis, CellResult
from stepscope.board.claims import at, number, repeats, span
from stepscope.board.holes import WIDE_PCT, spread_pct
from stepscope.board.hypotheses.kv_capacity import BOOT_VERDICT
from stepscope.board.hypotheses.power import CLOCK_TAKES
from stepscope.board.regimes import Regime
from stepscope.board.rules import RULES
from stepscope.board.solid import measured
from stepscope.run.run import Run


def sentences(
    run: Run, analysis: Analysis, judged: Sequence[Regime]
) -> tuple[str, ...]:
    """Return what was delivered, why, and what would decide the rest."""
    cells = measured(analysis)
    if not cells:
        return _beside_timelines(analysis, judged) or (_nothing(analysis),)
    configuration = (run.launches[0] if run.launches else cells[0]).configuration
    if not any(c.configuration == configuration for c in cells):
        configuration = cells[0].configuration
    own = [c for c in cells if c.configuration == configuration]
    entries = [
        r
        for r in judged
        if r.entry.scope.configuration == configuration
        and (not r.void or _may_be_why(r))
    ]
    causes = _of_each(configuration, _causes(entries), cells, judged)
    return tuple(
        s for s in (_delivered(own, analysis), causes, _next(entries)) if s is not None
    )


def _may_be_why(regime: Regime) -> bool:
    """Whether a void load may be so because of this: then it is not ruled out there."""
    return RULES[regime.entry.hypothesis].when_void is not None


def _of_each(
    configuration: str,
    causes: str,
    cells: Sequence[CellResult],
    judged: Sequence[Regime],
) -> str:
    """Return a configuration's causes, and in short those of all others.

    Of those that measured nothing only what is supported, such as by their boot.
    """
    named: dict[str, list[str]] = {c.configuration: [] for c in cells}
    for regime in judged:
        if regime.entry.status == "supported" and not regime.void:
            name = regime.entry.scope.configuration
            named.setdefault(name, []).append(_supported(regime))
    named.pop(configuration, None)
    if not named:
        return causes
    alike: dict[str, list[str]] = {}
    for name, told in named.items():
        alike.setdefault("; ".join(told) or "no cause is shown", []).append(name)
    others = (f"{', '.join(names)}: {text}." for text, names in alike.items())
    return " ".join((f"{configuration}: {causes}", *others))


def _beside_timelines(analysis: Analysis, judged: Sequence[Regime]) -> tuple[str, ...]:
    """Return what is told where load was driven for timelines alone."""
    driven = [
        c
        for c in analysis.cells
        if c.capture == "untraced" and c.n_requests > c.n_failed
    ]
    if not driven:
        return ()
    first = driven[0]
    names = ", ".join(c.name for c in driven if c.configuration == first.configuration)
    entries = [r for r in judged if r.entry.scope.configuration == first.configuration]
    return (
        "Nothing was measured but what timelines need; the board is of the load that"
        f" was driven while nobody traced ({names}).",
        _of_each(first.configuration, _causes(entries), driven, judged),
    )


def _nothing(analysis: Analysis) -> str:
    failed = [b for b in analysis.boot if not b.ready and b.retried_by is None]
    if failed:
        cause = failed[0].verdict.get("cause") or "unknown"
        return f"Nothing was measured: {failed[0].launch} did not boot ({cause})."
    void = [c for c in analysis.cells if not c.valid and not c.warm_up]
    if void:
        reasons = sorted({r for c in void for r in c.void_reasons or (c.status,)})
        return (
            f"No number stands: all {len(void)} cells are void ({', '.join(reasons)})."
        )
    return "Nothing was measured: no cell has an answered request."


def _delivered(cells: Sequence[CellResult], analysis: Analysis) -> str | None:
    timed = [c for c in cells if c.output_tokens_per_s is not None]
    if not timed:
        return None
    peak = max(timed, key=lambda c: c.output_tokens_per_s or 0.0)
    least = min(timed, key=lambda c: (c.concurrency is None, c.concurrency or 0))
    group = repeats(peak, analysis, "output_tokens_per_s")
    value = group.mean if group is not None else peak.output_tokens_per_s or 0.0
    text = (
        f"{peak.configuration}: the highest throughput measured is {number(value)}"
        f" output tokens/s, at {at(peak)}"
    )
    text += f" ({_repeats(group)})"
    low, high = _tpot(least, analysis), _tpot(peak, analysis)
    if low is not None and high is not None and at(least) != at(peak):
        text += f"; a token takes {number(low)} ms at {at(least)}"
        text += f" and {number(high)} ms there"
    elif high is not None:
        text += f"; a token takes {number(high)} ms there"
    return text + "."


def _repeats(group: RepeatGroup | None) -> str:
    """Return how often it was measured, and between what where repeats disagree."""
    if group is None:
        return "one run"
    text = f"{len(group.values)} repeats"
    if spread_pct(group.ci95, group.mean) > WIDE_PCT:
        text += f", {number(min(group.values))} to {number(max(group.values))}"
    return text


def _tpot(cell: CellResult, analysis: Analysis) -> float | None:
    group = repeats(cell, analysis, "tpot_ms")
    return group.mean if group is not None else cell.tpot_ms.mean


def _causes(entries: Sequence[Regime]) -> str:
    supported = [_supported(r) for r in entries if r.entry.status == "supported"]
    out = _everywhere(entries, "ruled-out")
    text = (
        f"Supported by measurement: {'; '.join(supported)}."
        if supported
        else "No cause of the step time is shown."
    )
    return text + (f" Ruled out: {', '.join(out)}." if out else "")


def _supported(regime: Regime) -> str:
    entry = regime.entry
    text = ", ".join(regime.headlines) or entry.hypothesis
    # What did not boot was under no load.
    if not any(e.quantity == BOOT_VERDICT for e in entry.evidence):
        where = span(entry.scope.concurrency_from, entry.scope.concurrency_to)
        text += f" {where}"
    if entry.share_of_step_pct is not None:
        share = number(entry.share_of_step_pct)
        text += f" (at least {share} % of {RULES[entry.hypothesis].share_of})"
    drops = [
        float(e.value)
        for e in entry.evidence
        if e.quantity == CLOCK_TAKES and isinstance(e.value, float)
    ]
    return text + (f" (at most {number(max(drops))} % of the step)" if drops else "")


def _next(entries: Sequence[Regime]) -> str | None:
    shown = {r.entry.hypothesis for r in entries if r.entry.status == "supported"}
    opened = [
        r
        for r in entries
        if r.entry.status in ("standing", "untestable")
        and r.entry.would_decide
        and r.entry.hypothesis not in shown
    ]
    if not opened:
        return None
    names = list(dict.fromkeys(r.entry.hypothesis for r in opened))
    common: dict[str, set[str]] = {}
    for regime in (r for r in opened if not r.void):
        decide = (regime.entry.would_decide or "").split(":")[0].split(";")[0]
        common.setdefault(decide.rstrip("."), set()).add(regime.entry.hypothesis)
    text = f"Open: {', '.join(names)}."
    best = max(common, key=lambda d: len(common[d]), default="")
    if len(common.get(best, ())) > 1:
        decided = ", ".join(sorted(common[best]))
        text += f" {best[0].upper()}{best[1:]} would decide {decided}."
    return text


def _everywhere(entries: Sequence[Regime], status: str) -> list[str]:
    """Return hypotheses that have this status at every concurrency."""
    names = list(dict.fromkeys(r.entry.hypothesis for r in entries))
    return [
        name
        for name in names
        if all(r.entry.status == status for r in entries if r.entry.hypothesis == name)
    ]
