"""A tool that is run to its end, under a guard of its own like a server."""

import re
from dataclasses import dataclass
from pathlib import Path

from stepscope.errors import SessionError
from stepscope.session.context import Context
from stepscope.session.phases.boot import ending
from stepscope.session.server import ServerOrder
from stepscope.units import NS_PER_MS, ns

_POLL_NS = 20 * NS_PER_MS
_LONGEST = 300
_MOST_SAID_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOrder:
    """What to run.

    Attributes:
        command: Program and arguments.
        environment: Added to what we inherited.
        log: Receives what it prints, after what is there.
        timeout_s: How long it may take; then it is ended.
        halts: False: it is not ended early where a person asks the session to stop.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    timeout_s: float
    halts: bool = True


def run_tool(context: Context, order: ToolOrder) -> str | None:
    """Tell that a tool is run, run it and wait for its end.

    Returns:
        What went wrong, with the last line that it printed; None: exit code 0.
    """
    clock, name = context.clock, " ".join(order.command[:2])
    told = f"{Path(order.command[0]).name} {order.command[1]}"
    context.observer.note("info", told)
    before = order.log.stat().st_size if order.log.exists() else 0
    until = clock.now_ns() + ns(order.timeout_s)
    process = context.site.server(
        ServerOrder(command=order.command, environment=order.environment, log=order.log)
    )
    try:
        process.start()
        while (code := process.exit_code()) is None:
            if order.halts and context.halt.asked.is_set():
                return f"{name}: the run was stopped"
            if clock.now_ns() > until:
                return f"{name}: not done after {order.timeout_s:g} s"
            clock.sleep_until(clock.now_ns() + _POLL_NS)
    except SessionError as error:
        return str(error)
    finally:
        process.stop()
    if code == 0:
        return None
    return f"{name}: {ending(code)}: {said(order.log, before)}"


def said(log: Path, since: int = 0) -> str:
    """Return the last line that was printed into a log after ``since`` bytes."""
    with log.open("rb") as stream:
        stream.seek(max(since, log.stat().st_size - _MOST_SAID_BYTES))
        text = stream.read().decode("utf-8", "replace")
    lines = [" ".join(line.split()) for line in re.split(r"[\r\n]+", text)]
    told = [line for line in lines if line]
    return told[-1][:_LONGEST] if told else "it says nothing"
