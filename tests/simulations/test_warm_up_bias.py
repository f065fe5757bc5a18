"""How much warm-up the rule leaves in what is measured after it.

Run: pytest -m slow -s tests/simulations/test_warm_up_bias.py
"""

import numpy as np
import pytest

from stepscope.run.settling import LEAST_BLOCKS, Block, judged

pytestmark = pytest.mark.slow
N = 2000
CAP = 24


def blocks_until_settled(
    rng: np.random.Generator, depth: float, constant: float, cv: float, cap: int
) -> tuple[int, float, bool]:
    """Return blocks, the bias that is left after them, and whether it settled."""
    blocks: list[Block] = []
    for i in range(cap):
        true = 1 - depth * np.exp(-i / constant)
        rate = 1000 * true * np.exp(rng.normal(0, cv))
        blocks.append(Block(name=f"w{i}", tokens_per_s=float(rate)))
        if len(blocks) >= LEAST_BLOCKS and judged(blocks).settled:
            return len(blocks), depth * np.exp(-len(blocks) / constant), True
    return cap, depth * np.exp(-cap / constant), False


#: (depth, constant in blocks, CV of a block): mean bias and share above 1 % at most.
CASES = {
    (0.3, 3.0, 0.005): (0.004, 0.01),
    (0.3, 3.0, 0.02): (0.004, 0.02),
    (0.3, 1.0, 0.005): (0.001, 0.01),
    (0.1, 8.0, 0.005): (0.02, 1.0),
    (0.0, 1.0, 0.005): (0.0, 0.0),
    (0.0, 1.0, 0.02): (0.0, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_of_the_warm_up_when_the_rule_stops(
    case: tuple[float, float, float],
) -> None:
    rng = np.random.default_rng(1)
    found = [blocks_until_settled(rng, *case, CAP) for _ in range(N)]
    n = np.array([f[0] for f in found])
    bias = np.array([f[1] for f in found])
    settled = np.array([f[2] for f in found])
    print(
        f"\ndepth {case[0]:.0%}, constant {case[1]:g} blocks, CV {case[2]:.1%}:"
        f" {n.mean():.1f} blocks, bias left {100 * bias[settled].mean():.2f} %,"
        f" above 1 % in {100 * (bias[settled] > 0.01).mean():.1f} %,"
        f" not settled at {CAP} in {100 * (~settled).mean():.1f} %"
    )
    most, above = CASES[case]
    assert bias[settled].mean() <= most
    assert (bias[settled] > 0.01).mean() <= above


def test_a_stall_in_the_last_blocks_is_never_taken_for_settled() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        rates = 1000 * np.exp(rng.normal(0, 0.005, 6))
        ttft = [tuple(int(1e8 * rng.uniform(0.8, 1.2)) for _ in range(8))] * 5
        blocks = [
            Block(name=f"w{i}", tokens_per_s=float(r), ttft_ns=t)
            for i, (r, t) in enumerate(
                zip(rates, [*ttft, (5_000_000_000, *ttft[0][1:])], strict=True)
            )
        ]
        assert judged(blocks).settled is False
