"""How often the anomaly rules speak where nothing is wrong, and where something is.

Run: pytest -m slow -s tests/simulations/test_anomaly_alarms.py
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analysis.across.anomalies import ttft_findings
from stepscope.analysis.across.drift import drift_of
from stepscope.analysis.across.groups import repeat_findings
from stepscope.analysis.cell.modes import MODE_MOST, largest_jump, order_of
from stepscope.analysis.records import CellResult, Stats

pytestmark = pytest.mark.slow
N = 2000
Make = Callable[..., CellResult]
NO_STATS = Stats(mean=None, median=None, p90=None, p99=None, max=None)


def _result(**over: Any) -> CellResult:
    values: dict[str, Any] = dict.fromkeys(CellResult.__struct_fields__)
    values |= {
        "configuration": "base", "launch": "base-l0", "session": "s0", "repeat": 0,
        "warm_up": False, "valid": True, "void_reasons": (), "status": "done",
        "n_requests": 64, "n_failed": 0, "failure_kinds": {}, "waves": 8.0,
    }  # fmt: skip
    for key in ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms"):
        values[key] = msgspec.structs.replace(NO_STATS, mean=over.pop(key, None))
    return CellResult(**{**values, **over})


@pytest.mark.parametrize("n", [32, 64, 256, 1024])
@pytest.mark.parametrize("sd", [0.15, 0.4])
def test_one_group_of_ttft_is_seldom_called_two(n: int, sd: float) -> None:
    rng = np.random.default_rng(5)
    said = 0
    for _ in range(N):
        split = largest_jump(np.sort(rng.normal(4, sd, n)))
        said += split is not None and split[2] <= MODE_MOST
    print(f"\nn {n}, SD of log TTFT {sd}: {100 * said / N:.2f} % false alarms")
    assert said / N <= 0.03


@pytest.mark.parametrize(
    ("n", "share", "least"),
    [(32, 0.15, 0.85), (64, 0.15, 0.95), (256, 0.15, 0.95), (256, 0.05, 0.2)],
)
def test_a_second_group_is_found(n: int, share: float, least: float) -> None:
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(N):
        slow = rng.random(n) < share
        ttft = np.where(slow, np.log(2900), np.log(400)) + rng.normal(0, 0.25, n)
        split = largest_jump(np.sort(ttft))
        hits += split is not None and split[2] <= MODE_MOST
    print(f"\nn {n}, {share:.0%} slow: found in {100 * hits / N:.1f} %")
    assert hits / N >= least


@pytest.mark.parametrize("n", [32, 256])
def test_one_stall_and_two_queues_are_told_apart(n: int) -> None:
    rng = np.random.default_rng(7)
    wrong_queue = wrong_stall = 0
    k = n // 6
    for _ in range(N):
        queue = rng.permutation(np.arange(n) < k)
        wrong_queue += order_of(queue) != "all along"
        stall = np.zeros(n, np.bool_)
        begin = rng.integers(0, n - k)
        stall[begin : begin + k] = True
        # Two of the held requests had got their token just before.
        stall[begin + rng.integers(1, k - 1)] = False
        wrong_stall += order_of(stall) == "all along"
    print(
        f"\nn {n}: two queues read as events {100 * wrong_queue / N:.1f} %, a ragged"
        f" stall read as two queues {100 * wrong_stall / N:.1f} %"
    )
    assert wrong_queue / N <= 0.055
    assert wrong_stall / N <= (0.05 if n > 32 else 0.5)


@pytest.mark.parametrize(
    ("sd", "repeats", "most"),
    [(0.05, 1, 0.01), (0.1, 1, 0.08), (0.05, 3, 0.02), (0.1, 3, 0.06)],
)
@pytest.mark.parametrize("rise", [0.0, 0.3])
def test_a_sweep_without_an_accident_is_seldom_flagged(
    sd: float, repeats: int, most: float, rise: float
) -> None:
    rng = np.random.default_rng(8)
    flagged = cells_flagged = 0
    sizes = (1, 2, 4, 8, 16, 32, 64, 128)
    for _ in range(N // 4):
        cells = [
            _result(
                name=f"c{c}-r{r}",
                concurrency=c,
                ttft_ms=float(100 * np.exp(rise * i + rng.normal(0, sd))),
            )
            for i, c in enumerate(sizes)
            for r in range(repeats)
        ]
        found = len(ttft_findings(cells))
        flagged += found > 0
        cells_flagged += found
    share = flagged / (N // 4)
    print(
        f"\nTTFT SD {sd}, {repeats} repeats, rising {rise} a doubling:"
        f" {100 * share:.1f} % of sweeps,"
        f" {100 * cells_flagged / (N // 4) / 8 / repeats:.2f} % of cells"
    )
    assert share <= most if rise else share <= max(most, 0.2)


def test_first_runs_are_flagged_as_often_as_stated() -> None:
    rng = np.random.default_rng(9)
    for cv, low, least, most in ((0.01, 0.0, 0.0, 0.05), (0.01, 0.05, 0.7, 1.0)):
        hits = 0
        for _ in range(N // 4):
            cells = [
                _result(
                    name=f"c{c}-r{r}",
                    concurrency=c,
                    output_tokens_per_s=float(
                        1000 * np.exp(rng.normal(0, cv)) * (1 - low * (r == 0))
                    ),
                )
                for c in (8, 16, 32)
                for r in range(3)
            ]
            codes = [f.code for f in repeat_findings(cells)]
            hits += codes.count("first-run-contaminated")
        share = hits / (N // 4) / 3
        print(f"\nfirst runs {low:.0%} low at CV {cv:.0%}: flagged {100 * share:.1f} %")
        assert least <= share <= most


@pytest.mark.parametrize(
    ("change", "least", "most"), [(0.0, 0.0, 0.02), (0.03, 0.4, 1.0)]
)
def test_a_launch_that_drifts_is_told_from_one_that_does_not(
    change: float, least: float, most: float
) -> None:
    rng = np.random.default_rng(10)
    hits = 0
    sizes = (8, 16, 32, 64)
    order = [*sizes, *sizes[::-1], *sizes]
    for _ in range(N):
        cells = [
            _result(
                name=f"x{i}",
                concurrency=c,
                tpot_ms=float(c * np.exp(rng.normal(0, 0.005) + change * i / 11)),
            )
            for i, c in enumerate(order)
        ]
        drift = drift_of(cells, {c.name: i * 10**9 for i, c in enumerate(cells)})
        assert drift is not None
        hits += drift.p <= 0.01 and abs(drift.change) > 0.02
    print(
        f"\ndrift {change:.0%} over 12 cells at CV 0.5 %: flagged"
        f" {100 * hits / N:.1f} %"
    )
    assert least <= hits / N <= most
