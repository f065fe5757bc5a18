"""Do first-token times fall in two groups, and were the slow ones one event?"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from scipy.special import gammaln

from stepscope.analysis.cell.chunks import Bools, Ints
from stepscope.analysis.cell.columns import Columns, Floats
from stepscope.analysis.cell.measured import Measured
from stepscope.analysis.cell.saying import about
from stepscope.findings import Finding
from stepscope.units import ms

#: Gap rule on log TTFT. Source: docs/analysis/anomalies.md (simulated rates).
MODE_RATIO, MODE_SHARE, MODE_MOST, MODE_MIN_N = 1.6, 0.05, 0.5, 32
_RUNS_LEVEL = 0.05

Order = Literal["one event", "several events", "all along"]
#: What the order in time of the slow ones says, and what to do about it.
SAYS: dict[Order, tuple[str, str]] = {
    "one event": (
        "all in one stretch of time: one event, not two queues",
        "Something held the server once, or one wave was admitted in another way."
        " Repeat the cell, and do not average this one in.",
    ),
    "several events": (
        "in a few stretches of time, more bunched than chance",
        "Something held the server several times: look at its log and at the waves.",
    ),
    "all along": (
        "spread over the whole cell as by chance",
        "Two queues, two replicas or two sizes of prefill: no repeat will mend it.",
    ),
}


def two_modes(m: Measured) -> Iterator[Finding]:
    """TTFT in two groups, first wave and incomplete last wave left out.

    An incomplete wave has a prefill of its own size: it would be a group by design.
    So would the fast few: where slots run in step, the first prompt of each wave is
    prefilled alone and all others wait for it. The slow group must be the smaller.
    """
    slots, rows = m.concurrency, m.columns
    if slots is None or rows.n <= slots:
        return
    chosen = _inner(rows, slots)
    ttft = ms(1.0) * (rows.first - rows.sent)[chosen]
    split = largest_jump(np.sort(np.log(np.maximum(ttft, 1e-3))))
    if split is None:
        return
    low, high, share = split
    if share > MODE_MOST:
        return
    where, hint = SAYS[order_of(ttft >= high)]
    yield about(
        m,
        "bimodal-ttft",
        f"TTFT after the first wave falls in two groups, up to {low:.0f} and from"
        f" {high:.0f} ms; the slow one holds {100 * share:.0f} % of"
        f" requests, {where}",
        hint,
    )


def _inner(rows: Columns, slots: int) -> Bools:
    inner = np.zeros(rows.n, np.bool_)
    inner[slots : rows.n // slots * slots] = True
    chosen: Bools = inner & rows.timed
    return chosen


def largest_jump(logs: Floats) -> tuple[float, float, float] | None:
    """Return the ends of the largest jump in sorted logs if both sides are big.

    Args:
        logs: Sorted logarithms.

    Returns:
        Highest value below the jump, lowest above it, share above; None: no jump.
    """
    n = logs.size
    edge = max(int(np.ceil(MODE_SHARE * n)), 2)
    if n < MODE_MIN_N or n <= 2 * edge:
        return None
    jumps = np.diff(logs)[edge - 1 : n - edge]
    at = int(np.argmax(jumps)) + edge - 1
    if jumps.max() <= np.log(MODE_RATIO):
        return None
    # exp(log(x)) may end above x: the upper edge must still hold the value itself.
    return (
        float(np.exp(logs[at])),
        float(np.exp(logs[at + 1]) * (1 - 1e-12)),
        (n - at - 1) / n,
    )


def order_of(slow: Bools) -> Order:
    """Return what the order of sending says of the slow requests.

    Source: A. Wald and J. Wolfowitz, "On a Test Whether Two Samples are from the Same
        Population", Annals of Mathematical Statistics 11 (1940): the number of runs of
        equal kind, exact, one-sided at 5 % for too few.
    Assumes: without an event, any order of slow and fast is as likely as another.

    Args:
        slow: In order of sending.
    """
    stretches = int((np.diff(slow.astype(np.int8)) == 1).sum() + slow[0])
    if stretches == 1 and slow.sum() > 1:
        return "one event"
    runs = int((np.diff(slow.astype(np.int8)) != 0).sum()) + 1
    if too_few_runs(runs, int(slow.sum()), int((~slow).sum())) < _RUNS_LEVEL:
        return "several events"
    return "all along"


def too_few_runs(runs: int, n_slow: int, n_fast: int) -> float:
    """Return the chance of so few runs or fewer, any order being as likely.

    Source: of C(n, n_slow) orders, those with k stretches of slow and j of fast ones
        number C(n_slow - 1, k - 1) C(n_fast - 1, j - 1), twice that for k = j.
    """
    r = np.arange(2, runs + 1)
    half = r // 2
    even = r % 2 == 0
    first = _log_cut(n_slow, half) + _log_cut(n_fast, np.where(even, half, half + 1))
    second = _log_cut(n_slow, np.where(even, half, half + 1)) + _log_cut(n_fast, half)
    all_orders = _log_choose(n_slow + n_fast, np.array([n_slow]))
    return float(np.exp(np.concatenate((first, second)) - all_orders).sum())


def _log_cut(n: int, pieces: Ints) -> Floats:
    """Return the log of how many ways n things in a row fall in so many pieces."""
    return _log_choose(n - 1, pieces - 1)


def _log_choose(n: int, k: Ints) -> Floats:
    inside = (k >= 0) & (k <= n)
    safe = np.where(inside, k, 0)
    value = gammaln(n + 1) - gammaln(safe + 1) - gammaln(n - safe + 1)
    chosen: Floats = np.where(inside, value, -np.inf)
    return chosen
