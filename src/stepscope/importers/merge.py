"""Several foreign results to one run: a launch each, every name once."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from stepscope.errors import RecipeError
from stepscope.findings import Finding
from stepscope.importers.foreign import Foreign
from stepscope.run.run import Cell, Launch, Run, Timeline, TraceRef
from stepscope.run.samples import Samples

T = TypeVar("T")
Row = TypeVar("Row", Finding, TraceRef)

_SAME: dict[str, Callable[[Run], object]] = {
    "engine": lambda run: run.engine,
    "gpu": lambda run: run.gpu,
    "model_config": lambda run: run.model_config,
}


def merged(foreigns: Sequence[Foreign]) -> Foreign:
    """Return one run of all.

    A launch or cell whose name is taken gets a number behind it. Nothing says that
    two results were taken on one host and container, so each is a session of its own
    unless its ``import.toml`` names one.

    Raises:
        RecipeError: They are of different engines, models, GPUs or layouts.
    """
    runs = [foreign.run for foreign in foreigns]
    for what, of in _SAME.items():
        _agree(what, [(run.id, of(run)) for run in runs])
    parts = _renamed(foreigns)
    first = runs[0]
    unix = any(run.timeline.kind == "unix" for run in runs)
    version = {run.engine_version for run in runs if run.engine_version}
    run = msgspec.structs.replace(
        first,
        id="+".join(run.id for run in runs),
        engine_version=version.pop() if len(version) == 1 else None,
        timeline=Timeline(kind="unix" if unix else "monotonic"),
        created_unix_ns=min(
            (r.created_unix_ns for r in runs if r.created_unix_ns is not None),
            default=None,
        ),
        gpu=_known([r.gpu for r in runs]),
        n_gpus=_known([r.n_gpus for r in runs]),
        model=_known([r.model for r in runs]),
        model_config=_known([r.model_config for r in runs]),
        cost=_known([r.cost for r in runs]),
        launches=tuple(x for part in parts for x in part.run.launches),
        cells=tuple(x for part in parts for x in part.run.cells),
        samples=_all_samples([r.samples for r in runs]),
        traces=tuple(x for part in parts for x in part.run.traces),
        findings=tuple(x for part in parts for x in part.run.findings),
        claims=tuple(x for part in parts for x in part.run.claims),
    )
    return Foreign(
        run=run,
        root=foreigns[0].root,
        files=tuple(dict.fromkeys(f for part in parts for f in part.files)),
        logs={k: v for part in parts for k, v in part.logs.items()},
        bodies={k: v for part in parts for k, v in part.bodies.items()},
    )


def _agree(what: str, values: list[tuple[str, object]]) -> None:
    known = {value for _, value in values if value is not None}
    if len(known) > 1:
        raise RecipeError(
            "import",
            f"the paths differ in {what}",
            "one run has one engine, model and GPU",
            "Import them one by one and compare the runs",
        )


def _known(values: list[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _renamed(foreigns: Sequence[Foreign]) -> list[Foreign]:
    launches: set[str] = set()
    cells: set[str] = set()
    parts = []
    for number, foreign in enumerate(foreigns):
        launch_names = {
            launch.name: _free(launch.name, launches, foreign.run.id)
            for launch in foreign.run.launches
        }
        cell_names = {
            cell.name: _free(cell.name, cells, cell.configuration)
            for cell in foreign.run.cells
        }
        parts.append(_with_names(foreign, number, launch_names, cell_names))
    return parts


def _free(name: str, taken: set[str], prefix: str) -> str:
    """Return ``name``, or a variant of it that is not taken, and take it."""
    candidate, number = name, 1
    while candidate in taken:
        candidate = f"{prefix}-{name}" if number == 1 else f"{prefix}-{name}-{number}"
        number += 1
    taken.add(candidate)
    return candidate


def _with_names(
    foreign: Foreign, number: int, launches: dict[str, str], cells: dict[str, str]
) -> Foreign:
    def launch(old: Launch) -> Launch:
        session = f"s{number}" if old.session == "s0" else old.session
        return msgspec.structs.replace(old, name=launches[old.name], session=session)

    def cell(old: Cell) -> Cell:
        return msgspec.structs.replace(
            old, name=cells[old.name], launch=launches.get(old.launch, old.launch)
        )

    def about(old: Row) -> Row:
        return msgspec.structs.replace(
            old,
            cell=cells.get(old.cell or "", old.cell),
            launch=launches.get(old.launch or "", old.launch),
        )

    run = foreign.run
    return Foreign(
        run=msgspec.structs.replace(
            run,
            launches=tuple(map(launch, run.launches)),
            cells=tuple(map(cell, run.cells)),
            traces=tuple(map(about, run.traces)),
            findings=tuple(map(about, run.findings)),
        ),
        root=foreign.root,
        files=foreign.files,
        logs={launches[name]: path for name, path in foreign.logs.items()},
        bodies={(cells[n], side): path for (n, side), path in foreign.bodies.items()},
    )


def _all_samples(many: list[Samples]) -> Samples:
    return Samples(
        gpu=tuple(sorted((s for m in many for s in m.gpu), key=lambda s: s.at_ns)),
        host=tuple(sorted((s for m in many for s in m.host), key=lambda s: s.at_ns)),
    )
