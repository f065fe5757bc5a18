"""What each experiment that `explain` ran did to the board: before and after.

Nothing of it is kept in the archive: the run without an experiment's launches and those
after them is judged again, so that a better rule improves old runs as well.
"""

from collections.abc import Callable, Sequence

import msgspec

from stepscope.analysis.analyze import analyze
from stepscope.analysis.records import Analysis
from stepscope.board.claims import span
from stepscope.board.records import BoardEntry, Chosen, ExperimentResult, Told, told
from stepscope.recipe.records import Experiment
from stepscope.run.run import Launch, Run
from stepscope.units import seconds

Entries = Callable[[Run, Analysis], Sequence[BoardEntry]]


def explained(
    run: Run,
    found: Sequence[ExperimentResult],
    now: Sequence[BoardEntry],
    entries_of: Entries,
) -> tuple[ExperimentResult, ...]:
    """Return the experiments, those that `explain` ran with what came of them.

    Args:
        run: The run.
        found: Its pairs.
        now: The board with all of it.
        entries_of: Judges a run.
    """
    asked: dict[int, list[Launch]] = {}
    for launch in run.launches:
        if launch.experiment is not None:
            asked.setdefault(launch.experiment.number, []).append(launch)
    numbers = sorted(asked)
    boards = [_without(run, n, entries_of) for n in numbers]
    boards.append(tuple(now))
    out = list(found)
    for i, n in enumerate(numbers):
        chosen = _chosen(run, asked[n], boards[i], boards[i + 1])
        _attach(out, asked[n], chosen)
    return tuple(out)


def _without(run: Run, number: int, entries_of: Entries) -> tuple[BoardEntry, ...]:
    """Return the board as it was before an experiment."""
    gone = {
        x.name
        for x in run.launches
        if x.experiment is not None and x.experiment.number >= number
    }
    cells = {c.name for c in run.cells if c.launch in gone}
    then = msgspec.structs.replace(
        run,
        launches=tuple(x for x in run.launches if x.name not in gone),
        cells=tuple(c for c in run.cells if c.launch not in gone),
        traces=tuple(t for t in run.traces if t.launch not in gone),
        step_budgets=tuple(
            b for b in run.step_budgets if not {b.launch, b.cell} & (gone | cells)
        ),
        findings=tuple(
            f for f in run.findings if f.launch not in gone and f.cell not in cells
        ),
    )
    return tuple(entries_of(then, analyze(then)))


def _chosen(
    run: Run,
    launches: Sequence[Launch],
    before: Sequence[BoardEntry],
    after: Sequence[BoardEntry],
) -> Chosen:
    why = launches[0].experiment
    assert why is not None
    was, became = _of(before, why), _of(after, why)
    names = {x.name for x in launches}
    done = any(c.launch in names and c.status == "done" for c in run.cells)
    took = _minutes(launches)
    price = None if run.cost is None else run.cost.usd_per_hour
    return Chosen(
        number=why.number,
        title=why.title,
        launches=tuple(x.name for x in launches),
        splits=why.splits,
        before=was,
        after=became,
        eliminated=_new(was, became, "ruled-out"),
        supported=_new(was, became, "supported"),
        minutes=took,
        usd=None if took is None or not price else price * took / 60,
        failure=None if done else _failure(launches),
    )


def _of(entries: Sequence[BoardEntry], why: Experiment) -> tuple[Told, ...]:
    return tuple(
        told(e)
        for e in entries
        if e.hypothesis in why.splits and e.scope.configuration == why.against
    )


def _new(was: Sequence[Told], became: Sequence[Told], status: str) -> tuple[str, ...]:
    """Return what has a status that it did not have before, with where."""
    return tuple(
        f"{t.hypothesis} {span(t.concurrency_from, t.concurrency_to)}"
        for t in became
        if t.status == status and t not in was
    )


def _minutes(launches: Sequence[Launch]) -> float | None:
    spans = [
        (x.stopped_at_ns - x.started_at_ns)
        for x in launches
        if x.started_at_ns is not None and x.stopped_at_ns is not None
    ]
    return seconds(sum(spans)) / 60 if spans else None


def _failure(launches: Sequence[Launch]) -> str:
    told = [x.failure for x in launches if x.failure]
    return told[-1] if told else "none of its cells was measured to the end"


def _attach(
    out: list[ExperimentResult], launches: Sequence[Launch], chosen: Chosen
) -> None:
    """Put an outcome beside the pair that the launches made; alone where none is."""
    why = launches[0].experiment
    assert why is not None
    mine = {x.configuration for x in launches}
    for i, one in enumerate(out):
        sides = {one.light, one.heavy}
        if one.change == why.change and sides == mine | {why.against}:
            out[i] = msgspec.structs.replace(one, chosen=chosen)
            return
    out.append(
        ExperimentResult(
            change=why.change,
            title=why.title,
            light=why.against,
            heavy=None,
            session=launches[0].session,
            moved=(),
            said=(),
            moves="",
            cannot_see="",
            chosen=chosen,
        )
    )
