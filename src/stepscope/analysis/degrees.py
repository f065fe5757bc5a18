"""What a launch itself says of its layout: one run may hold several."""

from collections.abc import Sequence

from stepscope.run.run import Launch

#: Degrees of a layout: their name in logs, and the flags that set them.
_DEGREES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tp": ("tensor", ("--tensor-parallel-size", "-tp", "--tp", "--tp-size")),
    "pp": ("pipeline", ("--pipeline-parallel-size", "-pp", "--pp", "--pp-size")),
    "dp": ("data", ("--data-parallel-size", "-dp", "--dp", "--dp-size")),
}


def told_degrees(launch: Launch) -> dict[str, int]:
    """Return the degrees of parallelism that a launch's log or command tells.

    Keys are those of ``Layout``; what nobody tells is left out.
    """
    resolved = {} if launch.log is None else launch.log.resolved
    found: dict[str, int] = {}
    for name, (kind, flags) in _DEGREES.items():
        value = resolved.get(f"{kind}_parallel_size")
        if isinstance(value, (int, float)):
            found[name] = int(value)
        elif (told := flag_of(launch.command, flags)) is not None and told.isdigit():
            found[name] = int(told)
    return found


def flag_of(command: Sequence[str], flags: Sequence[str]) -> str | None:
    """Return the value that a command gives to one of some flags; None: none."""
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag in flags and equals:
            return value
        if flag in flags and at + 1 < len(command):
            return command[at + 1]
    return None
