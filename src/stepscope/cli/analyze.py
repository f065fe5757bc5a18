"""``stepscope analyze``: cells, identities, step model, board."""

import sys
from pathlib import Path

import click
import msgspec


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def analyze(run: Path, *, as_json: bool) -> None:
    """Analyze RUN: a run directory, or anything that import accepts."""
    from stepscope.errors import RefusedError
    from stepscope.importers.open import open_any

    opened = open_any(run)
    if not opened.cells and not opened.launches:
        raise RefusedError(str(run), "no cell and no launch in it")
    if as_json:
        from stepscope.report.document import document

        sys.stdout.buffer.write(msgspec.json.encode(document(opened)) + b"\n")
        return
    from rich.console import Console

    from stepscope.analysis.analyze import analyze as analyze_run
    from stepscope.board.judge import judge
    from stepscope.report.terminal import print_summary

    analysis = analyze_run(opened)
    board = judge(opened, analysis)
    print_summary(Console(highlight=False), opened, analysis, board)
