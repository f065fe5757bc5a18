"""rank-wait, imbalance, communication: what several ranks do to each other.

A rank that waits inside a collective is busy, so neither utilization nor its spread
over GPUs can decide any of these; only arrival times in matched collectives can.
"""

from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView


def _one_rank(view: CellView) -> Opinion | None:
    if view.n_ranks != 1:
        return None
    return Opinion(
        status="ruled-out",
        share_pct=0.0,
        evidence=(
            seen(
                view,
                "ranks in the layout",
                1.0,
                "",
                "not applicable: one rank waits for nobody and talks to nobody",
            ),
        ),
    )


def _spread(view: CellView) -> Opinion | None:
    telemetry = view.telemetry
    if telemetry is None or telemetry.util_spread_points is None or view.n_ranks == 1:
        return None
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "spread of utilization over GPUs",
                telemetry.util_spread_points,
                "points",
                "rules nothing out: a rank that waits in a collective reads busy",
            ),
        ),
    )


_RULES = (
    Rule(
        name="one-rank",
        measurement="the layout",
        threshold="ruled out: one rank",
        blind="nothing",
        test=_one_rank,
        of_cell=False,
    ),
    Rule(
        name="utilization-spread",
        measurement="mean utilization of each GPU",
        threshold="decides nothing, however small or large",
        blind="waiting, which reads as busy",
        test=_spread,
    ),
)


def _would_decide(_view: CellView) -> str:
    return (
        "One timeline of every rank over the same steps, read together with"
        " stepscope trace FILE FILE ...: arrival times in matched collectives split"
        " waiting from transfer and name the late rank."
    )


RANK_WAIT = Hypothesis(
    id="rank-wait",
    claim="Ranks wait for each other inside collectives.",
    rules=_RULES,
    would_decide=_would_decide,
)
IMBALANCE = Hypothesis(
    id="imbalance",
    claim="One rank has more work than the others, such as hotter experts.",
    rules=_RULES,
    would_decide=_would_decide,
)
COMMUNICATION = Hypothesis(
    id="communication",
    claim="Moving data between ranks takes the time.",
    rules=_RULES,
    would_decide=_would_decide,
)
