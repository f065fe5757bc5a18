"""The same step on another device or layout: what physics scales, and what it keeps."""

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.predict.basis import Basis
from stepscope.errors import RefusedError
from stepscope.physics.comm import communication
from stepscope.physics.hardware import Gpu
from stepscope.physics.model.records import ModelShape
from stepscope.physics.roof import peak
from stepscope.physics.step import StepOptions, step_bytes
from stepscope.recipe.records import Layout

#: Part of the data sheet's bandwidth that decode steps reach where no fit tells it.
_FRACTION = (0.5, 0.75, 0.95)
#: What another device, or smaller pieces of the same, reach of that: assumed.
_REACHES = (0.8, 1.0, 1.05)
#: Milliseconds of one collective besides its bytes: least, likely, most. Assumed.
_COLLECTIVE_MS = (0.0, 0.010, 0.030)
#: A link's rate as small messages reach it, of the data sheet's: best, likely, worst.
_LINK = (1.0, 0.7, 0.4)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step runs."""

    gpu: Gpu
    layout: Layout


@dataclass(frozen=True, slots=True)
class Move:
    """From where the run was measured to where it is asked about."""

    shape: ModelShape
    options: StepOptions
    source: Place
    target: Place

    @property
    def gains(self) -> float:
        """Return the arithmetic of a target rank's share over a source rank's."""
        rates = [
            peak(p.gpu, self.shape.weight_format) for p in (self.target, self.source)
        ]
        return rates[0] / rates[1] * self.target.layout.tp / self.source.layout.tp


@dataclass(frozen=True, slots=True)
class Moved:
    """A step elsewhere, milliseconds: middle, and the ends that assumptions leave."""

    middle: float
    low: float
    high: float


def fractions(basis: Basis, move: Move) -> tuple[float, float, float]:
    """Return the part of the data sheet's bandwidth that steps reach: low to high."""
    fitted, around = basis.curve.bandwidth, basis.curve.bandwidth_ci
    sheet = move.source.gpu.bandwidth_bytes_per_s
    if fitted is None:
        return _FRACTION
    low, high = around or (0.8 * fitted, 1.2 * fitted)
    return low / sheet, fitted / sheet, min(high / sheet, 1.0)


def moved_step(basis: Basis, move: Move, x: float) -> Moved:
    """Return the step at ``x`` sequences per rank of the target.

    Formula: t - bytes/bandwidth where it was measured, plus the same where it is
        asked about, plus what the target's ranks must tell each other. Of what is
        left the toll is the host's and stays; the part that grows with sequences
        lies between staying and shrinking with the arithmetic of a rank.
    Assumes: 0.8 to 1.05 of the part of the data sheet's bandwidth that the run
        reached; the same engine, a host as fast; a collective costs its bytes and 0
        to 30 us.

    Raises:
        RefusedError: The bytes alone would take longer than the measured step.
    """
    context = basis.context
    if context is None:
        raise RefusedError(
            "predict", "how long the requests were is not known", "tokens a request"
        )
    here, there = (
        step_bytes(
            move.shape, place.layout, x * place.layout.dp, context, move.options
        ).path_bytes
        for place in (move.source, move.target)
    )
    took = basis.step_ms(x)
    sheet, other = (p.gpu.bandwidth_bytes_per_s for p in (move.source, move.target))
    if 1e3 * here / sheet > 1.02 * took:
        raise RefusedError(
            "predict",
            f"at {x:g} sequences a rank the step of {took:.3g} ms is shorter than its"
            f" bytes take at the data sheet's bandwidth ({1e3 * here / sheet:.3g} ms)",
            "a model's config.json and a GPU that belong to the run",
        )
    told = _told(move, x)
    parts = []
    for fraction in fractions(basis, move):
        part = min(1e3 * here / (sheet * fraction), took)
        toll, grows = _rest(basis, took, part)
        for reaches in _REACHES:
            moved = 1e3 * there / (other * min(fraction * reaches, 1.0))
            parts.append((toll + moved, grows))
    least, most = sorted((1.0, 1 / move.gains))
    fixed, grows = parts[len(parts) // 2]
    return Moved(
        middle=fixed + grows * (least * most) ** 0.5 + told[1],
        low=min(a + g * least for a, g in parts) + told[0],
        high=max(a + g * most for a, g in parts) + told[2],
    )


def _rest(basis: Basis, took: float, part: float) -> tuple[float, float]:
    """Return what is no bytes: the toll, and what grows with sequences."""
    rest = took - part
    toll = min(max(basis.curve.level - _level_bytes(basis, part), 0.0), rest)
    return toll, rest - toll


def _level_bytes(basis: Basis, part_ms: float) -> float:
    """Return how much of the model's level is bytes: none where bytes are a term."""
    return 0.0 if basis.curve.bandwidth is not None else part_ms


def _told(move: Move, x: float) -> tuple[float, float, float]:
    """Return milliseconds of communication that the target adds: low, likely, high."""
    found = []
    for rate, each in zip(_LINK, _COLLECTIVE_MS, strict=True):
        ms = []
        for place in (move.target, move.source):
            said = communication(
                move.shape, place.layout, x * place.layout.dp, place.gpu, move.options
            )
            n = sum(c.per_step for c in said.collectives)
            ms.append((said.floor_ms or 0.0) / rate + n * each)
        found.append(ms[0] - ms[1])
    low, high = min(found), max(found)
    return low, float(np.median(found)), high
