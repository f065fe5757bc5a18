"""``stepscope run``: measure what a recipe asks for."""

from datetime import UTC, datetime
from pathlib import Path

import click

from stepscope.clock import SystemClock
from stepscope.recipe.estimate import Estimate
from stepscope.recipe.expand import ORDERS, Order
from stepscope.recipe.records import Plan


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run directory. Default: runs/NAME-DATE-TIME.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--dry-run", is_flag=True, help="Show commands, cells, time and money.")
@click.option(
    "--only",
    help="A configuration, launch or cell; * and ? are wildcards. Default: all.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="abba",
    show_default=True,
    help="How several launches of several configurations take turns.",
)
def run(
    recipe: Path,
    *,
    out: Path | None,
    resume: bool,
    dry_run: bool,
    only: str | None,
    order: Order,
) -> None:
    """Measure every configuration and cell of RECIPE."""
    from stepscope.errors import RecipeError
    from stepscope.recipe.expand import expand, select
    from stepscope.recipe.loader import load_recipe

    try:
        text = recipe.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise RecipeError(str(recipe), reason, "expected a recipe") from error
    plan = expand(load_recipe(text, str(recipe)), order)
    if only is not None:
        plan = select(plan, only)
    if dry_run:
        _show_plan(plan)
        return
    if resume and out is None:
        raise RecipeError("--resume", "no --out", "expected the run to go on with")
    from stepscope.cli.measure import measure

    measure(plan, text, out or default_out(plan.recipe.name), resume=resume)


def default_out(name: str) -> Path:
    """Return ``runs/<name>-<UTC stamp>``."""
    unix_s = SystemClock().wall_anchor().unix_ns / 1e9
    stamp = datetime.fromtimestamp(unix_s, UTC).strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name}-{stamp}"


def _show_plan(plan: Plan) -> None:
    from stepscope.archive.secrets import (
        command_without_secrets,
        environment_without_secrets,
    )
    from stepscope.engines.catalog import engine_of, shell_line
    from stepscope.recipe.estimate import estimate
    from stepscope.recipe.rates import load_words, work_words
    from stepscope.session.phases.switches import no_tool, order_of

    engine = engine_of(plan.recipe)
    recipe = plan.recipe
    for launch in plan.launches:
        print(f"# {launch.name}")
        trace = order_of(recipe, launch, Path("RUN/traces", launch.name))
        command = engine.command(recipe, launch.configuration, recipe.port or 0, trace)
        if trace is not None:
            command = (*trace.wrapper, *command)
            if (why := no_tool(recipe)) is not None:
                print(f"# left out on this machine: {why}")
        added = engine.environment(recipe, launch.configuration, trace)
        if engine.boots:
            print(
                shell_line(
                    environment_without_secrets(added), command_without_secrets(command)
                )
            )
            if recipe.port is None:
                print("# port 0: a free one is taken")
            if launch.configuration.cpus:
                print(f"# on processors {launch.configuration.cpus}")
        elif recipe.server is not None:
            print(f"# nothing boots: {recipe.server.base_url}")
        for cell in launch.cells:
            work = cell.workload
            print(
                f"  {cell.name}: {load_words(work)}, {work.n_prompts} prompts,"
                f" {work_words(work)}"
            )
    if recipe.explain is not None:
        print(f"# then experiments, {recipe.explain.minutes:g} minutes at most")
    guess = estimate(plan)
    money = "" if guess.usd is None else f", {guess.usd:.2f} USD"
    print(f"# about {guess.minutes:.1f} minutes{money}; assumed:")
    _show_warm_up(guess)
    for line in guess.assumptions:
        print(f"#   {line}")


def _show_warm_up(guess: Estimate) -> None:
    """Say how far the warm-ups may stretch it."""
    for launch in guess.launches:
        if launch.most_blocks > launch.n_blocks:
            print(
                f"#   {launch.launch}: {launch.n_blocks} warm-up blocks, up to"
                f" {launch.most_blocks} while it has not settled"
            )
    if guess.most_minutes > guess.minutes:
        money = "" if guess.most_usd is None else f", {guess.most_usd:.2f} USD"
        print(f"#   with every one of them {guess.most_minutes:.1f} minutes{money}")
