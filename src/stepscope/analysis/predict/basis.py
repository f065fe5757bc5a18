"""A step model with what it takes to predict from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.curves import Curve, Points
from stepscope.analysis.across.records import StepModel
from stepscope.analysis.across.stepmodel import (
    SOURCES,
    Bytes,
    BytesOf,
    best_curve,
    points_of,
)
from stepscope.analysis.floor import context_of
from stepscope.analysis.predict.backtest import Errors, errors
from stepscope.analysis.predict.wait import Waits, waits
from stepscope.analysis.records import Analysis, CellResult

#: Findings that make a cell's mean TTFT no guide to other sizes.
_ODD_TTFT = ("bimodal-ttft", "ttft-not-monotone", "stall", "first-run-contaminated")


@dataclass(frozen=True, slots=True)
class Basis:
    """One step model, refitted, with its errors and what goes beside it.

    Attributes:
        model: As ``analyze`` reports it.
        cells: The cells that it was fitted to.
        points: Step time over sequences per rank.
        curve: The fitted shape.
        errors: Of predictions from it; None below four sizes.
        waits: TTFT over concurrency; None where fewer than two sizes have one.
        context: Tokens of a sequence in mid-answer; None where not known.
        input_tokens: Of each request; None where not known.
        output_tokens: The same of answers.
    """

    model: StepModel
    cells: tuple[CellResult, ...]
    points: Points
    curve: Curve
    errors: Errors | None
    waits: Waits | None
    context: float | None
    input_tokens: int | None
    output_tokens: int | None

    @property
    def low(self) -> float:
        """Return the least sequences per rank that were measured."""
        return float(self.points.x.min())

    @property
    def high(self) -> float:
        """Return the most sequences per rank that were measured."""
        return float(self.points.x.max())

    def step_ms(self, x: float) -> float:
        """Return the fitted step time at ``x`` sequences per rank."""
        return float(self.curve.at(np.array([x]))[0])

    def tpot_over_step(self, x: float) -> float:
        """Return TPOT over the model's step time: 1 where the step is a TPOT.

        Straight between measured sizes over log x, held beyond them. With drafts it
        is below 1; prefill that shares the steps lifts it above.
        """
        at, over = [], []
        for size in np.unique(self.points.asked):
            here = np.flatnonzero(self.points.asked == size)
            found = [
                mean / self.points.y[i]
                for i in here
                if (mean := self.cells[i].tpot_ms.mean)
            ]
            if found:
                at.append(float(np.log(self.points.x[here].mean())))
                over.append(float(np.mean(found)))
        return float(np.interp(np.log(x), at, over)) if at else 1.0


def basis(
    model: StepModel, analysis: Analysis, dp: int, physics: BytesOf | None
) -> Basis:
    """Return what predictions from a model need.

    Args:
        model: One of ``analysis.step_model``.
        analysis: Where its cells are.
        dp: Data-parallel ranks of the run.
        physics: As the model was fitted with.
    """
    source = model.step_source or "client TPOT"
    by_name = {c.name: c for c in analysis.cells}
    take = SOURCES[source]
    cells = tuple(by_name[n] for n in model.cells if take(by_name[n]))
    points = points_of(cells, source, dp)
    known: Bytes | None = None if physics is None else physics(cells)

    def fit(some: Points) -> Curve:
        return best_curve(some, known)

    def again(some: Points) -> Curve:
        return best_curve(some, known, least_sizes=4)

    odd = frozenset(
        f.cell for f in analysis.findings if f.code in _ODD_TTFT and f.cell is not None
    )
    return Basis(
        model=model,
        cells=cells,
        points=points,
        curve=fit(points),
        errors=errors(points, fit, again),
        waits=waits(cells, odd),
        context=context_of(cells),
        input_tokens=_each(cells, "input"),
        output_tokens=_each(cells, "output"),
    )


def _each(cells: Sequence[CellResult], side: str) -> int | None:
    """Return tokens of one request: as asked, else as counted."""
    for cell in cells:
        asked: int | None = getattr(cell, f"asked_{side}_tokens")
        counted: int | None = getattr(cell, f"{side}_tokens")
        n_ok = cell.n_requests - cell.n_failed
        if asked is not None:
            return asked
        if counted is not None and n_ok > 0:
            return round(counted / n_ok)
    return None
