"""The gaps between chunks, with and without the end of somebody's prompt in them.

A prompt is done when its first token comes. A gap of one request in which the first
token of another arrived therefore holds a step that computed a prompt; gaps without
one hold decode steps alone, or parts of a long prompt that was not done yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.analysis.cell.chunks import Ints, Piece
from stepscope.analysis.cell.columns import columns
from stepscope.board.view import CellView
from stepscope.run.gaps import GapStatistics, walked

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
    if view.cell is None:
        return None
    chunks = columns(view.cell.requests, view.cell.chunks).chunks
    lengths = walked(lambda: map(_lengths, chunks.pieces()), (50.0,))
    middle = lengths.percentile_ns(50.0)
    if lengths.n < _LEAST or not middle or lengths.total_ns <= 0:
        return None
    firsts = np.sort(np.concatenate([_firsts(piece) for piece in chunks.pieces()]))
    late = int(_TOGETHER * middle)
    # Looking for first tokens costs more than all else: once, and then a bit a gap.
    told = [_prompt(piece, firsts, late) for piece in chunks.pieces()]

    def kind(prompt: bool) -> GapStatistics:
        def walk() -> Iterator[Ints]:
            for piece, bits in zip(chunks.pieces(), told, strict=True):
                own = _lengths(piece)
                chosen = np.unpackbits(bits, count=own.size).view(np.bool_)
                yield own[chosen == prompt]

        return walked(walk, (50.0,))

    return _split(kind(False), kind(True), lengths)


def _lengths(piece: Piece) -> Ints:
    """Return the gaps of all requests, failed ones too."""
    lengths: Ints = np.diff(piece.offsets)[piece.follows[1:]]
    return lengths


def _firsts(piece: Piece) -> Ints:
    """Return when the first chunks came of requests that have another."""
    begins = np.cumsum(piece.n_offsets) - piece.n_offsets
    firsts: Ints = piece.arrivals_ns[begins[piece.n_offsets > 1]]
    return firsts


def _prompt(piece: Piece, firsts: Ints, late: int) -> npt.NDArray[np.uint8]:
    """Return for each gap whether a prompt was done in it, a bit each."""
    ends, lengths = piece.arrivals_ns[piece.follows], _lengths(piece)
    before = np.searchsorted(firsts, ends - lengths + late, side="right")
    after = np.searchsorted(firsts, ends + late, side="right")
    return np.packbits(after > before)


def _split(
    others: GapStatistics, prompt: GapStatistics, all_: GapStatistics
) -> Gaps | None:
    usual = others.percentile_ns(50.0)
    if others.n < _LEAST or usual is None:
        return None
    total = float(all_.total_ns)
    middle = prompt.percentile_ns(50.0) if prompt.n >= _LEAST else None
    added = 0.0
    if middle is not None:
        by_sum = prompt.total_ns - prompt.n * usual
        added = max(min(by_sum, prompt.n * (middle - usual)), 0.0)
    return Gaps(
        usual_ms=usual / 1e6,
        prompt_ms=None if middle is None else middle / 1e6,
        prompt_share_pct=100 * prompt.n / all_.n,
        prompt_pct=100 * added / total,
        others_pct=100 * (others.total_ns - others.n * usual) / total,
    )
