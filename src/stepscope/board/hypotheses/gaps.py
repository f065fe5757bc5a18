"""The gaps between chunks, with and without the end of somebody's prompt in them.

A prompt is done when its first token comes. A gap of one request in which the first
token of another arrived therefore holds a step that computed a prompt; gaps without
one hold decode steps alone, or parts of a long prompt that was not done yet.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.board.view import CellView

#: Fewer gaps of a kind than this have no median.
_LEAST = 50
#: A frontend sends the tokens of one step one after the other, within this share of
#: the step: a first token that close behind a gap's end belongs to the gap.
_TOGETHER = 0.2


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between chunks of one cell.

    Attributes:
        usual_ms: Median gap in which no prompt was done.
        prompt_ms: Median gap in which one was.
        prompt_share_pct: How many gaps are such.
        prompt_pct: What these add to the usual gap, percent of all gaps' time: the
            smaller of their sum and of their median times their number, so that a
            single stall among them does not count.
        others_pct: What all other gaps add to it.
    """

    usual_ms: float
    prompt_ms: float | None
    prompt_share_pct: float
    prompt_pct: float
    others_pct: float


def gaps(view: CellView) -> Gaps | None:
    """Split the gaps of a cell; None without single chunks, or with too few.

    Assumes: one chunk a token, stamped on arrival.
    """
    requests = view.cell.requests if view.cell is not None else ()
    chunks = [np.asarray(r.chunks_ns, np.int64) for r in requests if r.n_chunks > 1]
    if not chunks:
        return None
    firsts = np.sort(np.array([c[0] for c in chunks], np.int64))
    starts = np.concatenate([c[:-1] for c in chunks])
    lengths = np.concatenate([np.diff(c) for c in chunks])
    total = float(lengths.sum())
    if lengths.size < _LEAST or total <= 0:
        return None
    late = int(_TOGETHER * np.median(lengths))
    before = np.searchsorted(firsts, starts + late, side="right")
    after = np.searchsorted(firsts, starts + lengths + late, side="right")
    return _split(lengths, after > before, total)


def _split(
    lengths: npt.NDArray[np.int64], prompt: npt.NDArray[np.bool_], total: float
) -> Gaps | None:
    others = lengths[~prompt]
    if others.size < _LEAST:
        return None
    usual = float(np.median(others))
    n = int(prompt.sum())
    middle = float(np.median(lengths[prompt])) if n >= _LEAST else None
    added = 0.0
    if middle is not None:
        by_sum = float((lengths[prompt] - usual).sum())
        added = max(min(by_sum, n * (middle - usual)), 0.0)
    return Gaps(
        usual_ms=usual / 1e6,
        prompt_ms=None if middle is None else middle / 1e6,
        prompt_share_pct=100 * n / lengths.size,
        prompt_pct=100 * added / total,
        others_pct=100 * float((others - usual).sum()) / total,
    )
