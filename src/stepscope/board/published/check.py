"""Each claim of a source to one finding: it holds, differs, or is not shown."""

from collections.abc import Sequence

from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import Analysis
from stepscope.board.claims import number
from stepscope.board.published.quantities import QUANTITIES
from stepscope.board.published.readings import READINGS
from stepscope.board.records import HYPOTHESES, BoardEntry
from stepscope.findings import Finding, Severity
from stepscope.run.published import Claim
from stepscope.run.run import Run

#: Where the board leaves nothing open.
_DECIDED = ("supported", "ruled-out")


def check_claims(
    run: Run, analysis: Analysis, entries: Sequence[BoardEntry]
) -> tuple[Finding, ...]:
    """Hold every claim of the run's source against its evidence.

    Returns:
        One finding a claim: ``claim-holds`` (info), ``claim-differs`` and
        ``claim-not-shown`` (warnings), or ``claim-unchecked`` (info) where nothing
        here can tell.
    """
    return tuple(_checked(claim, run, analysis, entries) for claim in run.claims)


def _checked(
    claim: Claim, run: Run, analysis: Analysis, entries: Sequence[BoardEntry]
) -> Finding:
    if claim.quantity is not None:
        return _figure(claim, run, analysis)
    if claim.hypothesis is not None:
        return _verdict(claim, entries)
    if claim.effect_pct is not None:
        return _effect(claim, analysis)
    if claim.reading is not None:
        return _reading(claim, run)
    if claim.considered:
        return _considered(claim, entries)
    return _say(claim, "claim-unchecked", "it states nothing that can be held against")


def _say(claim: Claim, code: str, why: str, hint: str = "") -> Finding:
    severity: Severity = "info"
    if code in ("claim-differs", "claim-not-shown"):
        severity = "warning"
    return Finding(
        code=code,
        severity=severity,
        message=f'{claim.id}: the source says "{claim.text}"; {why}',
        hint=hint,
    )


def _figure(claim: Claim, run: Run, analysis: Analysis) -> Finding:
    quantity = QUANTITIES.get(claim.quantity or "")
    if quantity is None or claim.value is None:
        known = ", ".join(QUANTITIES)
        return _say(claim, "claim-unchecked", f"no such figure is known ({known})")
    own = quantity.own(run, analysis, claim)
    if own is None:
        return _say(claim, "claim-unchecked", "the evidence here does not give it")
    unit = f" {quantity.unit}".rstrip()
    spare = quantity.tolerance * abs(claim.value)
    near = own.low - spare <= claim.value <= own.high + spare
    if own.low == own.high:
        mine = f"{number(own.low)}{unit}"
        code = "claim-holds" if near else "claim-differs"
    else:
        mine = f"between {number(own.low)} and {number(own.high)}{unit}"
        code = "claim-not-shown" if near else "claim-differs"
    return _say(claim, code, f"here it is {mine}: {own.why}")


def _verdict(claim: Claim, entries: Sequence[BoardEntry]) -> Finding:
    if claim.hypothesis not in HYPOTHESES or claim.status is None:
        return _say(claim, "claim-unchecked", "no such hypothesis, or no status")
    own = [
        entry
        for entry in entries
        if entry.hypothesis == claim.hypothesis and _covers(entry, claim)
    ]
    if own and all(entry.status == claim.status for entry in own):
        return _say(claim, "claim-holds", f"the board says {claim.status} too")
    found = ", ".join(dict.fromkeys(entry.status for entry in own)) or "nothing"
    if own and all(e.status in _DECIDED and e.status != claim.status for e in own):
        return _say(
            claim, "claim-differs", f"on this evidence {claim.hypothesis} is {found}"
        )
    decide = " ".join(
        dict.fromkeys(
            entry.would_decide
            for entry in own
            if entry.would_decide and entry.status not in _DECIDED
        )
    )
    by = f"; {claim.by}" if claim.by else ""
    return _say(
        claim,
        "claim-not-shown",
        f"on this evidence the board says {found} of {claim.hypothesis}{by}",
        decide,
    )


def _covers(entry: BoardEntry, claim: Claim) -> bool:
    scope = entry.scope
    if claim.configuration not in (None, scope.configuration):
        return False
    if claim.concurrency is None or scope.concurrency_from is None:
        return True
    last = scope.concurrency_to or scope.concurrency_from
    return scope.concurrency_from <= claim.concurrency <= last


def _effect(claim: Claim, analysis: Analysis) -> Finding:
    if claim.configuration is None or claim.effect_pct is None:
        return _say(claim, "claim-unchecked", "it names no configuration")
    found = next((c for c in analysis.comparisons if _about(c, claim)), None)
    hint = "Take at least three launches of each in the order A B B A."
    if found is None:
        return _say(
            claim,
            "claim-not-shown",
            "the two were never measured in one session, so they are not compared",
            hint,
        )
    if found.ci95_pct is None:
        why = f"undetermined: {found.n_a} run against {found.n_b} has no interval"
        return _say(claim, "claim-not-shown", why, hint)
    low, high = found.ci95_pct
    here = f"{found.verdict}, 95 % interval {low:+.1f} to {high:+.1f} %"
    if not low <= claim.effect_pct <= high:
        return _say(claim, "claim-differs", f"here it is {here}")
    if found.verdict in ("faster", "slower"):
        return _say(claim, "claim-holds", f"here it is {here}")
    return _say(claim, "claim-not-shown", f"no difference is shown here: {here}", hint)


def _about(found: Comparison, claim: Claim) -> bool:
    return (
        found.b == claim.configuration
        and claim.against in (None, found.a)
        and claim.concurrency == found.concurrency
        and (claim.metric or "output_tokens_per_s") == found.metric
    )


def _reading(claim: Claim, run: Run) -> Finding:
    read = READINGS.get(claim.reading or "")
    if read is None:
        known = ", ".join(READINGS)
        return _say(claim, "claim-unchecked", f"no such reading is known ({known})")
    logs = [
        launch.log
        for launch in run.launches
        if launch.log is not None
        and claim.configuration in (None, launch.configuration)
    ]
    borne = next((b for log in logs if (b := read(log)) is not None), None)
    if borne is None:
        return _say(claim, "claim-unchecked", "no log here tells")
    code = "claim-holds" if borne.holds else "claim-not-shown"
    return _say(claim, code, borne.why)


def _considered(claim: Claim, entries: Sequence[BoardEntry]) -> Finding:
    left = [
        name
        for name in HYPOTHESES
        if name not in claim.considered
        and any(
            e.hypothesis == name and e.status in ("standing", "untestable")
            for e in entries
        )
    ]
    if not left:
        return _say(claim, "claim-holds", "no other cause is left open here")
    decide = next(
        (
            e.would_decide
            for e in entries
            if e.hypothesis == left[0] and e.would_decide and e.status not in _DECIDED
        ),
        "",
    )
    return _say(
        claim,
        "claim-not-shown",
        f"never weighed, and open on this evidence: {', '.join(left)}",
        decide or "",
    )
