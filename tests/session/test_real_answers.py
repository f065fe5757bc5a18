"""Real llama.cpp, two configurations: what is asked, kept, and said of it."""

import msgspec
import pytest
from tests.session.scripted_session import Notes

from stepscope.analysis.analyze import analyze
from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.run.run import Run
from stepscope.session.execute import Order, execute
from stepscope.session.halt import Halt

RECIPE = """
name = "two"
engine = "embedded"
[baseline.flags]
slots = 2
slot-context = 128
[[patch]]
name = "more-slots"
flags = { slots = 4 }
[workload]
input_tokens = 16
output_tokens = 32
concurrency = [1]
n_prompts = 2
[warm_up]
blocks = 1
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("xllamacpp")
    out = tmp_path_factory.mktemp("answers") / "run"
    plan = expand(load_recipe(RECIPE, "two.toml"))
    order = Order(plan=plan, recipe_text=RECIPE, out=out)
    execute(order, clock=SystemClock(), observer=Notes([]), halt=Halt())
    return open_run(out)


def test_both_configurations_answer_every_question_alike(measured: Run) -> None:
    base, other = measured.launches
    assert [a.question for a in base.answers] == [0, 1, 2, 3]
    assert {a.output_tokens for a in base.answers} == {32}
    assert len({a.text for a in base.answers}) == 4
    assert [a.text for a in base.answers] == [a.text for a in other.answers]
    assert "outputs-differ" not in {f.code for f in analyze(measured).findings}


def test_a_launch_that_answers_otherwise_is_found(measured: Run) -> None:
    base, other = measured.launches
    wrong = tuple(
        msgspec.structs.replace(a, pieces=(*a.pieces[:4], "!", *a.pieces[5:]))
        for a in other.answers
    )
    run = msgspec.structs.replace(
        measured, launches=(base, msgspec.structs.replace(other, answers=wrong))
    )
    (finding,) = [f for f in analyze(run).findings if f.code == "outputs-differ"]
    assert finding.severity == "warning"
    assert "from token 4, 4, 4, 4 on" in finding.message
    assert "no configuration was started twice" in finding.message
