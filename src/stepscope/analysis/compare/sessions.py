"""Which launches ran in one session, and which configurations are the same one.

A session is a machine: host, container, processors, memory, GPUs, driver and kernel.
What runs there, engine, version, arguments and environment, makes a configuration.
"""

import re
from dataclasses import dataclass

import msgspec

from stepscope.run.run import Launch, Run

#: Names that are given where nobody named a session; alone they identify nothing.
_NUMBERED = re.compile(r"s\d+")
#: Flags whose values differ from launch to launch and change nothing that is measured.
_WHERE = frozenset({"--host", "--port"})


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session over several runs.

    Attributes:
        name: Equal for two launches exactly where they ran in one session.
        known: False where nothing says on what machine it was.
        text: One line for people.
    """

    name: str
    known: bool
    text: str


def session_key(run: Run, session: str, label: str) -> SessionKey:
    """Return the session of a launch.

    Args:
        run: The run that it belongs to.
        session: The launch's own name of its session.
        label: Name of the run, unique among those that are compared.
    """
    if _is_named(run, session):
        return SessionKey(session, True, f"{session} (named by its import.toml)")
    machine = run.machine
    if machine.host is None:
        return SessionKey(f"{label}/{session}", False, "machine not recorded")
    # A resumed run moves on to s1 where the machine changed; only s0 is the header's.
    if session != "s0":
        return SessionKey(f"{label}/{session}", True, "another machine than s0's")
    gpus = ", ".join(machine.gpu_uuids or machine.gpus) or "no GPU"
    parts = [machine.host, gpus]
    parts += [f"driver {machine.driver}"] if machine.driver else []
    parts += [f"container {machine.container[:12]}"] if machine.container else []
    parts += [f"{machine.n_cpus} processors"] if machine.n_cpus else []
    parts += [f"clocks {clocks}"] if (clocks := _clocks(run)) else []
    facts = msgspec.json.encode((machine, clocks)).decode()
    return SessionKey(facts, True, ", ".join(parts))


def _is_named(run: Run, session: str) -> bool:
    """Tell whether somebody named a session.

    Numbers are given where nobody did, from s0 on: without one they are names too.
    """
    if _NUMBERED.fullmatch(session) is None:
        return True
    counted = any(launch.session == "s0" for launch in run.launches)
    return run.machine.host is None and bool(run.launches) and not counted


def _clocks(run: Run) -> str | None:
    """Return power limits and highest clocks; None where none was sampled."""
    seen = {
        (s.gpu, round(s.power_limit_w or 0), round(s.sm_clock_max_mhz or 0))
        for s in run.samples.gpu
    }
    known = sorted(x for x in seen if x[1] or x[2])
    return " ".join(f"{w} W/{mhz} MHz" for _, w, mhz in known) or None


def what_runs(run: Run, launch: Launch) -> str | None:
    """Return what tells one configuration from another over runs; None: not known.

    Host and port are left out, and the folder of the program.
    """
    if not launch.command:
        return None
    version = run.engine_version
    if version is None and launch.log is not None:
        version = launch.log.version
    program, *words = launch.command
    kept: list[str] = [program.rpartition("/")[2]]
    skip = False
    for word in words:
        flag = word.partition("=")[0]
        if skip or flag in _WHERE:
            skip = not skip and flag in _WHERE and "=" not in word
            continue
        kept.append(word)
    facts = (run.engine, version, kept, sorted(launch.environment.items()), launch.cpus)
    return msgspec.json.encode(facts).decode()
