"""The loop of ``explain``: judge, choose an experiment, measure it, judge again."""

from dataclasses import replace
from typing import TYPE_CHECKING

from stepscope.clock import Clock
from stepscope.errors import StepscopeError
from stepscope.session.execute import Order, Outcome, execute
from stepscope.session.halt import Halt
from stepscope.session.observer import Observer

if TYPE_CHECKING:
    from stepscope.board.experiments.choose import Next


def explain(
    order: Order, outcome: Outcome, *, clock: Clock, observer: Observer, halt: Halt
) -> Outcome:
    """Run experiments until none decides anything, the budget ends or we must stop.

    Each goes on with the run, as ``--resume`` does, on the same machine.

    Args:
        order: What was measured.
        outcome: How that ended.
        clock: Time.
        observer: Hears what is chosen, and why it ends.
        halt: When it is asked, the run ends.

    Returns:
        The outcome, interrupted where an experiment was.
    """
    begun: set[int] = set()
    while not outcome.interrupted and outcome.n_measured:
        found = _following(order, observer)
        if found is None:
            break
        number = found.experiment.number
        if number in begun:
            # It left no launch behind that would tell the board of it.
            observer.note("warning", f"experiment {number} could not be recorded")
            break
        begun.add(number)
        try:
            done = execute(
                replace(order, plan=found.plan, resume=True),
                clock=clock,
                observer=observer,
                halt=halt,
            )
        except StepscopeError as error:
            # What was asked for is measured: its report must not be lost for this.
            observer.note("error", f"experiment {number} was not run: {error}")
            break
        outcome = replace(
            outcome,
            failures=(*outcome.failures, *done.failures),
            interrupted=done.interrupted,
        )
    return outcome


def _following(order: Order, observer: Observer) -> "Next | None":
    """Judge the run as it is now; return the experiment to run next, said aloud."""
    from stepscope.analysis.analyze import analyze
    from stepscope.board.experiments.choose import Nothing, next_experiment
    from stepscope.board.judge import judge
    from stepscope.importers.open import open_any

    observer.phase("explain", "what would decide")
    run = open_any(order.out)
    analysis = analyze(run)
    recipe = order.plan.recipe
    found = next_experiment(run, analysis, judge(run, analysis), recipe)
    if isinstance(found, Nothing):
        observer.note("info", f"no further experiment: {found.why}")
        return None
    one, money = found.experiment, found.usd
    price = "" if money is None else f", {money:.2f} USD"
    observer.note(
        "info",
        f"experiment {one.number}: {one.title}; it can decide"
        f" {', '.join(one.splits)}; about {one.minutes:.1f} minutes{price}",
    )
    return found
