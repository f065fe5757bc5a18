"""An ``import.toml`` and what it names to a run with one launch."""

from pathlib import Path

import msgspec

from stepscope.errors import RecipeError
from stepscope.importers.files import read_text
from stepscope.importers.foreign import Foreign
from stepscope.importers.import_cells import cells_of, with_metrics
from stepscope.importers.launches import (
    command_of,
    read_log,
    served_model,
    with_log,
)
from stepscope.importers.reading import Reading
from stepscope.importers.spec import TraceTable, read_spec
from stepscope.importers.telemetry import read_telemetry, samples_on_unix
from stepscope.recipe.records import Cost, Layout
from stepscope.run.run import Cell, Launch, Run, Timeline, TraceRef
from stepscope.run.samples import Samples


def read_import(path: Path) -> Foreign:
    """Read an ``import.toml``.

    Raises:
        RecipeError: A key is wrong, or a file that it names does not exist.
        ArchiveError: It, or a file that it names, is damaged.
    """
    spec = read_spec(path)
    if not (spec.cell or spec.log or spec.trace or spec.include):
        raise RecipeError(
            str(path),
            "names neither a [[cell]] nor a [log] nor a [[trace]]",
            "expected one of them",
            "See docs/run-format.md",
        )
    reading = Reading(path, spec, [path], [])
    launch = _launch(reading)
    bodies: dict[tuple[str, str], Path] = {}
    cells = cells_of(reading, launch.name)
    cells = tuple(
        with_metrics(reading, number, cell, bodies) for number, cell in enumerate(cells)
    )
    samples = _samples(reading, cells)
    logs: dict[str, Path] = {}
    launch = msgspec.structs.replace(launch, ready=any(_served(c) for c in cells))
    if spec.log is not None:
        logs[launch.name] = reading.file(spec.log.file, "log.file")
        log = read_log(logs[launch.name], spec.run.engine)
        launch, found = with_log(launch, log, samples, cells)
        reading.findings += found
    return Foreign(
        run=_run(reading, launch, cells, samples),
        root=path.parent,
        files=tuple(dict.fromkeys(reading.files)),
        logs=logs,
        bodies=bodies,
    )


def _served(cell: Cell) -> bool:
    done = cell.summary.n_completed if cell.summary is not None else 0
    return done > 0 or any(request.ok for request in cell.requests)


def _launch(reading: Reading) -> Launch:
    spec, path = reading.spec, reading.path
    names = list(dict.fromkeys(cell.configuration for cell in spec.cell))
    if len(names) > 1:
        raise RecipeError(
            f"{path}: cell.configuration",
            f"names {len(names)} configurations ({', '.join(names)})",
            "one import.toml is one server start",
            "Write one for each and import them together",
        )
    folder = path.resolve().parent.name or "imported"
    configuration = names[0] if names else (spec.run.name or folder)
    key = f"{path}: run.server_command"
    command, environment, file = command_of(spec.run.server_command, path.parent, key)
    if file is not None:
        reading.files.append(file)
    return Launch(
        name=f"{configuration}-l0",
        configuration=configuration,
        session=spec.run.session or "s0",
        command=command,
        environment=environment,
    )


def _samples(reading: Reading, cells: tuple[Cell, ...]) -> Samples:
    table = reading.spec.telemetry
    if table is None:
        return Samples()
    if table.format not in ("csv", "nvidia-smi"):
        raise RecipeError(
            f"{reading.path}: telemetry.format", repr(table.format), "csv or nvidia-smi"
        )
    read = read_telemetry(reading.file(table.file, "telemetry.file"))
    samples, found = samples_on_unix(read, cells, table.utc_offset_minutes)
    reading.findings += found
    return samples


def _run(
    reading: Reading, launch: Launch, cells: tuple[Cell, ...], samples: Samples
) -> Run:
    spec = reading.spec.run
    config = None
    if spec.model_config is not None:
        config = read_text(reading.file(spec.model_config, "run.model_config"))
    ranks = spec.tensor_parallel * spec.data_parallel
    starts = [cell.started_at_ns for cell in cells if cell.started_at_ns is not None]
    on_unix = bool(starts or samples.gpu or samples.host)
    gpus = len({sample.gpu for sample in samples.gpu})
    n_gpus = spec.n_gpus or gpus or None
    price = spec.usd_per_gpu_hour
    version = launch.log.version if launch.log is not None else None
    return Run(
        id=spec.name or reading.path.resolve().parent.name,
        engine=spec.engine,
        engine_version=spec.engine_version or version,
        timeline=Timeline(kind="unix" if on_unix else "monotonic"),
        created_unix_ns=min(starts, default=None),
        gpu=spec.gpu,
        n_gpus=n_gpus,
        layout=Layout(
            tp=spec.tensor_parallel,
            dp=spec.data_parallel,
            pp=spec.pipeline_parallel,
            ep=ranks if spec.expert_parallel else 1,
        ),
        model=spec.model or served_model(launch.command),
        model_config=config,
        cost=None
        if price is None
        else Cost(usd_per_gpu_hour=price, n_gpus=n_gpus or 1),
        launches=(launch,),
        cells=cells,
        samples=samples,
        traces=tuple(
            _trace(reading, number, table, launch.name)
            for number, table in enumerate(reading.spec.trace)
        ),
        findings=tuple(reading.findings),
        claims=reading.spec.claim,
    )


def _trace(reading: Reading, number: int, table: TraceTable, launch: str) -> TraceRef:
    return TraceRef(
        path=str(reading.file(table.file, f"trace[{number}].file").resolve()),
        concurrency=table.concurrency,
        rank=table.rank,
        cell=table.cell,
        launch=launch,
    )
