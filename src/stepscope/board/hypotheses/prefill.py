"""prefill: prompts that share steps with decoding lengthen them."""

from stepscope.board.opinion import UNMERGED, Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView

#: Steps with prefill in them below this share can not move the mean step much.
_FEW_STEPS_PCT = 5.0
_MANY_STEPS_PCT = 20.0
#: TPOT above its median gap: what the long steps add to the mean.
_STRETCH_PCT = 10.0
_BUNCHED_PCT = 5.0


def _stretch_pct(view: CellView) -> float | None:
    """Return how far TPOT lies above the median gap, percent of TPOT.

    None where gaps are no steps: merged chunks, or stamps that bunch up.
    """
    result = view.result
    if result is None or not result.tpot_ms.mean or result.itl_ms.median is None:
        return None
    if result.chunks_per_token is None or result.chunks_per_token < UNMERGED:
        return None
    bunched = view.short_gap_pct()
    if bunched is not None and bunched >= _BUNCHED_PCT:
        return None
    return 100 * (1 - result.itl_ms.median / result.tpot_ms.mean)


def _steps(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.prefill_share_of_steps is None:
        return None
    share = 100 * result.prefill_share_of_steps
    stretch = _stretch_pct(view)
    item = seen(
        view,
        "steps that hold prefill",
        share,
        "% of steps",
        "by count; such a step is longer than a decode step",
    )
    if stretch is None:
        few = share < _FEW_STEPS_PCT / 5
        return Opinion(
            status="ruled-out" if few else "standing", evidence=(item,), share_pct=None
        )
    longer = seen(
        view,
        "TPOT above its median gap",
        stretch,
        "% of TPOT",
        "what steps longer than the usual add; other stalls would add the same way",
    )
    if share >= _MANY_STEPS_PCT and stretch >= _STRETCH_PCT:
        return Opinion(
            status="supported",
            share_pct=stretch,
            headline="prefill in the decode steps",
            evidence=(item, longer),
        )
    if share < _FEW_STEPS_PCT and stretch < _STRETCH_PCT:
        return Opinion(
            status="ruled-out", share_pct=max(stretch, 0.0), evidence=(item, longer)
        )
    return Opinion(status="standing", evidence=(item, longer))


def _first_token(view: CellView) -> Opinion | None:
    result = view.result
    if result is None or result.decode_efficiency is None:
        return None
    share = 100 * (1 - result.decode_efficiency)
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "TTFT of a request's life",
                share,
                "% of E2EL",
                "waiting and prefill before the first token; it is no part of TPOT",
            ),
        ),
    )


def _would_decide(view: CellView) -> str:
    if view.run.engine == "vllm":
        return (
            "Each step's context and generation tokens: add"
            " --enable-logging-iteration-details to the server and repeat the cell"
            " (stepscope run); or the same cell with short prompts."
        )
    return (
        "The same cell with prompts of a few tokens, in one session (stepscope run,"
        " then stepscope compare): what remains of the step is decoding."
    )


PREFILL = Hypothesis(
    id="prefill",
    claim="Prompts that share steps with decoding lengthen them.",
    rules=(
        Rule(
            name="steps",
            measurement="share of steps with prefill, TPOT against the median gap",
            threshold=f"supported: at least {_MANY_STEPS_PCT:.0f} % of steps and"
            f" {_STRETCH_PCT:.0f} % of TPOT; ruled out: below {_FEW_STEPS_PCT:.0f} %"
            f" and below {_STRETCH_PCT:.0f} %",
            blind="other stalls that lengthen some steps",
            test=_steps,
        ),
        Rule(
            name="first-token",
            measurement="TTFT against E2EL",
            threshold="bears on it; decides nothing: it is no part of the step",
            blind="prefill inside decode steps",
            test=_first_token,
        ),
    ),
    would_decide=_would_decide,
    share_of="TPOT",
)
