"""A cell whose requests are there and whose record is not: killed before it was put."""

import re

from stepscope.findings import Finding
from stepscope.recipe.records import Capture, Workload
from stepscope.run.requests import Request
from stepscope.run.run import Cell, Launch

#: How recipe expansion names cells: ``<configuration>-c<concurrency>-r<repeat>``.
_NAME = re.compile(r"(?P<configuration>.+)-c(?P<concurrency>\d+)-r(?P<repeat>\d+)")
#: The same of an open loop: by its rate, or of one that has none.
_OPEN = re.compile(
    r"(?P<configuration>.+)-(?:q(?P<rate>\d[\d.]*(?:e[+-]?\d+)?)|ramp|replay)"
    r"-r(?P<repeat>\d+)"
)
_TRACE = re.compile(
    r"(?P<configuration>.+)-c(?P<concurrency>\d+)-(?P<kind>trace|untraced)"
)
_WARM_UP = re.compile(r"(?P<configuration>.+)-warm\d+")
_CAPTURES: dict[str, Capture] = {"trace": "traced", "untraced": "untraced"}


def stray_cell(
    name: str, requests: tuple[Request, ...], launches: tuple[Launch, ...]
) -> tuple[Cell, Finding]:
    """Return an interrupted cell with what its name says, and the finding for it."""
    closed, warm_up = _NAME.fullmatch(name), _WARM_UP.fullmatch(name)
    captured, opened = _TRACE.fullmatch(name), _OPEN.fullmatch(name)
    measured = closed or opened
    hit = measured or warm_up or captured
    point = closed or captured
    rate = opened["rate"] if opened else None
    configuration = hit["configuration"] if hit else name
    of_it = [launch for launch in launches if launch.configuration == configuration]
    cell = Cell(
        name=name,
        configuration=configuration,
        launch=of_it[-1].name if of_it else f"{configuration}-l0",
        workload=Workload(
            concurrency=int(point["concurrency"]) if point else None,
            request_rate=float(rate) if rate else None,
            n_prompts=len(requests),
        ),
        repeat=int(measured["repeat"]) if measured else 0,
        warm_up=measured is None and hit is not None,
        capture=_CAPTURES[captured["kind"]] if captured else None,
        status="interrupted",
        requests=requests,
    )
    finding = Finding(
        code="interrupted-cell",
        severity="warning",
        message=f"{len(requests)} requests were kept, but the run was killed before"
        " what was asked of this cell was written down; its name was read instead.",
        hint="Resume the run.",
        cell=name,
    )
    return cell, finding
