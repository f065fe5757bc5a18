"""What the run has already done, so that nobody is told to do it again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.steplines import FLAG, logged_steps
from stepscope.analysis.across.traces import is_step_of
from stepscope.analysis.degrees import flag_of, told_degrees
from stepscope.analysis.records import Analysis
from stepscope.board.view import has_gpu
from stepscope.run.run import Launch, Run

#: Engines by whether they can be told to take a timeline or to log iterations.
TRACES = ("vllm", "sglang")
DETAILS = ("vllm",)
#: The flag that runs without graphs, by engine.
EAGER = {"vllm": "enforce-eager", "sglang": "disable-cuda-graph"}
#: Engines whose compute threads are a flag, and how many they have without it.
THREADS = {"embedded": 1}
_FRONTENDS = "--api-server-count"
BOOTS = ("vllm", "sglang", "llamacpp", "embedded")


@dataclass(frozen=True, slots=True)
class History:
    """What was done, and what this kind of run could do.

    Attributes:
        ours: stepscope measured it; otherwise it was imported.
        gpu: Whether GPUs take part; None where nothing says so.
        engine: As the recipe would name it; ``url`` where it boots nothing.
        configurations: The baseline first.
        sizes: Concurrencies that were measured, ascending.
        repeats: Sound cells by configuration and concurrency.
        n_launches: Starts of the baseline that became ready.
        blocks: Warm-up blocks of a launch.
        waves: Waves of a cell, the median.
        details: Iterations were logged.
        eager: A configuration without graphs took part.
        pinned: Configurations differ in their processors.
        counters: GPM counters were sampled.
        traced: Concurrencies with a timeline.
        n_cpus: Of the machine.
        n_threads: Compute threads of the baseline; None: not a flag of the engine.
        fewer_threads: Configurations differ in their threads.
        frontends: A number of API servers was given.
        n_frontends: API servers of the baseline: as given, else one a data-parallel
            rank.
        step_lines: The log of some launch holds lines of single steps.
    """

    ours: bool
    gpu: bool | None
    engine: str
    configurations: tuple[str, ...]
    sizes: tuple[int, ...]
    repeats: dict[tuple[str, int], int]
    n_launches: int
    blocks: int
    waves: int
    details: bool
    eager: bool
    pinned: bool
    counters: bool
    traced: frozenset[int]
    n_cpus: int | None
    n_threads: int | None = None
    fewer_threads: bool = False
    frontends: bool = False
    n_frontends: int = 1
    step_lines: bool = False


def history_of(run: Run, analysis: Analysis) -> History:
    """Return what a run has done."""
    measured = [c for c in analysis.cells if not c.warm_up and c.concurrency]
    names = [x.configuration for x in run.launches]
    names += [c.configuration for c in analysis.cells]
    configurations = tuple(dict.fromkeys(names))
    base = configurations[0] if configurations else "baseline"
    own = [c for c in measured if c.configuration == base]
    waves = [c.waves for c in measured if c.waves]
    blocks = Counter(c.launch for c in analysis.cells if c.warm_up)
    engine = run.engine if run.engine in BOOTS else "url"
    commands = [x.command for x in run.launches]
    if engine != "embedded" and not any(commands):
        engine = "url"
    threads = [_threads(c, THREADS[engine]) for c in commands if engine in THREADS]
    return History(
        ours=run.recipe_text is not None,
        gpu=has_gpu(run),
        engine=engine,
        configurations=configurations,
        sizes=tuple(sorted({c.concurrency or 0 for c in measured})),
        repeats=dict(
            Counter((c.configuration, c.concurrency or 0) for c in measured if c.valid)
        ),
        n_launches=len({c.launch for c in own}),
        blocks=max(blocks.values(), default=0),
        waves=max(round(float(np.median(waves))), 1) if waves else 2,
        details=_details(run),
        eager=any(f"--{EAGER.get(run.engine)}" in command for command in commands),
        pinned=len({x.cpus for x in run.launches}) > 1,
        counters=any(
            c.telemetry is not None and c.telemetry.sm_active_pct is not None
            for c in analysis.cells
        ),
        traced=frozenset(t.concurrency for t in run.traces if t.concurrency is not None)
        - _of_another_step(analysis),
        n_cpus=run.machine.n_cpus,
        n_threads=threads[0] if threads else None,
        fewer_threads=len(set(threads)) > 1,
        frontends=any(_FRONTENDS in command for command in commands),
        n_frontends=_n_frontends(run.launches[0]) if run.launches else 1,
        step_lines=any(logged_steps(launch) for launch in run.launches),
    )


def _n_frontends(launch: Launch) -> int:
    """Return the API servers of a launch.

    Source: vLLM 0.14 to 0.33 start as many as data-parallel ranks, if nobody says how
        many.
    """
    given = _number_after(_FRONTENDS, launch.command)
    return told_degrees(launch).get("dp", 1) if given is None else given


def _of_another_step(analysis: Analysis) -> frozenset[int]:
    """Return the concurrencies at which some cell's step is that of no timeline."""
    names = {f.cell for f in analysis.findings if f.code == "trace-of-another-step"}
    return frozenset(
        c.concurrency or 0
        for c in analysis.cells
        if c.name in names
        and not any(
            t.usable
            and (t.configuration, t.concurrency) == (c.configuration, c.concurrency)
            and is_step_of(t, c)
            for t in analysis.traced
        )
    )


def _threads(command: Sequence[str], usual: int) -> int:
    """Return the compute threads that a command asks for."""
    given = _number_after("--threads", command)
    return usual if given is None else given


def _number_after(flag: str, command: Sequence[str]) -> int | None:
    value = flag_of(command, (flag,))
    return int(value) if value is not None and value.isdigit() else None


def _details(run: Run) -> bool:
    """Whether iterations were logged: they are there, or the flag was given."""
    return any(
        FLAG in launch.command or logged_steps(launch) for launch in run.launches
    )
