"""Kernel timelines as one page, and as a part of a run's page."""

from collections.abc import Sequence

from markupsafe import Markup

from stepscope.report.cells import shown
from stepscope.report.figure import Figure
from stepscope.report.svg import render
from stepscope.report.template import css, template
from stepscope.report.trace_figures import Traced, trace_figures
from stepscope.report.trace_step import step_note, step_svg, step_title

#: part of a step -> how the table calls it
PARTS = {
    "compute": "computation",
    "communication": "communication",
    "communication_transfer": "of it transfer",
    "communication_wait": "of it waiting for ranks",
    "memcpy": "copies",
    "idle": "idle",
}
CAUSES = {
    "inside_graph": "between nodes of a graph",
    "host_not_launching_yet": "host not launching yet",
    "graph_launch_call": "in the graph launch call",
    "launch_call": "in a launch call",
    "after_launch_returned": "after the launch returned",
    "no_launch_record": "no launch record",
}


def step_figures(traced: Sequence[Traced]) -> tuple[tuple[Figure, str], ...]:
    """Return every drawn step as (its title and note, its SVG), ready for a page."""
    made = []
    for i, one in enumerate(traced):
        for j, picture in enumerate(one.pictures):
            name = f"trace-step-{i:02d}-{j:02d}"
            title = f"{one.label}. {step_title(picture)}"
            figure = Figure(name, title, "", {}, step_note(picture))
            made.append((figure, step_svg(picture, name)))
    return tuple(made)


def trace_html(traced: Sequence[Traced], title: str = "Kernel timelines") -> str:
    """Return one self-contained page of captures; nothing is fetched, nothing runs.

    Args:
        traced: Captures in the order in which they are to be shown.
        title: Its heading.
    """
    figures = trace_figures(list(traced))
    # Our own SVG: from an allow list, or by hand with all text escaped.
    drawn = [(f, Markup(render(f))) for f in figures]  # noqa: S704
    steps = [(f, Markup(svg)) for f, svg in step_figures(traced)]  # noqa: S704
    return template("trace.html.j2").render(
        title=title,
        traced=traced,
        drawn=drawn,
        steps=steps,
        shown=shown,
        parts=PARTS,
        causes=CAUSES,
        css=css(),
    )
