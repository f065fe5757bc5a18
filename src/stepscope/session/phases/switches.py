"""What switches a recording on and off: an engine's own profiler, or nsys."""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from stepscope.engines.definition import TraceOrder
from stepscope.engines.nsys import PROGRAM, NsysOrder
from stepscope.recipe.records import Configuration, LaunchPlan, Recipe
from stepscope.session.context import Context
from stepscope.session.phases.nsysfiles import exported
from stepscope.session.phases.tracefiles import Written, written
from stepscope.session.server import ServerOrder
from stepscope.session.tool import ToolOrder, run_tool
from stepscope.units import NS_PER_S

_START_TIMEOUT_S = 120.0
_CANCEL_TIMEOUT_S = 5.0
#: Of a shorter recording the driver may hand nsys no kernel at all, since it gives them
#: buffer by buffer: so users of its interactive form report; it was not tried here.
_NSYS_WINDOW_NS = 6 * NS_PER_S
#: nsys ends the server, and only then itself and what it was writing.
_NSYS_LINGER_S = 10.0
#: What nsys printed, in the folder of the launch.
NSYS_LOG = "nsys.log"


def order_of(
    recipe: Recipe, plan: LaunchPlan, folder: Path, version: str | None = None
) -> TraceOrder | None:
    """Return how a launch is to take timelines; None: it takes none.

    Args:
        recipe: What takes them.
        plan: The launch.
        folder: That of its timelines; no two launches have one.
        version: The engine's, where an earlier launch told it.
    """
    if not plan.traced:
        return None
    asked = recipe.tracing
    nsys = asked is not None and asked.tool == "nsys"
    return TraceOrder(
        folder=str(folder),
        version=version,
        nsys=_nsys_order(plan.configuration, folder) if nsys else None,
    )


def _nsys_order(configuration: Configuration, folder: Path) -> NsysOrder:
    # Of its own: nsys fails over what other users left in a folder that all share.
    mark = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    tmp = tempfile.gettempdir()
    return NsysOrder(
        session=f"stepscope-{mark}",
        scratch=f"{tmp}/stepscope-nsys-{mark}",
        server_tmp=configuration.environment.get("TMPDIR", tmp),
    )


def no_tool(recipe: Recipe) -> str | None:
    """Return why this machine can take no timeline for a recipe; None: it can."""
    tracing = recipe.tracing
    if tracing is None or tracing.tool != "nsys" or shutil.which(PROGRAM):
        return None
    return f"{PROGRAM} is not on PATH"


def wrapped(server: ServerOrder, trace: TraceOrder | None) -> ServerOrder:
    """Return an order for a server, in a session of nsys where one is asked for."""
    if trace is None or trace.nsys is None:
        return server
    return ServerOrder(
        command=(*trace.wrapper, *server.command),
        environment={**server.environment, **trace.nsys.environment},
        log=server.log,
        cpus=server.cpus,
        linger_s=_NSYS_LINGER_S,
        scratch=trace.nsys.scratch,
    )


class Switch(Protocol):
    """A recording's on and off.

    Attributes:
        least_window_ns: A recording of fewer nanoseconds may be empty.
        slack_ns: What a load must outlast beside the recording: the start of it.
    """

    least_window_ns: int
    slack_ns: int

    def start(self) -> str | None:
        """Begin to record; return what went wrong."""
        ...

    def stop(self) -> str | None:
        """End it; return what went wrong."""
        ...

    def cancel(self) -> None:
        """Give it up, where that takes no long waiting."""
        ...

    def written(self, n_ranks: int) -> Written:
        """Wait for its files and return them."""
        ...


def switch_of(context: Context, order: TraceOrder, launch: Path) -> Switch:
    """Return what switches recordings of a launch.

    Args:
        context: The session.
        order: How the launch was started.
        launch: Its folder.
    """
    if order.nsys is None:
        return TorchSwitch(context, order)
    return NsysSwitch(context, order.nsys, launch / NSYS_LOG)


class TorchSwitch:
    """The engine's own profiler, by HTTP."""

    least_window_ns = 0
    slack_ns = 2 * NS_PER_S

    def __init__(self, context: Context, order: TraceOrder) -> None:
        self._context, self._order = context, order
        self._folder = Path(order.folder)
        self._before = frozenset(self._folder.iterdir())

    def start(self) -> str | None:
        """Post to begin; return what went wrong."""
        profiler = self._context.engine.profiler
        assert profiler is not None
        body = profiler.start_body(self._order)
        return self._posted(profiler.start_path, body, _START_TIMEOUT_S)

    def stop(self) -> str | None:
        """Post to end; return what went wrong."""
        profiler, asked = self._context.engine.profiler, self._context.recipe.tracing
        assert profiler is not None
        assert asked is not None
        return self._posted(profiler.stop_path, b"", asked.stop_timeout_s)

    def cancel(self) -> None:
        """Do nothing: it ends with the server."""

    def written(self, n_ranks: int) -> Written:
        """Wait until the files of all ranks are whole, or no more come."""
        return written(self._context, self._folder, self._before, n_ranks)

    def _posted(self, path: str, body: bytes, timeout_s: float) -> str | None:
        """Post to the server; return what went wrong."""
        url = f"{self._context.base_url.rstrip('/')}{path}"
        self._context.observer.note("info", f"POST {path}")
        answer = self._context.site.post(url, body, timeout_s=timeout_s)
        if answer is None:
            return f"POST {path}: no answer within {timeout_s:g} s"
        if answer[0] >= 300:
            told = " ".join(answer[1].decode("utf-8", "replace").split())
            return f"POST {path}: HTTP {answer[0]} {told[:200]}".rstrip()
        return None


class NsysSwitch:
    """nsys, by commands to the session that the server is in."""

    least_window_ns = _NSYS_WINDOW_NS
    slack_ns = 4 * NS_PER_S

    def __init__(self, context: Context, order: NsysOrder, log: Path) -> None:
        self._context, self._order, self._log = context, order, log
        asked = context.recipe.tracing
        assert asked is not None
        self._timeout_s = asked.stop_timeout_s

    def start(self) -> str | None:
        """Begin to record; return what went wrong.

        A session that has ended is not told by nsys: no report is, later.
        """
        for suffix in ("nsys-rep", "qdstrm", "sqlite"):
            self._order.file(suffix).unlink(missing_ok=True)
        return self._ran(self._order.start, _START_TIMEOUT_S)

    def stop(self) -> str | None:
        """End it and wait for the report; return what went wrong."""
        return self._ran(self._order.stop, self._timeout_s)

    def cancel(self) -> None:
        """Throw it away, so that nsys does not write a report while it is ended."""
        self._ran(self._order.cancel, _CANCEL_TIMEOUT_S, halts=False)

    def written(self, n_ranks: int) -> Written:
        """Turn the report into SQLite and return both."""
        return exported(self._context, self._order, self._log, self._timeout_s)

    def _ran(
        self, command: tuple[str, ...], timeout_s: float, *, halts: bool = True
    ) -> str | None:
        return run_tool(
            self._context,
            ToolOrder(
                command=command,
                environment=self._order.environment,
                log=self._log,
                timeout_s=timeout_s,
                halts=halts,
            ),
        )
