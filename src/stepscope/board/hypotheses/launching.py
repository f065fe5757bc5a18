"""launch, graph-launch, kernel-gaps: what only a kernel timeline can price.

Until the run carries a timeline's budget these rules can rule a cause out where it
can not exist, and show what bears on it; they never support one. That a decode step
is one graph replay does not rule out launching: the graph's launch call has a price
of its own, about a microsecond a node, and a busy GPU can hide gaps.
"""

from stepscope.board.opinion import Hypothesis, Opinion, Rule, seen
from stepscope.board.view import CellView

_CAPTURE = (
    "A kernel timeline: capture a few decode steps at this concurrency (the server's"
    " torch profiler or nsys, switched on in mid-cell) and read it with stepscope trace"
    " FILE"
)


def _timeline(view: CellView) -> str:
    """Say which timeline would decide: one that the run holds, or a new one."""
    concurrency = view.result.concurrency if view.result is not None else None
    for trace in view.run.traces:
        if concurrency is not None and trace.concurrency == concurrency:
            return f"A kernel timeline: the run holds one; stepscope trace {trace.path}"
    return _CAPTURE


def no_gpu(view: CellView) -> Opinion | None:
    """Rule out what needs a GPU where there is none."""
    if view.has_gpu is not False:
        return None
    return Opinion(
        status="ruled-out",
        share_pct=0.0,
        evidence=(
            seen(
                view,
                "GPUs that take part",
                0.0,
                "",
                "not applicable: the model runs on the CPU",
            ),
        ),
    )


def _resolved(view: CellView, name: str) -> str | None:
    log = view.launch.log if view.launch is not None else None
    value = log.resolved.get(name) if log is not None else None
    return None if value is None else str(value)


def _graph_mode(view: CellView) -> Opinion | None:
    mode = _resolved(view, "cudagraph_mode")
    if mode is None:
        return None
    return Opinion(
        status="standing",
        evidence=(
            seen(
                view,
                "graph mode in the log",
                mode,
                "",
                "what the server may replay; whether this batch was replayed, and what"
                " its launch call costs, only a timeline shows",
            ),
        ),
    )


def _eager(view: CellView) -> Opinion | None:
    if _resolved(view, "cudagraph_mode") != "NONE":
        return None
    return Opinion(
        status="ruled-out",
        share_pct=0.0,
        evidence=(
            seen(
                view,
                "graph mode in the log",
                "NONE",
                "",
                "no graph is ever launched: every kernel is launched by itself",
            ),
        ),
    )


_NO_GPU = Rule(
    name="no-gpu",
    measurement="what the machine has",
    threshold="ruled out: no GPU takes part",
    blind="nothing",
    test=no_gpu,
    of_cell=False,
)
_MODE = Rule(
    name="graph-mode",
    measurement="graph mode resolved in the server log",
    threshold="bears on it; decides nothing",
    blind="which batches were replayed, and the price of a replay",
    test=_graph_mode,
    of_cell=False,
)


def _needs_timeline(view: CellView) -> str:
    return f"{_timeline(view)}."


LAUNCH = Hypothesis(
    id="launch",
    claim="The host launches kernels one by one more slowly than the GPU runs them.",
    rules=(_NO_GPU, _MODE),
    would_decide=lambda view: (
        f"{_timeline(view)}; or the same cell with and without"
        " graphs (--enforce-eager) in one session (stepscope compare)."
    ),
)
GRAPH_LAUNCH = Hypothesis(
    id="graph-launch",
    claim="The call that launches a whole graph holds up the step.",
    rules=(
        _NO_GPU,
        Rule(
            name="eager",
            measurement="graph mode resolved in the server log",
            threshold="ruled out: no graphs are used",
            blind="a log line from before an override",
            test=_eager,
            of_cell=False,
        ),
        Rule(
            name="graph-mode",
            measurement="graph mode resolved in the server log",
            threshold="bears on it; decides nothing",
            blind="which batches were replayed, and the price of a replay",
            test=lambda view: None if _eager(view) else _graph_mode(view),
            of_cell=False,
        ),
    ),
    would_decide=_needs_timeline,
)
KERNEL_GAPS = Hypothesis(
    id="kernel-gaps",
    claim="The GPU idles between the kernels of one step.",
    rules=(_NO_GPU,),
    would_decide=_needs_timeline,
)
