"""Did the warm-up settle before anything was measured?"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Run

_BLOCKS = 3
_MOST_RISE = 0.02


def warm_up_findings(run: Run, cells: Sequence[CellResult]) -> list[Finding]:
    """Judge each launch's warm-up blocks: the last three against the three before.

    Source: one-sided 95 % upper bound of log(mean last 3) - log(mean previous 3), t
        with 4 degrees of freedom, below 2 %. "Two in a row agree" stops too early.
    Assumes: blocks of one shape. Fewer than six blocks give no verdict, and that is
        said too.
    """
    found = []
    for launch in run.launches:
        blocks = [c for c in cells if c.launch == launch.name and c.warm_up and c.valid]
        measured = [c for c in cells if c.launch == launch.name and not c.warm_up]
        rates = [c.output_tokens_per_s for c in blocks if c.output_tokens_per_s]
        if not measured:
            continue
        if len(rates) < 2 * _BLOCKS:
            found.append(
                Finding(
                    code="warmup-unknown",
                    severity="info",
                    message=f"{len(rates)} warm-up blocks on {launch.name}; six are"
                    " needed to tell whether it had settled",
                    hint="[warm_up] blocks = 6",
                    launch=launch.name,
                )
            )
            continue
        bound = _rise(rates[-2 * _BLOCKS : -_BLOCKS], rates[-_BLOCKS:])
        if bound >= _MOST_RISE:
            found.append(
                Finding(
                    code="warmup-not-converged",
                    severity="warning",
                    message=f"throughput of the last three warm-up blocks may still"
                    f" rise by {100 * bound:.1f} % over the three before"
                    f" ({', '.join(f'{r:.0f}' for r in rates[-2 * _BLOCKS :])}"
                    " tokens/s)",
                    hint="More or longer blocks: every later cell carries this doubt.",
                    launch=launch.name,
                )
            )
    return found


def _rise(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the upper bound of the rise in log throughput."""
    old, new = np.log(before), np.log(after)
    pooled = np.sqrt((old.var(ddof=1) + new.var(ddof=1)) / 2)
    error = pooled * np.sqrt(2 / _BLOCKS)
    return float(new.mean() - old.mean() + stats.t.ppf(0.95, 4) * error)
