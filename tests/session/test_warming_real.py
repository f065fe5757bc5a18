"""Warm-up to convergence on the real embedded engine."""

from pathlib import Path

from tests.session.scripted_session import Notes

from stepscope.analysis.analyze import analyze
from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.session.execute import Order, execute
from stepscope.session.halt import Halt

RECIPE = """
name = "warming"
engine = "embedded"
[baseline.flags]
slots = 2
slot-context = 64
threads = 1
[workload]
input_tokens = 8
output_tokens = 8
concurrency = [2]
[warm_up]
blocks = 6
max_blocks = 7
"""


def test_a_real_server_is_warmed_up_until_the_law_or_the_cap_says_so(
    tmp_path: Path,
) -> None:
    notes = Notes([])
    execute(
        Order(
            expand(load_recipe(RECIPE, "recipe.toml")), RECIPE, tmp_path / "run", False
        ),
        clock=SystemClock(),
        observer=notes,
        halt=Halt(),
    )
    run = open_run(tmp_path / "run")
    blocks = [c.name for c in run.cells if c.warm_up]
    assert blocks == [f"baseline-warm{i}" for i in range(len(blocks))]
    verdict = run.launches[0].warm_up
    assert verdict is not None
    assert verdict.n_blocks == len(blocks)
    assert 6 <= len(blocks) <= 7
    assert verdict.settled is not None
    assert verdict.settled or len(blocks) == 7
    assert any("warm-up of baseline-l0" in line for line in notes.said)
    # Whoever reads the run comes to what the session came to.
    analysis = analyze(run)
    (cell,) = [c for c in analysis.cells if not c.warm_up]
    assert cell.status == "done"
    assert cell.warm_up_settled == verdict.settled
    codes = [f.code for f in analysis.findings]
    assert ("warmup-not-converged" in codes) is not verdict.settled
