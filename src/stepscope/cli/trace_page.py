"""The page of ``stepscope trace``."""

from stepscope.report.trace_figures import Traced
from stepscope.report.trace_page import trace_html
from stepscope.timeline.columns import Trace
from stepscope.timeline.device import read_device
from stepscope.timeline.picture import step_picture
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
