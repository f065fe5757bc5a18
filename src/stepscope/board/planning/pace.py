"""How long things take here: the run's own boots and waves, not a guess."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stepscope.analysis.records import Analysis
from stepscope.recipe.estimate import estimate
from stepscope.recipe.records import CellPlan, Plan
from stepscope.run.run import Run
from stepscope.units import seconds

#: Seconds between cells where no instants tell them.
_BETWEEN_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured seconds.

    Attributes:
        boot_s: From start to ready; None: no boot was timed.
        sizes: Concurrencies with a timed wave, ascending.
        wave_s: Seconds of a wave at each.
        between_s: From the end of one cell to the beginning of the next, and what a
            cell takes besides its requests.
        told: Where these are from.
    """

    boot_s: float | None
    sizes: tuple[int, ...]
    wave_s: tuple[float, ...]
    between_s: float
    told: tuple[str, ...]

    def most_minutes(self, plan: Plan) -> float:
        """Return what a plan takes where every launch warms up to its cap."""
        total = self.minutes(plan)
        for launch, guess in zip(plan.launches, estimate(plan).launches, strict=True):
            block = next((c for c in launch.cells if c.warm_up and not c.wanted), None)
            if block is not None and self.sizes:
                more = guess.most_blocks - guess.n_blocks
                total += max(more, 0) * self._cell_s(block) / 60
        return total

    def minutes(self, plan: Plan) -> float:
        """Return what a plan takes; warm-ups at their fewest blocks.

        Assumes: further configurations are as fast as those measured. The time that a
            profiler takes to write is not in it.
        """
        guessed = estimate(plan).launches
        total = 0.0
        for launch, guess in zip(plan.launches, guessed, strict=True):
            total += guess.boot_s if self.boot_s is None else self.boot_s
            if self.sizes:
                total += sum(self._cell_s(c) for c in launch.cells)
            else:
                total += guess.load_s
        return total / 60

    def _cell_s(self, cell: CellPlan) -> float:
        slots = cell.workload.concurrency or 1
        log_s = np.interp(np.log(slots), np.log(self.sizes), np.log(self.wave_s))
        return math.ceil(cell.workload.n_prompts / slots) * float(np.exp(log_s)) + (
            self.between_s
        )


def pace_of(run: Run, analysis: Analysis) -> Pace:
    """Return the run's own pace."""
    boot_s, told_boot = _boot(analysis)
    waves: dict[int, list[float]] = {}
    for cell in analysis.cells:
        if cell.duration_s and cell.concurrency and cell.waves and not cell.warm_up:
            each = cell.duration_s / math.ceil(cell.waves - 1e-9)
            waves.setdefault(cell.concurrency, []).append(each)
    sizes = tuple(sorted(waves))
    between, told_between = _between(run, analysis)
    return Pace(
        boot_s=boot_s,
        sizes=sizes,
        wave_s=tuple(float(np.median(waves[c])) for c in sizes),
        between_s=between,
        told=(
            told_boot,
            f"waves as measured at concurrency {', '.join(map(str, sizes))}"
            if sizes
            else "waves are guessed: none was measured",
            told_between,
        ),
    )


def _boot(analysis: Analysis) -> tuple[float | None, str]:
    timed = [
        b.seconds_to_ready for b in analysis.boot if b.ready and b.seconds_to_ready
    ]
    if timed:
        value = float(np.median(timed))
        return value, f"a boot takes {value:.1f} s (median of {len(timed)})"
    logged = [
        sum(s for p in b.phases if isinstance(s := p.get("seconds"), int | float))
        for b in analysis.boot
        if b.ready
    ]
    logged = [s for s in logged if s > 0]
    if logged:
        value = float(np.median(logged))
        return value, f"a boot takes {value:.0f} s (phases of the server log)"
    return None, "a boot is guessed: none was timed"


def _between(run: Run, analysis: Analysis) -> tuple[float, str]:
    """Return seconds of a cell that are not its requests, with those to the next."""
    took = {c.name: c.duration_s for c in analysis.cells if c.duration_s}
    timed = [c for c in run.cells if c.started_at_ns is not None and c.name in took]
    extra = [
        seconds((b.started_at_ns or 0) - (a.started_at_ns or 0)) - took[a.name]
        for a, b in pairwise(timed)
        if a.launch == b.launch
    ]
    extra = [s for s in extra if 0 <= s < 600]
    if not extra:
        return _BETWEEN_S, f"{_BETWEEN_S:g} s a cell besides its requests (guessed)"
    value = float(np.median(extra))
    return value, f"{value:.1f} s a cell besides its requests (median of {len(extra)})"
