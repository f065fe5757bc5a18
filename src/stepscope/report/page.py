"""The page: one HTML file, readable offline, without any script."""

from functools import cache
from importlib import resources

from jinja2 import (
    Environment,
    PackageLoader,
    StrictUndefined,
    Template,
    select_autoescape,
)
from markupsafe import Markup

from stepscope.analysis.records import Analysis
from stepscope.board.records import Board
from stepscope.report import content
from stepscope.report.boots import boots, startup_lines
from stepscope.report.cells import shown
from stepscope.report.figure import Figure
from stepscope.report.stack import token_stack
from stepscope.report.steps import step_time
from stepscope.report.svg import render
from stepscope.report.sweep import sweep
from stepscope.report.timeline import figure_name, telemetry
from stepscope.run.run import Run


def html(run: Run, analysis: Analysis, board: Board) -> str:
    """Return the whole page.

    Nothing in it is fetched and nothing in it runs: a policy in its head forbids
    both, whatever a model's name or a log line says. All text is escaped.

    Args:
        run: The run.
        analysis: Its figures.
        board: Its verdict.

    Returns:
        HTML, UTF-8 when written.
    """
    made = figures(run, analysis)
    # Our own SVG, rewritten from an allow list by svg.inline.
    drawn = {f.name: Markup(render(f)) for f in made}  # noqa: S704
    by_cell = {
        cell.name: figure_name(cell, index) for index, cell in enumerate(run.cells)
    }
    return _template().render(
        run=run,
        analysis=analysis,
        board=board,
        board_rows=content.board_rows(board),
        scope=content.scope,
        evidence=content.evidence,
        only_void=content.only_void,
        void_points=content.void_points(analysis),
        share=content.share,
        shown=shown,
        anchor=content.anchor,
        figures={f.name: f for f in made},
        drawn=drawn,
        step_figures=[n for n in drawn if n.startswith(("step-", "stack-"))],
        by_cell=by_cell,
        headers=content.summary_headers(),
        rows=content.summary_rows(analysis.cells),
        details=content.cell_details(run, analysis),
        boots=boots(run, analysis),
        startup=startup_lines(analysis),
        findings=content.findings(run, analysis, board),
        machine=content.machine(run),
        command_line=content.command_line,
        environment=content.environment,
        path_link=content.path_link,
        css=Markup(css()),  # noqa: S704 - a file of this package
    )


def figures(run: Run, analysis: Analysis) -> tuple[Figure, ...]:
    """Return every figure of the run, in the order in which the page shows them."""
    made: list[Figure | None] = [
        sweep(analysis, "output_tokens_per_s"),
        sweep(analysis, "tpot_ms"),
        *(
            sweep(analysis, metric, "request_rate")
            for metric in ("output_tokens_per_s", "tpot_ms", "ttft_ms")
        ),
    ]
    models = {model.configuration: model for model in analysis.step_model}
    made += [
        step_time(name, models.get(name), analysis.floor, index)
        for index, name in enumerate(_with_steps(analysis))
    ]
    made += [
        token_stack(name, analysis.stacks, index)
        for index, name in enumerate(
            dict.fromkeys(stack.configuration for stack in analysis.stacks)
        )
    ]
    made += [telemetry(run, cell, index) for index, cell in enumerate(run.cells)]
    return tuple(figure for figure in made if figure is not None)


def _with_steps(analysis: Analysis) -> tuple[str, ...]:
    """Return the configurations that have a step model or a floor."""
    names = [model.configuration for model in analysis.step_model]
    names += [point.configuration for point in analysis.floor]
    return tuple(dict.fromkeys(names))


@cache
def css() -> str:
    """Return the style sheet of every page."""
    return (
        resources.files("stepscope.report")
        .joinpath("templates/page.css")
        .read_text(encoding="utf-8")
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("stepscope.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
