"""Boot: start the server and wait for its own signal, or for its end."""

import re
import signal
from pathlib import Path

import msgspec

from stepscope.archive.layout import SERVER_LOG
from stepscope.errors import SessionError
from stepscope.run.run import Launch
from stepscope.session.context import Context
from stepscope.session.server import Server
from stepscope.session.watch.sampler import Target
from stepscope.units import NS_PER_MS, ns, seconds

_POLL_NS = 100 * NS_PER_MS
_READY_TIMEOUT_S = 2.0
_TAIL_BYTES = 65_536
_LONGEST = 300
_ERROR = re.compile(
    r"\b\w*(?:Error|Exception)\b\s*:|\berror\b\s*:|\[E\]", re.IGNORECASE
)
#: What only repeats that something failed above.
_WRAPPER = re.compile(r"(?:root cause|stack trace|traceback)", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def boot(context: Context, launch: Launch, server: Server) -> tuple[Launch, str | None]:
    """Start a server and wait until it is ready.

    Returns:
        The launch as it was recorded, and why it is not ready; None: it is.
    """
    clock = context.clock
    context.observer.phase("boot", f"{launch.name}: {context.engine.name}")
    launch = msgspec.structs.replace(launch, started_at_ns=clock.now_ns())
    context.book.put_launch(launch)
    try:
        server.start()
    except SessionError as error:
        return launch, str(error)
    context.watcher.start(
        Target(
            roots=server.roots,
            role=context.engine.role,
            metrics_url=context.metrics_url,
            here=context.server_is_here,
        )
    )
    why = _awaited(context, launch, server)
    if why is None:
        launch = msgspec.structs.replace(launch, ready=True, ready_at_ns=clock.now_ns())
        took = seconds(clock.now_ns() - (launch.started_at_ns or 0))
        context.observer.note("info", f"{launch.name} is ready after {took:.1f} s")
    else:
        launch = msgspec.structs.replace(launch, exit_code=server.exit_code())
    context.book.put_launch(launch)
    return launch, why


def _awaited(context: Context, launch: Launch, server: Server) -> str | None:
    """Return why the server will not be ready; None once it is."""
    clock, engine, recipe = context.clock, context.engine, context.recipe
    log = context.launch_folder(launch) / SERVER_LOG
    url = f"{context.base_url.rstrip('/')}{engine.ready_path}"
    until = clock.now_ns() + ns(recipe.readiness_timeout_s)
    while clock.now_ns() < until:
        if context.halt.asked.is_set():
            return "interrupted while it booted"
        if context.watcher.error is not None:
            raise context.watcher.error
        code = server.exit_code()
        if code is not None:
            return f"{ending(code)} before it was ready: {last_line(log)}"
        answer = context.site.get(url, timeout_s=_READY_TIMEOUT_S)
        if not engine.boots:
            # Any answer will do: not every server has every path.
            return None if answer else f"nothing answers at {context.base_url}"
        if answer is not None and answer[0] == 200 and _says(log, engine.ready_log):
            return None
        clock.sleep_until(clock.now_ns() + _POLL_NS)
    return f"not ready after {recipe.readiness_timeout_s:g} s: {last_line(log)}"


def _says(log: Path, word: str | None) -> bool:
    if word is None:
        return True
    try:
        return word.encode() in log.read_bytes()
    except FileNotFoundError:
        return False


def ending(code: int) -> str:
    """Return an exit code in words; negative: a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def last_line(log: Path) -> str:
    """Return the last telling line of a server's log: an error before a mere line.

    It only points at the log; the boot verdict of ``stepscope log`` reads it whole.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return "there is no log"
    lines = [" ".join(_COLOUR.sub("", x).split()) for x in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [x for x in lines if _ERROR.search(x) and not _WRAPPER.search(x)]
    told = errors or lines
    return told[-1][:_LONGEST] if told else "its log is empty"
