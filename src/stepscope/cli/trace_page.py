"""The page of ``stepscope trace``, and the steps on a run's page."""

from pathlib import Path

from stepscope.errors import StepscopeError
from stepscope.report.trace_figures import Traced
from stepscope.report.trace_page import trace_html
from stepscope.run.run import Run
from stepscope.timeline.cache import cache_folder
from stepscope.timeline.columns import Trace
from stepscope.timeline.device import read_device
from stepscope.timeline.load import load_traces
from stepscope.timeline.picture import StepPicture, step_picture
from stepscope.timeline.records import TraceResult

#: Ranks look alike; more pictures than this make a page that nobody reads.
_MOST_PICTURES = 8


def page_of(results: list[tuple[str, list[Trace], TraceResult]]) -> str:
    """Return the page of captures: (label, traces, their figures)."""
    return trace_html(
        [
            Traced(
                label=label,
                result=result,
                pictures=tuple(
                    step_picture(device)
                    for device in map(read_device, traces[:_MOST_PICTURES])
                    if len(device.start)
                ),
            )
            for label, traces, result in results
        ]
    )


#: The same on a run's page, where they stand beside everything else.
_MOST_CAPTURES, _MOST_RANKS = 6, 2


def pictures_of(run: Run) -> list[tuple[str, StepPicture]]:
    """Return a step of each of the run's captures: (what it is called, the step).

    A timeline that can not be read is a finding of the run already.
    """
    made = []
    for budget in run.step_budgets[:_MOST_CAPTURES]:
        name = budget.cell or budget.launch or Path(budget.paths[0]).name
        try:
            paths = [Path(path) for path in budget.paths[:_MOST_RANKS]]
            traces = load_traces(paths, cache=cache_folder())
        except (StepscopeError, OSError):
            continue
        devices = [read_device(trace) for trace in traces[:_MOST_RANKS]]
        made += [(name, step_picture(d)) for d in devices if len(d.start)]
    return made
