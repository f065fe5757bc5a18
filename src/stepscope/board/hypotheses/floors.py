"""The byte floor's share of a step, with what it is uncertain by."""

import math
from dataclasses import dataclass

from stepscope.analysis.across.points import tokens_a_step
from stepscope.analysis.across.traces import decode_step_ms
from stepscope.board.opinion import AT_LEAST_PCT, seen
from stepscope.board.records import Evidence
from stepscope.board.view import CellView

#: Where a cell shows no spread of its own: what runs were seen to differ by.
_UNKNOWN_PCT = 1.0
#: Busy time of traced decode steps varied by this much on an H200.
_TRACED_PCT = 0.3


@dataclass(frozen=True, slots=True)
class Share:
    """The floor's share of a step, percent.

    Attributes:
        pct: The share.
        step_ms: The step.
        error_pct: Half its 95 % interval, percent of the share: how sure the step's
            length is. That bytes are counted once, and that no kernel reaches the data
            sheet's rate, only makes the share a lower one.
        evidence: What it rests on.
    """

    pct: float
    step_ms: float
    error_pct: float
    evidence: Evidence

    @property
    def low_pct(self) -> float:
        """Return its lower end."""
        return self.pct * (1 - self.error_pct / 100)

    @property
    def enough(self) -> bool:
        """Whether it takes the larger part of the step, its lower end included.

        The threshold is a convention of two digits: the lower end is held against it
        as a whole percent.
        """
        return self.pct >= AT_LEAST_PCT and self.low_pct >= AT_LEAST_PCT - 0.5


def share_of(
    view: CellView,
    part_ms: float,
    step_ms: float,
    quantity: str,
    words: str,
    *,
    traced: bool = False,
) -> Share:
    """Return what a part takes of a step.

    Args:
        view: The cell.
        part_ms: The part.
        step_ms: The step, as measured untraced.
        quantity: What to call the share.
        words: What it rests on.
        traced: Whether kernels of a timeline set the part's rate.
    """
    inside = None if view.result is None else view.result.batch_means_error_pct
    error = _UNKNOWN_PCT if inside is None else inside
    if traced:
        error = math.hypot(error, _TRACED_PCT)
    pct = 100 * part_ms / step_ms
    told = f"{words}; {pct * error / 100:.2g} points uncertain, by how the step varies"
    if inside is None:
        told += " from run to run (1 % taken, nothing in the cell shows it)"
    return Share(pct, step_ms, error, seen(view, quantity, pct, "% of the step", told))


def floor_share(view: CellView) -> Share | None:
    """Return the byte floor's share of the step at the data sheet's bandwidth.

    Under pipeline parallelism an engine's iteration is one stage's turn, and the
    floor is the way through all of them: TPOT is the step there.
    """
    floor, step = view.floor, view.step_ms
    result = view.result
    if result is not None and view.run.layout.pp > 1:
        tpot = result.server_tpot_ms or result.tpot_ms.mean
        step = None if tpot is None else tpot * tokens_a_step(result)
    if floor is None or not step:
        return None
    return share_of(
        view,
        floor.floor_ms,
        step,
        "byte floor of the step",
        f"{floor.floor_ms:.3g} ms are needed to move the bytes once, of a step of"
        f" {step:.3g} ms; a lower bound, so a small share excludes nothing",
    )


def counted_step(view: CellView) -> tuple[float, str] | None:
    """Return the decode step that a floor of all stages may be held against."""
    if view.result is None or view.run.layout.pp > 1:
        return None
    return decode_step_ms(view.result)


def decoding(view: CellView, step_ms: float | None) -> float | None:
    """Return for which part of the cell's span decode steps ran, at least; 0 to 1.

    The time in which some request was between its first and its last token, less what
    prefill and stalls add to the steps there: a step over TPOT. Neither the wait for
    first tokens nor, at a low rate, the time without a request is a step.

    Args:
        view: The cell.
        step_ms: Its decode step; None: nothing is known to lengthen some.
    """
    result, cell, span = view.result, view.cell, view.span_ns()
    if result is None or cell is None or span is None or span[1] <= span[0]:
        return None
    rows = sorted(
        (r.first_content_at_ns, r.last_content_at_ns)
        for r in cell.requests
        if r.first_content_at_ns is not None and r.last_content_at_ns is not None
    )
    covered, until = 0, span[0]
    for start, end in rows:
        covered += max(end - max(start, until), 0)
        until = max(until, end)
    share = covered / (span[1] - span[0])
    tpot = result.tpot_ms.mean
    if step_ms is None or not tpot:
        return share
    return share * min(step_ms / (tpot * tokens_a_step(result)), 1.0)


def of_window(view: CellView, share_pct: float, step_ms: float) -> float:
    """Return what a share of decode steps comes to over the whole window, percent.

    0 where nothing says for how much of it steps ran.
    """
    return share_pct * (decoding(view, step_ms) or 0.0)


def of_step(view: CellView, window_pct: float) -> float:
    """Return the most of a decode step that a mean over the window can be, percent.

    As if nothing of it fell between steps, or on prefill.
    """
    step = counted_step(view)
    runs = decoding(view, None if step is None else step[0])
    return min(window_pct / runs, 100.0) if runs else 100.0


def doubted(view: CellView) -> Evidence | None:
    """Return why the floor is not believed; None where nothing speaks against it."""
    if not view.doubts:
        return None
    why = "; ".join(doubt.why for doubt in view.doubts)
    return seen(view, "byte floor", "in doubt", "", why)
