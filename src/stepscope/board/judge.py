"""Judge every hypothesis on every configuration."""

from collections.abc import Sequence

import msgspec

from stepscope.analysis.records import Analysis
from stepscope.board.ceilings import ceilings, next_ceiling
from stepscope.board.experiments.explained import explained
from stepscope.board.experiments.results import needed, results
from stepscope.board.opinion import Hypothesis, Opinion, Verdict, join, weigh
from stepscope.board.published.check import check_claims
from stepscope.board.records import HYPOTHESES, Board, BoardEntry
from stepscope.board.regimes import Point, Regime, regimes
from stepscope.board.rules import RULES
from stepscope.board.solid import not_solid, solid
from stepscope.board.verdict import sentences
from stepscope.board.view import CellView, views
from stepscope.findings import Finding
from stepscope.run.run import Run

#: Findings on a cell after which its figures are of no one state of the server.
_MIXED = ("server-restarted",)


def judge(run: Run, analysis: Analysis) -> Board:
    """Judge all hypotheses, and say which headline numbers stand.

    Args:
        run: The run.
        analysis: What was computed from it.

    Returns:
        The board: every hypothesis has at least one entry for every configuration,
        and its entries cover every concurrency that was measured.
    """
    seen = views(run, analysis)
    judged = _judged(run, analysis, seen)
    limits = ceilings(seen)
    entries = tuple(
        msgspec.structs.replace(r.entry, next_ceiling=next_ceiling(r.entry, limits))
        for r in judged
    )
    found = results(seen)
    return Board(
        sentences=sentences(run, analysis, judged),
        entries=entries,
        solid=solid(run, analysis, entries),
        not_solid=not_solid(run, analysis),
        findings=(
            *check_claims(run, analysis, entries),
            *needed(found),
            *_doubtful(seen),
        ),
        ceilings=limits,
        experiments=explained(run, found, entries, _entries),
    )


def _doubtful(seen: Sequence[CellView]) -> tuple[Finding, ...]:
    """Return a finding for each configuration whose byte floor is in doubt."""
    doubts = {v.configuration: v.doubts for v in seen if v.doubts}
    return tuple(
        Finding(
            code="floor-doubtful",
            severity="warning",
            message=f"{name}: {doubt.why}",
            hint=doubt.settles,
        )
        for name, found in doubts.items()
        for doubt in found
    )


def _entries(run: Run, analysis: Analysis) -> list[BoardEntry]:
    return [r.entry for r in _judged(run, analysis, views(run, analysis))]


def _judged(run: Run, analysis: Analysis, seen: Sequence[CellView]) -> list[Regime]:
    judged: list[Regime] = []
    for name in HYPOTHESES:
        for configuration in _configurations(run, analysis):
            own = [v for v in seen if v.configuration == configuration]
            points = _points(RULES[name], own) if own else ()
            if not points:
                points = (_unmeasured(RULES[name], run, analysis, configuration),)
            judged.extend(regimes(name, configuration, points))
    return judged


def _configurations(run: Run, analysis: Analysis) -> tuple[str, ...]:
    """Return all configurations, in the order in which they first appear."""
    names = [launch.configuration for launch in run.launches]
    names += [cell.configuration for cell in analysis.cells]
    return tuple(dict.fromkeys(names))


def _points(rule: Hypothesis, own: Sequence[CellView]) -> tuple[Point, ...]:
    by_load: dict[tuple[int | None, float | None], list[CellView]] = {}
    for view in own:
        assert view.result is not None
        load = (view.result.concurrency, view.result.request_rate)
        by_load.setdefault(load, []).append(view)
    ordered = sorted(by_load, key=lambda x: (x[0] is None, x[0] or 0, x[1] or 0.0))
    return tuple(
        Point(
            concurrency=load[0],
            request_rate=load[1],
            verdict=_point(rule, by_load[load]),
            void=_all_void(by_load[load]),
        )
        for load in ordered
    )


def _all_void(cells: Sequence[CellView]) -> bool:
    return not any(v.result is not None and v.result.valid for v in cells)


def _point(hypothesis: Hypothesis, cells: Sequence[CellView]) -> Verdict:
    """Judge one concurrency or rate: void cells speak only of the client."""
    sound = [v for v in cells if v.result is not None and v.result.valid]
    verdicts = [_judge(hypothesis, view) for view in sound]
    if hypothesis.id == "client":
        convicted = [_judge(hypothesis, v) for v in cells if v not in sound]
        # A void cell may convict the client; it acquits nobody.
        verdicts += [v for v in convicted if v.status == "supported" or not sound]
        if not sound:
            hint = _when_void(hypothesis, cells)
            verdicts = [_not_acquitted(v, hint) for v in verdicts]
    if verdicts:
        return join(verdicts)
    reasons = sorted(
        {r for v in cells if v.result is not None for r in v.result.void_reasons}
    )
    told = _judge(hypothesis, cells[0], only_layout=True)
    if told.status in ("supported", "ruled-out"):
        return told
    hint = _when_void(hypothesis, cells) or "remove that and repeat it (stepscope run)."
    return Verdict(
        status="untestable",
        would_decide=f"Every cell here is void ({', '.join(reasons) or 'no reason'}):"
        f" {hint}",
    )


def _when_void(hypothesis: Hypothesis, cells: Sequence[CellView]) -> str | None:
    told = (hypothesis.when_void(v) for v in cells if hypothesis.when_void is not None)
    return next((text for text in told if text is not None), None)


def _not_acquitted(verdict: Verdict, hint: str | None) -> Verdict:
    if verdict.status == "supported" or (verdict.status == "standing" and not hint):
        return verdict
    return Verdict(
        status="standing",
        evidence=verdict.evidence,
        would_decide="Every cell here is void: " + hint
        if hint
        else "Every cell here is void; repeat it (stepscope run).",
    )


def _judge(
    hypothesis: Hypothesis, view: CellView, *, only_layout: bool = False
) -> Verdict:
    mixed = bool(view.findings(*_MIXED))
    opinions = [
        _undecided(opinion) if mixed and rule.of_cell else opinion
        for rule in hypothesis.rules
        if not (only_layout and rule.of_cell)
        and (opinion := rule.test(view)) is not None
    ]
    decide = hypothesis.would_decide(view)
    if mixed and opinions:
        decide = f"The cell holds two servers: repeat it on one. {decide}"
    return weigh(opinions, decide)


def _undecided(opinion: Opinion) -> Opinion:
    """Return what was measured of a cell that is no one server's."""
    return Opinion(status="standing", evidence=opinion.evidence)


def _unmeasured(
    hypothesis: Hypothesis, run: Run, analysis: Analysis, configuration: str
) -> Point:
    """Judge a configuration that measured nothing: layout and boot may still tell."""
    launch = next(
        (x for x in reversed(run.launches) if x.configuration == configuration), None
    )
    view = CellView(
        run=run,
        analysis=analysis,
        configuration=configuration,
        result=None,
        cell=None,
        launch=launch,
    )
    told = _judge(hypothesis, view, only_layout=True)
    if told.status != "untestable":
        return Point(None, told)
    decide = (
        "Nothing of this configuration was measured: boot it (the boot verdict says"
        " how) and measure it (stepscope run)."
    )
    return Point(None, Verdict(status="untestable", would_decide=decide))
