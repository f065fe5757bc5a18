"""Experiments as records: what moved, and what that says of causes on its own."""

from collections.abc import Sequence

from stepscope.board.experiments.laws import LAWS
from stepscope.board.experiments.pairs import Pair
from stepscope.board.experiments.rule import opinion_of
from stepscope.board.opinion import Opinion, Verdict, join
from stepscope.board.records import ExperimentResult, Moved, Told, told
from stepscope.board.regimes import Point, regimes
from stepscope.board.view import CellView
from stepscope.findings import Finding


def results(views: Sequence[CellView]) -> tuple[ExperimentResult, ...]:
    """Return the experiments that a run holds, in the order of the table of changes."""
    pairs = views[0].pairs if views else ()
    return tuple(_result(pair, views) for pair in pairs)


def _result(pair: Pair, views: Sequence[CellView]) -> ExperimentResult:
    return ExperimentResult(
        change=pair.change.id,
        title=pair.change.title,
        light=pair.light,
        heavy=pair.heavy,
        session=pair.session,
        moved=tuple(
            Moved(
                concurrency=row.workload.concurrency,
                request_rate=row.workload.request_rate,
                light_ms=row.effect.light_ms,
                heavy_ms=row.effect.heavy_ms,
                delta_pct=100 * (row.effect.ratio - 1),
                ci95_pct=(100 * (row.effect.low - 1), 100 * (row.effect.high - 1))
                if row.effect.interval
                else None,
                n_light=row.effect.n_light,
                n_heavy=row.effect.n_heavy,
                outcome=row.effect.moved,
                why=row.effect.why,
            )
            for row in pair.rows
        ),
        said=tuple(
            one
            for name in LAWS.get(pair.change.id, {})
            for side in (pair.light, pair.heavy)
            for one in _said(pair, name, side, views)
        ),
        moves=pair.change.moves,
        cannot_see=pair.change.blind,
    )


def _said(
    pair: Pair, hypothesis: str, side: str, views: Sequence[CellView]
) -> tuple[Told, ...]:
    """Return what a pair says of a hypothesis on one side, over its points."""
    points = []
    for row in pair.rows:
        mine = {c.name for c in (*row.light, *row.heavy)}
        opinions = [
            opinion
            for view in views
            if view.configuration == side
            and view.result is not None
            and view.result.name in mine
            and (opinion := opinion_of(pair, hypothesis, view)) is not None
        ]
        if opinions:
            points.append(
                Point(
                    row.workload.concurrency,
                    join([_verdict(o) for o in opinions]),
                    request_rate=row.workload.request_rate,
                )
            )
    if not points:
        return ()
    return tuple(told(r.entry) for r in regimes(hypothesis, side, points))


def _verdict(opinion: Opinion) -> Verdict:
    return Verdict(
        status=opinion.status,
        evidence=opinion.evidence,
        share_pct=opinion.share_pct,
        would_decide=None,
    )


def needed(found: Sequence[ExperimentResult]) -> tuple[Finding, ...]:
    """Return a finding for each experiment that noise keeps from saying anything."""
    return tuple(
        Finding(
            code="needs-launches",
            severity="info",
            message=f"{one.title} ({one.light} against {one.heavy}): not told from"
            f" noise at concurrency {', '.join(map(str, open_at))}, so it decides"
            " nothing there",
            hint="Start both sides several times: n_launches = 3 in the recipe"
            " (stepscope run).",
        )
        for one in found
        if (
            open_at := [
                m.concurrency
                for m in one.moved
                if m.outcome == "needs-launches" and m.concurrency is not None
            ]
        )
    )
