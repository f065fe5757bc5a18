"""launch, graph-launch, kernel-gaps: what only a kernel timeline can price.

That a decode step is one graph replay does not rule out launching: the graph's launch
call has a price of its own, about a microsecond a node, and a busy GPU can hide gaps.
"""

from collections.abc import Callable

from stepscope.board.hypotheses.absent import NO_GPU
from stepscope.board.opinion import (
    AT_LEAST_PCT,
    AT_MOST_PCT,
    Hypothesis,
    Opinion,
    Rule,
    seen,
)
from stepscope.board.timelines import Part, idle_opinion
from stepscope.board.view import CellView

_CAPTURE = (
    "A kernel timeline: capture a few decode steps at this concurrency"
    ' (capture = ["trace"] in the recipe; one that was taken by hand is read by'
    " stepscope trace FILE)"
)
_THRESHOLD = (
    f"supported: its own idle time is at least {AT_LEAST_PCT:.0f} % of the traced step,"
    " and that is within 15 % of the untraced one; ruled out: with all that may be its,"
    f" below {AT_MOST_PCT:.0f} % of the untraced step, and what is surely its below"
    " 10 %"
)
_BLIND = (
    "host work that overlaps the device; between traced concurrencies: a step that is"
    " unlike both"
)

_LAUNCH = Part(
    quantity="idle while single kernels are launched",
    causes=("launch_call",),
    perhaps=("host_not_launching_yet", "no_launch_record"),
    headline="launching kernels one by one",
)
_GRAPH_LAUNCH = Part(
    quantity="idle while a graph is launched",
    causes=("graph_launch_call",),
    perhaps=("after_launch_returned", "no_launch_record"),
    headline="the launch call of the graph",
)
_GAPS = Part(
    quantity="idle between the nodes of a graph",
    causes=("inside_graph",),
    perhaps=("after_launch_returned", "no_launch_record"),
    headline="gaps between kernels",
)


def timeline_wanted(view: CellView) -> str:
    """Say which timeline would decide: one that the run holds, or a new one."""
    concurrency = view.result.concurrency if view.result is not None else None
    others = {
        launch.name
        for launch in view.run.launches
        if launch.configuration != view.configuration
    }
    for trace in view.run.traces:
        own = trace.launch not in others
        if own and concurrency is not None and trace.concurrency == concurrency:
            return (
                "A kernel timeline: the run holds one, and it does not decide;"
                f" stepscope trace {trace.path}"
            )
    return _CAPTURE


def idle_rule(part: Part) -> Rule:
    """Return the rule that prices a cause of idle time by timelines."""
    return Rule(
        name="timeline",
        measurement="step budget of a kernel timeline beside the untraced step",
        threshold=_THRESHOLD,
        blind=_BLIND,
        test=lambda view: idle_opinion(view, part),
    )


def _resolved(view: CellView, name: str) -> str | None:
    log = view.launch.log if view.launch is not None else None
    value = log.resolved.get(name) if log is not None else None
    return None if value is None else str(value)


def _graph_mode(view: CellView) -> Opinion | None:
    mode = _resolved(view, "cudagraph_mode")
    if mode is None:
        return None
    why = (
        "what the server may replay; whether this batch was replayed, and what its"
        " launch call costs, only a timeline shows"
    )
    item = seen(view, "graph mode in the log", mode, "", why)
    return Opinion(status="standing", evidence=(item,))


def _eager(view: CellView) -> Opinion | None:
    if _resolved(view, "cudagraph_mode") != "NONE":
        return None
    why = "no graph is ever launched: every kernel is launched by itself"
    item = seen(view, "graph mode in the log", "NONE", "", why)
    if any(
        step.configuration == view.configuration
        and step.step_source == "graph-launches"
        for step in view.analysis.traced
    ):
        # The line is from before an override, or the timeline of another server.
        return Opinion(status="standing", evidence=(item,), contradicts=True)
    return Opinion(status="ruled-out", share_pct=0.0, evidence=(item,))


def _mode_rule(test: Callable[[CellView], Opinion | None]) -> Rule:
    return Rule(
        name="graph-mode",
        measurement="graph mode resolved in the server log",
        threshold="bears on it; decides nothing",
        blind="which batches were replayed, and the price of a replay",
        test=test,
    )


_EAGER = Rule(
    name="eager",
    measurement="graph mode resolved in the server log",
    threshold="ruled out: no graphs are used, and no timeline shows one",
    blind="a log line from before an override",
    test=_eager,
    of_cell=False,
)


def _needs_timeline(view: CellView) -> str:
    return f"{timeline_wanted(view)}."


def _timeline_or_eager(view: CellView) -> str:
    if any(pair.change.id == "graphs" for pair in view.pairs):
        return f"{timeline_wanted(view)}."
    return (
        f"{timeline_wanted(view)}; or the same cell with and without"
        " graphs (--enforce-eager) in one session (stepscope compare)."
    )


LAUNCH = Hypothesis(
    id="launch",
    claim="The host launches kernels one by one more slowly than the GPU runs them.",
    rules=(NO_GPU, idle_rule(_LAUNCH), _mode_rule(_graph_mode)),
    would_decide=_timeline_or_eager,
)
GRAPH_LAUNCH = Hypothesis(
    id="graph-launch",
    claim="The call that launches a whole graph holds up the step.",
    rules=(
        NO_GPU,
        _EAGER,
        idle_rule(_GRAPH_LAUNCH),
        _mode_rule(lambda view: None if _eager(view) else _graph_mode(view)),
    ),
    would_decide=_needs_timeline,
)
KERNEL_GAPS = Hypothesis(
    id="kernel-gaps",
    claim="The GPU idles between the kernels of one step.",
    rules=(NO_GPU, idle_rule(_GAPS)),
    would_decide=_needs_timeline,
)
