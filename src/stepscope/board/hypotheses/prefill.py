"""prefill: prompts that share steps with decoding lengthen them."""

from stepscope.board.hypotheses import steplines
from stepscope.board.hypotheses.gaps import gaps
from stepscope.board.opinion import (
    UNMERGED,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.view import CellView
from stepscope.run.client import GAP_OK_PCT

#: Steps with prefill in them below this share can not move the mean step much.
_FEW_STEPS_PCT = 5.0
_MANY_STEPS_PCT = 20.0
#: TPOT above its median gap: what the long steps add to the mean.
_STRETCH_PCT = 10.0
_BUNCHED_PCT = 5.0
#: Gaps with the end of a prompt in them hold at least this many times what all other
#: gaps add: stalls that have nothing to do with prompts fall on the others too, which
#: are the many.
_TIMES_OTHERS = 3.0
#: Prefix cache hits from which much of the prefill was left out.
_HITS_PCT = 10.0


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
        # One step in a hundred may be a hundred times as long.
        return Opinion(status="standing", evidence=(item,))
    longer = seen(
        view,
        "TPOT above its median gap",
        stretch,
        "% of TPOT",
        "what steps longer than the usual add; other stalls would add the same way",
    )
    stalled = view.findings("stall", "jit-during-measurement")
    if share >= _MANY_STEPS_PCT and stretch >= _STRETCH_PCT and not stalled:
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


def _prompts_in_gaps(view: CellView) -> Opinion | None:
    """Weigh what gaps in which somebody's prompt was done add to the usual gap."""
    result = view.result
    if result is None or result.chunks_per_token is None:
        return None
    gap, bunched = result.client_tpot_error_pct, view.short_gap_pct()
    if result.chunks_per_token < UNMERGED or gap is None or abs(gap) > GAP_OK_PCT:
        return None
    split = gaps(view) if bunched is not None and bunched < _BUNCHED_PCT else None
    if split is None or split.prompt_ms is None:
        return None
    item = seen(
        view,
        "gaps in which a prompt was done, over the usual gap",
        split.prompt_pct,
        "% of TPOT",
        f"median {split.prompt_ms:.4g} ms for {split.prompt_share_pct:.3g} % of gaps,"
        f" those in which another request's first token came, against"
        f" {split.usual_ms:.4g} ms without; a lower bound, since parts of long prompts"
        " end without a first token",
    )
    others = seen(
        view,
        "all other gaps over the usual gap",
        split.others_pct,
        "% of TPOT",
        "what stalls without a prompt add",
    )
    clear = split.prompt_pct >= _TIMES_OTHERS * max(split.others_pct, 0.0)
    if split.prompt_pct >= _STRETCH_PCT and clear:
        return Opinion(
            status="supported",
            share_pct=split.prompt_pct,
            headline="prefill in the decode steps",
            evidence=(item, others),
        )
    return Opinion(status="standing", evidence=(item, others))


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


def _from_cache(view: CellView) -> Opinion | None:
    """Say that part of the prefill was not done."""
    result = view.result
    hits = None if result is None else result.prefix_cache_hit_pct
    if hits is None or hits < _HITS_PCT:
        return None
    item = seen(
        view,
        "prompt tokens from the prefix cache",
        hits,
        "%",
        "their prefill was not done: what is said of prefill holds for prompts that the"
        " server has seen before",
    )
    return Opinion(status="standing", evidence=(item,))


def _would_decide(view: CellView) -> str:
    known = view.result is not None and view.result.prefill_share_of_steps is not None
    if view.run.engine == "vllm" and not known:
        return (
            f"Each step's context and generation tokens: {steplines.wanted(view)}; or"
            " the same cell with short prompts."
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
            f" {_STRETCH_PCT:.0f} % of TPOT, without a stall or compiling; ruled out:"
            f" below {_FEW_STEPS_PCT:.0f} % and below {_STRETCH_PCT:.0f} %; by count"
            " alone nothing",
            blind="other stalls that lengthen some steps",
            test=_steps,
        ),
        Rule(
            name="prompts-in-gaps",
            measurement="gaps between tokens in which another request's first token"
            " came, against the others",
            threshold=f"supported: they add at least {_STRETCH_PCT:.0f} % of TPOT, and"
            f" {_TIMES_OTHERS:.0f} times what all others add; both by their sum and"
            " by their median, so that one stall does not count",
            blind="parts of a prompt that end without a first token",
            test=_prompts_in_gaps,
        ),
        Rule(
            name="from-cache",
            measurement="prompt tokens found in the prefix cache",
            threshold=f"bears on it from {_HITS_PCT:.0f} %; decides nothing",
            blind="what other prompts would cost",
            test=_from_cache,
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
