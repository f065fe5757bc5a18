"""What a launch was started with, as settings that can be compared one by one."""

import re
from collections.abc import Mapping

from stepscope.run.run import Launch

_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
#: Where it listens: nothing that is measured.
_MOOT = frozenset({"host", "port"})
#: What a boot comes to on its own: figures of it, not settings.
_OUTCOMES = frozenset({"engine_init_s", "random_seed", "nccl_port", "port", "host"})

Settings = Mapping[str, str]


def settings_of(launch: Launch) -> Settings:
    """Return flags without dashes, ``env:NAME`` and ``cpus``, each as text.

    A bare switch is ``true``. Words before the first flag are one setting,
    ``program``.
    """
    found: dict[str, str] = {}
    words = list(launch.command)
    program: list[str] = []
    while words and not words[0].startswith("--"):
        program.append(words.pop(0))
    while words:
        match = _FLAG.fullmatch(words.pop(0))
        if match is None:
            continue
        name, value = match[1].replace("_", "-"), match[2]
        if value is None and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name not in _MOOT:
            found[name] = "true" if value is None else value
    found["program"] = " ".join(program)
    found |= {f"env:{name}": value for name, value in launch.environment.items()}
    if launch.cpus is not None:
        found["cpus"] = launch.cpus
    return found


def differing(a: Settings, b: Settings) -> frozenset[str]:
    """Return the names of the settings in which two launches differ."""
    return frozenset(k for k in {*a, *b} if a.get(k) != b.get(k))


def resolved_differently(a: Launch, b: Launch) -> frozenset[str]:
    """Return what the two server logs resolved to different values.

    A key that one log does not tell is no difference.
    """
    if a.log is None or b.log is None:
        return frozenset()
    one, other = a.log.resolved, b.log.resolved
    return frozenset(
        k for k in {*one} & {*other} if one[k] != other[k] and k not in _OUTCOMES
    )
