"""``stepscope demo``: the whole loop on the embedded engine."""

from importlib import resources
from pathlib import Path

import click


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The run directory. Default: runs/demo-DATE-TIME.",
)
def demo(*, out: Path | None) -> None:
    """Boot real llama.cpp on a small random model, measure it, explain it."""
    from stepscope.cli.measure import measure
    from stepscope.cli.run import default_out
    from stepscope.recipe.expand import expand
    from stepscope.recipe.loader import load_recipe

    text = resources.files("stepscope.engines").joinpath("demo.toml").read_text()
    plan = expand(load_recipe(text, "demo.toml"))
    measure(plan, text, out or default_out("demo"), resume=False)
