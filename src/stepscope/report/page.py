"""The page: one HTML file, readable offline, without any script."""

from collections.abc import Sequence

from markupsafe import Markup

from stepscope.analysis.floor import refuted
from stepscope.analysis.records import Analysis
from stepscope.board.records import Board
from stepscope.report import content, inert
from stepscope.report.boots import boots, startup_lines
from stepscope.report.cells import shown
from stepscope.report.changes import changes
from stepscope.report.experiments import experiment_rows
from stepscope.report.figure import Figure
from stepscope.report.grid import grids, tally
from stepscope.report.ledger import memory_ledger
from stepscope.report.methods import METHODS, NUMBER, notes_of
from stepscope.report.nexts import what_next
from stepscope.report.sessions import session_lanes
from stepscope.report.stack import token_stack
from stepscope.report.steps import step_time
from stepscope.report.svg import render
from stepscope.report.sweep import sweep
from stepscope.report.template import css, template
from stepscope.report.tested import tested
from stepscope.report.timeline import figure_name, telemetry
from stepscope.report.trace_figures import run_figure
from stepscope.report.trace_step import step_note, step_svg, step_title
from stepscope.report.words import WORDS
from stepscope.run.run import Run
from stepscope.timeline.picture import StepPicture


def html(
    run: Run,
    analysis: Analysis,
    board: Board,
    *,
    home: str | None = "",
    pictures: Sequence[tuple[str, StepPicture]] = (),
) -> str:
    """Return the whole page.

    Nothing in it is fetched and nothing in it runs: a policy in its head forbids
    both, whatever a model's name or a log line says. All text is escaped.

    Args:
        run: The run.
        analysis: Its figures.
        board: Its verdict.
        home: From the page's folder to the run's directory, as a relative link; empty
            where the page lies in it, None where raw files can not be linked.
        pictures: Traced steps to draw: (what it is called, the step).

    Returns:
        HTML, UTF-8 when written.
    """
    made = figures(run, analysis)
    # Our own SVG: rewritten from an allow list by svg.inline, or written by hand
    # with all text escaped.
    drawn = {f.name: Markup(render(f)) for f in made}  # noqa: S704
    steps = _drawn_steps(pictures)
    drawn.update({figure.name: svg for figure, svg in steps})

    def names_of(heads: tuple[str, ...]) -> list[str]:
        return [name for name in drawn if name.startswith(heads)]

    columns = content.columns_of(analysis.cells)
    return template("page.html.j2").render(
        run=run,
        analysis=analysis,
        board=board,
        figures={f.name: f for f in (*made, *(figure for figure, _ in steps))},
        drawn=drawn,
        names_of=names_of,
        columns=columns,
        rows=content.summary_rows(analysis.cells, columns),
        boots=boots(run, analysis),
        startup=startup_lines(analysis),
        findings=content.findings(run, analysis, board),
        details=content.cell_details(run, analysis),
        tested=tested(analysis),
        next=what_next(run, analysis, board),
        words=WORDS,
        methods=METHODS,
        **_functions(run, analysis, board, home),
    )


def _functions(
    run: Run, analysis: Analysis, board: Board, home: str | None
) -> dict[str, object]:
    """Return what the template calls, and what it looks up by name."""
    cells = (*(c.name for c in run.cells), *(c.name for c in analysis.cells))
    cell_ids = inert.unique_ids("cell", tuple(dict.fromkeys(cells)))
    launches = (*(x.name for x in run.launches), *(b.launch for b in analysis.boot))
    launch_ids = inert.unique_ids("launch", tuple(dict.fromkeys(launches)))
    shown_launches = {b.launch: launch_ids[b.launch] for b in analysis.boot}
    links = inert.Links(
        shown_launches | {c.name: cell_ids[c.name] for c in analysis.cells},
        content.points(analysis),
    )
    return {
        "told": links.told,
        "refuted": refuted,
        "told_at": lambda configuration, concurrency: links.link(
            content.points(analysis).get((configuration, concurrency), ""),
            shown(concurrency),
        ),
        "link": links.link,
        "whole": inert.whole,
        "cell_ids": cell_ids,
        "launch_ids": launch_ids,
        "by_cell": {c.name: figure_name(c, i) for i, c in enumerate(run.cells)},
        "path_link": lambda path: content.path_link(path, home),
        "trace_file": content.trace_file,
        "board_rows": content.board_rows(board),
        "experiments": experiment_rows(board),
        "scope": content.scope,
        "evidence": content.evidence,
        "shown_entries": lambda entries: [
            e for e in entries if not content.only_void(e, analysis)
        ],
        "grids": grids(board, analysis),
        "tally": tally,
        "void_points": content.void_points(analysis),
        "share": content.share,
        "shown": shown,
        "machine": content.machine(run),
        "provenance": content.provenance(run),
        "command_line": content.command_line,
        "environment": content.environment,
        "notes_of": notes_of,
        "number_of": NUMBER,
        "css": css(),
    }


def _drawn_steps(
    pictures: Sequence[tuple[str, StepPicture]],
) -> list[tuple[Figure, Markup]]:
    drawn = []
    for index, (label, picture) in enumerate(pictures):
        name = f"trace-step-{index:02d}"
        title = f"{label}. {step_title(picture)}"
        figure = Figure(name, title, "", {}, step_note(picture))
        drawn.append((figure, Markup(step_svg(picture, name))))  # noqa: S704
    return drawn


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
    stacked = dict.fromkeys(stack.configuration for stack in analysis.stacks)
    made += [
        token_stack(name, analysis.stacks, index) for index, name in enumerate(stacked)
    ]
    made += [
        step_time(name, models.get(name), analysis.floor, index)
        for index, name in enumerate(_with_steps(analysis))
    ]
    made += [run_figure(analysis.traced), memory_ledger(analysis.boot)]
    made += session_lanes(run, analysis)
    made += changes(analysis.comparisons, analysis.pooled)
    made += [telemetry(run, cell, index) for index, cell in enumerate(run.cells)]
    return tuple(figure for figure in made if figure is not None)


def _with_steps(analysis: Analysis) -> tuple[str, ...]:
    """Return the configurations that have a step model or a floor."""
    names = [model.configuration for model in analysis.step_model]
    names += [point.configuration for point in analysis.floor]
    return tuple(dict.fromkeys(names))
