"""The phases of a session, in order: preflight, boot, probe, warm-up, measure, stop.

A boot or a cell that fails is recorded and the run goes on with what is left. The
server is ended however the run ends.
"""

import platform
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope import __version__
from stepscope.archive.reader import open_run
from stepscope.archive.writer import RunWriter
from stepscope.clock import Clock
from stepscope.engines.catalog import ENGINES
from stepscope.engines.definition import EngineDef
from stepscope.errors import RecipeError, SessionError
from stepscope.recipe.records import LaunchPlan, Plan, Recipe
from stepscope.run.run import Machine, Run, Timeline
from stepscope.session.launch import LaunchRunner, Tools, make_server
from stepscope.session.nvml import Gpus
from stepscope.session.observer import Observer
from stepscope.session.outcome import Outcome
from stepscope.session.preflight import free_port, preflight
from stepscope.session.sampler import Sampler
from stepscope.session.server import Server

ServerMaker = Callable[[EngineDef, Recipe, LaunchPlan, int, Path, Clock], Server]


def execute(  # noqa: PLR0913  # the one door to a session
    plan: Plan,
    recipe_text: str,
    out: Path,
    *,
    clock: Clock,
    observer: Observer,
    resume: bool = False,
    stop: threading.Event | None = None,
    server_maker: ServerMaker = make_server,
) -> Outcome:
    """Run a plan.

    Args:
        plan: Launches and cells in order.
        recipe_text: The recipe as it was given; a resumed run must have the same.
        out: The run directory.
        clock: Time.
        observer: Hears what happens.
        resume: Go on with a run that was cut short: finished cells are kept.
        stop: When set, everything ends cleanly and soon.
        server_maker: Makes the server of a launch.

    Raises:
        RecipeError: ``out`` holds something, or another recipe's run.
        SessionError: Preflight found what would make the run fail.
        OSError: The disk failed or is full.
    """
    stop = stop or threading.Event()
    recipe = plan.recipe
    engine = ENGINES[recipe.engine]
    gpus = Gpus.open()
    port = None
    if engine.boots:
        port = recipe.port or free_port(recipe.host)
    observer.phase("preflight", f"{engine.name}, {len(plan.launches)} launches")
    findings = preflight(plan, engine, out, port, gpus)
    writer = _writer(plan, recipe_text, out, clock, gpus, resume=resume)
    for finding in findings:
        writer.put_finding(finding)
        observer.note(f"{finding.severity}: {finding.message}")
    lock = threading.Lock()
    sampler = Sampler(writer, lock, clock, recipe.telemetry)
    tools = Tools(
        writer=writer, lock=lock, sampler=sampler, clock=clock, observer=observer,
        stop=stop, gpus=gpus,
    )  # fmt: skip
    done = writer.finished_cells()
    runner = LaunchRunner(tools, engine, recipe, port, server_maker, done)
    complete = False
    try:
        for launch in plan.launches:
            if stop.is_set():
                break
            runner.run(launch)
        complete = not stop.is_set() and not runner.interrupted
    finally:
        sampler.close()
        writer.close(complete)
    return Outcome(
        path=out,
        n_measured=runner.n_measured,
        failures=tuple(runner.failures),
        interrupted=stop.is_set(),
    )


def _writer(
    plan: Plan,
    recipe_text: str,
    out: Path,
    clock: Clock,
    gpus: Gpus | None,
    *,
    resume: bool,
) -> RunWriter:
    if resume:
        if not out.exists():
            raise RecipeError(str(out), "no such run", "--resume needs one to go on")
        if open_run(out).recipe_text != recipe_text:
            found = "it was measured with another recipe"
            do = "Give the recipe that lies in the run directory, or another --out"
            raise RecipeError(str(out), found, "", do)
        return RunWriter.reopen(out)
    return RunWriter.create(out, _header(plan, recipe_text, clock, gpus))


def _header(plan: Plan, recipe_text: str, clock: Clock, gpus: Gpus | None) -> Run:
    recipe = plan.recipe
    engine = ENGINES[recipe.engine]
    anchor = clock.wall_anchor()
    layout = engine.layout(plan.launches[0].configuration.flags)
    names = () if gpus is None else gpus.identities
    return Run(
        id=f"{recipe.name}-{anchor.unix_ns // 1_000_000_000}",
        engine=recipe.engine,
        timeline=Timeline(
            kind="monotonic",
            anchor_at_ns=anchor.monotonic_ns,
            anchor_unix_ns=anchor.unix_ns,
        ),
        created_unix_ns=anchor.unix_ns,
        tool_version=__version__,
        gpu=recipe.gpu or (names[0].name if names else None),
        n_gpus=layout.tp * layout.dp * layout.pp if names else 0,
        layout=layout,
        machine=_machine(gpus),
        model=engine.request_model(recipe),
        model_config=_model_config(recipe, engine),
        recipe_text=recipe_text,
        cost=recipe.cost,
    )


def _machine(gpus: Gpus | None) -> Machine:
    import psutil

    identities = () if gpus is None else gpus.identities
    return Machine(
        host=socket.gethostname(),
        kernel=platform.release(),
        cpu_model=_cpu_model(),
        n_cpus=psutil.cpu_count(),
        memory_bytes=int(psutil.virtual_memory().total),
        gpus=tuple(g.name for g in identities),
        gpu_uuids=tuple(g.uuid for g in identities),
        driver=None if gpus is None else gpus.driver,
    )


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _model_config(recipe: Recipe, engine: EngineDef) -> str | None:
    """Return config.json's text: as the recipe says, or from the model's folder."""
    if recipe.model_config:
        path = Path(recipe.model_config)
    elif engine.model_config is not None:
        return engine.model_config
    else:
        path = Path(recipe.model or "") / "config.json"
    try:
        text = path.read_text()
        msgspec.json.decode(text)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        if recipe.model_config:
            raise SessionError("model_config", str(error), "expected JSON") from error
        return None
    return text
