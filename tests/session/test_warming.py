"""Warm-up until it has settled: scripted blocks, their cap, stalls and compilations."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from tests.session.scripted_session import RECIPE, ScriptedSite, World

from stepscope.analysis.analyze import analyze
from stepscope.archive.reader import open_run
from stepscope.errors import RecipeError
from stepscope.load.spec import LoadSpec
from stepscope.recipe.estimate import estimate
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.run.run import Launch
from stepscope.run.settling import LEAST_BLOCKS, Block, block_of, judged, rise_bound

PLAIN = RECIPE.split("[[patch]]", maxsplit=1)[0]
SIX = PLAIN.replace("blocks = 1", "blocks = 6\nmax_blocks = 12")
MS = 1_000_000


def script(site: ScriptedSite, took_ms: Sequence[float], ttft_ms: float = 1.0) -> None:
    """Let warm-up block i take ``took_ms[i]``, the last of them for all later ones."""
    rng = np.random.default_rng(3)
    for i in range(40):
        took = took_ms[min(i, len(took_ms) - 1)] * float(np.exp(rng.normal(0, 0.001)))
        site.took_ns[f"baseline-warm{i}"] = (round(ttft_ms * MS), round(took * MS))


def warm_ups(world: World) -> list[str]:
    return [c.name for c in open_run(world.out).cells if c.warm_up]


def launch_of(world: World) -> Launch:
    return open_run(world.out).launches[0]


def test_a_server_that_is_warm_gets_the_fewest_blocks(world: World) -> None:
    script(world.site, [100.0])
    world.run(SIX)
    assert warm_ups(world) == [f"baseline-warm{i}" for i in range(6)]
    verdict = launch_of(world).warm_up
    assert verdict is not None
    assert (verdict.settled, verdict.n_blocks, verdict.most_blocks) == (True, 6, 12)
    assert verdict.why == ""


def test_blocks_go_on_until_the_server_has_settled(world: World) -> None:
    script(world.site, [300.0, 200.0, 110.0, 100.0])
    outcome = world.run(SIX)
    verdict = launch_of(world).warm_up
    assert verdict is not None
    assert verdict.settled
    # Three at full speed against the three before.
    assert verdict.n_blocks == 9
    assert len(warm_ups(world)) == verdict.n_blocks
    assert outcome.n_measured == 2
    assert any("settled after" in line for line in world.notes.said)
    totals = [total for _, _, total in world.notes.cells]
    assert totals[-1] == verdict.n_blocks + 2
    seeds = [spec.seed for spec in world.site.specs]
    assert len(set(seeds)) == len(seeds)


def test_at_the_cap_the_run_goes_on_and_carries_the_doubt(world: World) -> None:
    script(world.site, [100.0 / (1 + 0.1 * i) for i in range(40)])
    outcome = world.run(SIX)
    run = open_run(world.out)
    verdict = run.launches[0].warm_up
    assert verdict is not None
    assert (verdict.settled, verdict.n_blocks) == (False, 12)
    assert outcome.n_measured == 2
    assert any(
        x.startswith("warning: warm-up of baseline-l0: not settled after 12 blocks")
        for x in world.notes.said
    )
    analysis = analyze(run)
    (finding,) = [f for f in analysis.findings if f.code == "warmup-not-converged"]
    assert finding.launch == "baseline-l0"
    assert "12 warm-up blocks (the cap, 12)" in finding.message
    measured = [c for c in analysis.cells if not c.warm_up]
    assert [c.warm_up_settled for c in measured] == [False, False]


def test_a_stalled_request_in_the_last_blocks_is_waited_out(world: World) -> None:
    script(world.site, [100.0])
    world.site.took_ns["baseline-warm5"] = (95 * MS, 100 * MS)
    world.run(SIX)
    # The stalled block must have left the last three.
    assert len(warm_ups(world)) == 9


def test_a_compilation_in_the_last_blocks_is_waited_out(world: World) -> None:
    line = (
        b"(EngineCore pid=7) WARNING 11-30 08:00:00 [jit_monitor.py:103] Triton kernel"
        b" JIT compilation during inference: _k\n"
    )
    script(world.site, [100.0])
    vllm = 'engine = "vllm"\nmodel = "m"\nexecutable = "true"'

    def compiles(site: ScriptedSite, spec: LoadSpec, stop: threading.Event) -> None:
        with site.orders[-1].log.open("ab") as log:
            log.write(line)

    world.site.drives["baseline-warm4"] = compiles
    world.site.drives["baseline-c1-r0"] = compiles
    world.run(SIX.replace('engine = "embedded"', vllm))
    assert len(warm_ups(world)) == 8
    verdict = launch_of(world).warm_up
    assert verdict is not None
    assert verdict.settled


def test_two_blocks_are_two_blocks_and_no_verdict(world: World) -> None:
    world.run(PLAIN.replace("blocks = 1", "blocks = 2"))
    assert warm_ups(world) == ["baseline-warm0", "baseline-warm1"]
    verdict = launch_of(world).warm_up
    assert verdict is not None
    assert verdict.settled is None


def test_blocks_of_a_second_launch_have_names_of_their_own(world: World) -> None:
    script(world.site, [300.0, 200.0, 110.0, 100.0])
    world.run("n_launches = 2\n" + SIX)
    names = warm_ups(world)
    assert len(set(names)) == len(names)
    assert "baseline-warm12" in names


def test_the_estimate_holds_the_fewest_and_the_most_blocks() -> None:
    guess = estimate(expand(load_recipe(SIX, "r")), boot_s=0, step_ms=10)
    (launch,) = guess.launches
    assert (launch.n_blocks, launch.most_blocks) == (6, 12)
    assert launch.most_load_s > launch.load_s
    assert guess.most_minutes > guess.minutes
    fixed = estimate(expand(load_recipe(PLAIN, "r")), boot_s=0, step_ms=10)
    assert fixed.most_minutes == fixed.minutes


def test_a_cap_below_the_fewest_blocks_is_refused() -> None:
    with pytest.raises(RecipeError, match="max_blocks"):
        load_recipe(SIX.replace("max_blocks = 12", "max_blocks = 5"), "r")


def test_the_bound_of_the_rise_is_students() -> None:
    rates = [100.0, 101.0, 99.0, 104.0, 105.0, 103.0]
    logs = np.log(rates)
    pooled = np.sqrt((logs[:3].var(ddof=1) + logs[3:].var(ddof=1)) / 2)
    expected = logs[3:].mean() - logs[:3].mean() + 2.1318468 * pooled * np.sqrt(2 / 3)
    assert rise_bound(rates) == pytest.approx(expected)


def test_five_blocks_are_no_verdict_and_unanswered_ones_do_not_count() -> None:
    good = Block(name="w", tokens_per_s=100.0)
    assert judged([good] * (LEAST_BLOCKS - 1)).settled is None
    empty = block_of("e", ())
    assert empty.tokens_per_s is None
    assert judged([good] * 5 + [empty]).settled is None
    assert judged([good] * 6 + [empty]).settled is True


def test_a_cap_of_six_with_a_cold_first_block_says_what_one_more_would_do() -> None:
    """Rates of the sample sweep: a compilation in the first block, then none."""
    rates = [496.0, 831.0, 830.0, 832.0, 829.0, 833.0, 831.0]
    blocks = [Block(name=f"w{i}", tokens_per_s=rate) for i, rate in enumerate(rates)]
    six = judged(blocks[:6], 6)
    assert six.settled is False
    assert six.why.endswith(
        "the first alone is cold, and one block more leaves it behind"
    )
    assert judged(blocks, 7).settled
    # A slow rise, and the noise of a busy machine, are no cold start.
    for rates in ([500.0, 540, 580, 620, 660, 700], [38.0, 49, 69, 43, 54, 70]):
        blocks = [
            Block(name=f"s{i}", tokens_per_s=rate) for i, rate in enumerate(rates)
        ]
        assert "cold" not in judged(blocks, 6).why
