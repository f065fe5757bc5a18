"""What a session is, as far as the run recorded it, and where it changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.trend.records import FieldChange, IdentityChange
from stepscope.run.run import Launch, Run

#: Flags that differ from start to start and change nothing.
_PASSING = ("--port", "--host")


@dataclass(frozen=True, slots=True)
class Taken:
    """A run and when it was taken."""

    run: Run
    path: str
    at_unix_ns: int


def identity(run: Run) -> dict[str, str]:
    """Return the fields of a run's identity; what is not known is left out."""
    machine, layout = run.machine, run.layout
    fields: dict[str, object] = {
        "engine": run.engine,
        "engine version": run.engine_version,
        "model": run.model,
        "GPU": run.gpu,
        "GPUs": run.n_gpus,
        "GPU ids": ", ".join(machine.gpu_uuids),
        "driver": machine.driver,
        "host": machine.host,
        "kernel": machine.kernel,
        "container": machine.container,
        "processor": machine.cpu_model,
        "processors": machine.n_cpus,
        "memory bytes": machine.memory_bytes,
        "layout": ", ".join(
            f"{k} {getattr(layout, k)}" for k in layout.__struct_fields__
        ),
        "stepscope": run.tool_version,
    }
    for launch in run.launches:
        for name, value in _server(launch).items():
            # Later launches of a configuration may be those of a profiler, whose
            # command names a folder of the run.
            fields.setdefault(name, value)
    return {
        name: str(value) for name, value in fields.items() if value not in (None, "")
    }


def _server(launch: Launch) -> dict[str, object]:
    words = []
    skip = False
    for word in launch.command:
        if skip:
            skip = False
        elif word in _PASSING:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in _PASSING)):
            words.append(word)
    name = launch.configuration
    environment = " ".join(f"{k}={v}" for k, v in sorted(launch.environment.items()))
    return {
        f"command of {name}": " ".join(words),
        f"environment of {name}": environment,
        f"processors of {name}": launch.cpus,
    }


def identity_changes(taken: Sequence[Taken]) -> tuple[IdentityChange, ...]:
    """Return where a recorded field differs from what it last was.

    A field that a run did not record changes nothing: it is compared with the run
    that recorded it last.
    """
    last: dict[str, str] = {}
    found = []
    for one in taken:
        now = identity(one.run)
        fields = tuple(
            FieldChange(field=name, before=last[name], after=value)
            for name, value in now.items()
            if name in last and last[name] != value
        )
        if fields:
            found.append(
                IdentityChange(run=one.run.id, at_unix_ns=one.at_unix_ns, fields=fields)
            )
        last |= now
    return tuple(found)
