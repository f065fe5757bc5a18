"""``stepscope plan``: what to measure next, what it settles and what it costs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepscope.cli.output import write_whole
from stepscope.errors import RecipeError

if TYPE_CHECKING:
    from stepscope.board.planning.records import Candidate, PlanDocument, Settles


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--budget-usd",
    type=float,
    default=None,
    help="At most this much money. Default: no bound.",
)
@click.option(
    "--budget-minutes",
    type=float,
    default=None,
    help="At most so long. Default: no bound.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the recipe there. Default: print it.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def plan(
    run: Path,
    *,
    budget_usd: float | None,
    budget_minutes: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Rank what to measure after RUN, and write the recipe that does it.

    Value counts hypotheses and claims that a measurement would decide; minutes are
    those of this run's own boots and waves.
    """
    from stepscope.analysis.analyze import analyze
    from stepscope.board.judge import judge
    from stepscope.board.planning.choose import Budget
    from stepscope.board.planning.plan import plan as plan_next
    from stepscope.importers.open import open_any

    for name, value in (
        ("--budget-usd", budget_usd),
        ("--budget-minutes", budget_minutes),
    ):
        if value is not None and not 0 <= value < 1e9:
            raise RecipeError(name, f"{value:g}", "0 or more")
    opened = open_any(run)
    analysis = analyze(opened)
    board = judge(opened, analysis)
    document = plan_next(opened, analysis, board, Budget(budget_minutes, budget_usd))
    text = _with_head(document)
    if output is not None and text is not None:
        write_whole(output, text)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
        return
    _print(document)
    if text is not None:
        print(
            f"\nstepscope run {output}" if output is not None else f"\n{text}", end=""
        )
        print()


def _with_head(document: "PlanDocument") -> str | None:
    """Return the recipe with what must be filled in at its top."""
    if document.recipe is None:
        return None
    head = [f"# What to measure after {document.run}; stepscope plan wrote it."]
    head += [f"# LOOK HERE: {line}" for line in document.fill_in]
    return "\n".join(head) + "\n" + document.recipe


def _print(document: "PlanDocument") -> None:
    for number, one in enumerate(document.candidates, 1):
        print(f"{number}. {one.title}  [{one.id}]")
        print(f"   {_costs(one)}")
        for how in ("decides", "bears-on"):
            told = [_short(s) for s in one.settles if s.how == how]
            if told:
                print(f"   {how} {'; '.join(told)}")
        print(f"   because {one.reason}")
        if one.command is not None:
            print(f"   by hand: {one.command}")
    for finding in document.findings:
        print(f"{finding.message}. {finding.hint}".rstrip())
    if document.minutes is not None:
        money = "" if document.usd is None else f", {document.usd:.2f} USD"
        most = document.most_minutes or document.minutes
        print(
            f"\nThe recipe takes about {document.minutes:.1f} minutes{money}; up to"
            f" {most:.1f} where it warms up slowly:"
        )
        print(f"- {'; '.join(document.pace)}")
    if document.left_open:
        left = dict.fromkeys(_short(s) for s in document.left_open)
        print(f"Left open: {'; '.join(left)}.")


def _costs(one: "Candidate") -> str:
    if one.minutes is None:
        return f"value {one.value:.2g}; not in the recipe: {one.not_in_recipe}"
    money = "" if one.usd is None else f", {one.usd:.2f} USD"
    text = f"value {one.value:.2g}, alone {one.minutes:.1f} minutes{money}"
    if one.added_minutes is not None:
        return f"{text}; adds {one.added_minutes:.1f} minutes to the recipe"
    return f"{text}; not in the recipe: {one.not_in_recipe}"


def _short(settles: "Settles") -> str:
    low, high = settles.concurrency_from, settles.concurrency_to
    if settles.kind == "claim":
        return f'"{settles.what}"'
    where = "" if low is None else f" at {low}" if low == high else f" at {low}-{high}"
    return f"{settles.what}{where} ({settles.configuration})"
