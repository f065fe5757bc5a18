"""A foreign server: its command and its log, placed on the Unix clock."""

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec

from stepscope.archive.logclock import (
    log_offset_ns,
    placed,
    possible_offsets_s,
    stamps_of,
    unplaced,
)
from stepscope.archive.secrets import (
    command_without_secrets,
    environment_without_secrets,
)
from stepscope.findings import Finding
from stepscope.importers.files import damaged, existing, pieces, read_bytes
from stepscope.parse.serverlog import parse_log
from stepscope.run.run import Cell, Launch
from stepscope.run.samples import Samples
from stepscope.run.serverlog import LogEvent, ServerLog
from stepscope.units import NS_PER_S

_PARSERS = frozenset({"vllm", "sglang", "llamacpp"})
#: Telemetry that outlasts the log by more does not bound the log well enough.
_LOOSE_NS = 600 * NS_PER_S
#: A statistics line may come this long after the load that it tells of.
_LATE_NS = 15 * NS_PER_S


def read_command(path: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read a ``cmd.json``: ``{"cmd": [words], "env": {name: value}}``, or the words.

    Returns:
        The command and the environment, with the values of secrets removed.

    Raises:
        ArchiveError: It is of another form.
    """
    try:
        raw: Any = json.loads(read_bytes(path))
        given = raw if isinstance(raw, dict) else {"cmd": raw}
        words = given.get("cmd")
        words = tuple(shlex.split(words)) if isinstance(words, str) else words
        command = msgspec.convert(words, tuple[str, ...])
        environment = msgspec.convert(given.get("env") or {}, dict[str, str])
    except ValueError as error:  # json's and msgspec's errors are both of this kind
        raise damaged(path, f"holds no command ({error})") from error
    return command_without_secrets(command), environment_without_secrets(environment)


def command_of(
    given: str | tuple[str, ...] | None, folder: Path, named_by: str
) -> tuple[tuple[str, ...], dict[str, str], Path | None]:
    """Return command, environment and file of a ``server_command``."""
    if given is None:
        return (), {}, None
    if isinstance(given, tuple):
        return command_without_secrets(given), {}, None
    if " " in given:
        return command_without_secrets(tuple(shlex.split(given))), {}, None
    path = existing(folder / given, named_by)
    return *read_command(path), path


def flag_value(command: tuple[str, ...], *flags: str) -> str | None:
    """Return the value of the first of ``flags`` that a command sets."""
    for word, following in zip(command, (*command, "")[1:], strict=True):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else following
    return None


def served_model(command: tuple[str, ...]) -> str | None:
    """Return the model of ``vllm serve MODEL`` or of a ``--model`` flag."""
    model = flag_value(command, "--model", "--model-path", "serve")
    return None if not model or model.startswith("-") else model


def read_log(path: Path, engine: str | None) -> ServerLog:
    """Parse a server log, plain or gzip."""
    return parse_log(pieces(path), engine if engine in _PARSERS else None)


def with_log(
    launch: Launch, log: ServerLog, samples: Samples, cells: tuple[Cell, ...]
) -> tuple[Launch, list[Finding]]:
    """Return the launch with its log, placed on the Unix clock where that is sure."""
    ready = launch.ready or any(event.kind == "ready" for event in log.events)
    offset_ns = _offset_ns(log, samples, cells)
    findings: list[Finding] = []
    if offset_ns is not None:
        log = placed(log, offset_ns)
    elif stamps_of(log):
        findings.append(unplaced(launch.name))
    failure = None if ready else "the log does not say that the server became ready"
    launch = msgspec.structs.replace(
        launch, log=log, log_offset_ns=offset_ns, ready=ready, failure=failure
    )
    return launch, findings


def _offset_ns(log: ServerLog, samples: Samples, cells: tuple[Cell, ...]) -> int | None:
    """Find what turns the log's clock into Unix time; None where it is not sure.

    What a server logs under load falls into the client's commands: that decides where
    there is such a line. Otherwise the telemetry, which is taken to cover the launch.
    """
    stamps = stamps_of(log)
    if not stamps:
        return None
    load = [
        event.at_s
        for event in log.events
        if event.at_s is not None and _under_load(event)
    ]
    starts = [c.started_at_ns for c in cells if c.started_at_ns is not None]
    ends = [c.ended_at_ns for c in cells if c.ended_at_ns is not None]
    if load and starts and ends:
        return _by_load(load, min(starts), max(ends) + _LATE_NS)
    instants = [sample.at_ns for sample in samples.gpu]
    instants += [sample.at_ns for sample in samples.host]
    if not instants:
        return None
    low, high = min(instants), max(instants)
    spare_ns = high - low - (max(stamps) - min(stamps)) * NS_PER_S
    return None if spare_ns > _LOOSE_NS else log_offset_ns(stamps, low, high)


def _under_load(event: LogEvent) -> bool:
    """Tell whether a line of figures was written while requests ran."""
    if event.kind == "iteration":
        return True
    return event.kind == "stats" and any(
        event.numbers.get(name, 0) > 0
        for name in ("n_running", "generation_tokens_per_s")
    )


def _by_load(load: list[float], low_ns: int, high_ns: int) -> int | None:
    """Return the offset that puts most of the load's lines between the bounds.

    It counts only where the next best puts less than half as many there.
    """
    scores: list[tuple[int, int]] = []
    for offset_s in possible_offsets_s(load, low_ns, high_ns):
        low, high = low_ns / NS_PER_S - offset_s - 1, high_ns / NS_PER_S - offset_s
        scores.append((sum(low <= at <= high for at in load), offset_s))
    scores.sort(reverse=True)
    (best, offset_s), (second, _) = scores[:2]
    sure = 2 * best >= len(load) and 2 * second < best
    return offset_s * NS_PER_S if sure else None
