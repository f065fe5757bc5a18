"""A server that was started and never measured: ``cmd.json`` and ``server.log``."""

from pathlib import Path

from stepscope.findings import Finding
from stepscope.importers.foreign import Foreign
from stepscope.importers.launches import (
    flag_value,
    read_command,
    read_log,
    served_model,
    with_log,
)
from stepscope.importers.telemetry import read_telemetry, samples_on_unix
from stepscope.recipe.records import Layout
from stepscope.run.run import Launch, Run, Timeline
from stepscope.run.samples import Samples

_LOGS = ("server.log", "server.log.gz")
_TELEMETRY = ("telemetry.csv", "telemetry.csv.gz")


def is_boot(folder: Path) -> bool:
    """Tell whether a folder holds a server's log under its usual name."""
    return _first(folder, _LOGS) is not None


def read_boot(folder: Path) -> Foreign:
    """Read a folder with ``server.log[.gz]``, and ``cmd.json`` and telemetry if there.

    Returns:
        A run with one launch and no cells; ``ready`` is what the log says.
    """
    log_file, telemetry_file = _first(folder, _LOGS), _first(folder, _TELEMETRY)
    assert log_file is not None
    files = [log_file]
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    if (folder / "cmd.json").is_file():
        files.append(folder / "cmd.json")
        command, environment = read_command(folder / "cmd.json")
    findings: list[Finding] = []
    samples = Samples()
    if telemetry_file is not None:
        files.append(telemetry_file)
        samples, findings = samples_on_unix(read_telemetry(telemetry_file), (), None)
    name = folder.resolve().name
    log = read_log(log_file, None)
    launch = Launch(
        name=f"{name}-l0",
        configuration=name,
        command=command,
        environment=environment,
    )
    launch, found = with_log(launch, log, samples, ())
    on_unix = bool(samples.gpu or samples.host)
    return Foreign(
        run=Run(
            id=name,
            engine=log.engine or "url",
            engine_version=log.version,
            timeline=Timeline(kind="unix" if on_unix else "monotonic"),
            n_gpus=len({sample.gpu for sample in samples.gpu}) or None,
            layout=layout_of(command),
            model=served_model(command),
            launches=(launch,),
            samples=samples,
            findings=(*findings, *found),
        ),
        root=folder,
        files=tuple(files),
        logs={launch.name: log_file},
    )


def layout_of(command: tuple[str, ...]) -> Layout:
    """Return the degrees of parallelism that a vLLM command asks for."""
    tp, dp, pp = (
        int(value) if value is not None and value.isdigit() else 1
        for value in (
            flag_value(command, "--tensor-parallel-size", "-tp"),
            flag_value(command, "--data-parallel-size", "-dp"),
            flag_value(command, "--pipeline-parallel-size", "-pp"),
        )
    )
    expert = "--enable-expert-parallel" in command
    return Layout(tp=tp, dp=dp, pp=pp, ep=tp * dp if expert else 1)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
