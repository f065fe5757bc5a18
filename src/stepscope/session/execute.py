"""A whole session: preflight, every launch in order, and the archive closed.

A boot or a cell that fails is recorded and the run goes on with what is left. The
server is ended however the run ends.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepscope.archive.hold import held
from stepscope.archive.writer import RunWriter
from stepscope.clock import Clock
from stepscope.engines.catalog import engine_of
from stepscope.engines.definition import EngineDef
from stepscope.errors import SessionError
from stepscope.recipe.records import Plan
from stepscope.run.run import Run
from stepscope.session.book import Book
from stepscope.session.context import Context, Doctor
from stepscope.session.datasets import with_datasets
from stepscope.session.halt import Halt
from stepscope.session.header import header, machine
from stepscope.session.nvml import Gpus
from stepscope.session.observer import Observer
from stepscope.session.phases.launch import Tally, run_launch
from stepscope.session.phases.preflight import free_port, preflight
from stepscope.session.resume import Resumed, resumed
from stepscope.session.site import LocalSite, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a session ended.

    Attributes:
        path: The run directory.
        n_measured: Cells of the plan that are measured, in earlier sessions too.
        failures: What went wrong in this one, one line each.
        interrupted: A person ended it.
    """

    path: Path
    n_measured: int = 0
    failures: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for.

    Attributes:
        plan: Launches and cells in order.
        recipe_text: The recipe as it was given; a resumed run must have the same.
        out: The run directory: new or empty, or with ``resume`` the run to go on with.
        resume: Keep finished cells and measure the others.
        doctor: Explains a boot that failed; without it none is retried.
    """

    plan: Plan
    recipe_text: str
    out: Path
    resume: bool = False
    doctor: Doctor | None = None


def execute(order: Order, *, clock: Clock, observer: Observer, halt: Halt) -> Outcome:
    """Run a plan on this machine.

    Args:
        order: What to run, and where its archive goes.
        clock: Time.
        observer: Hears what happens.
        halt: When it is asked, everything ends cleanly and soon.

    Raises:
        RecipeError: ``out`` holds something, or another recipe's run, or another
            process writes it.
        SessionError: Preflight found what would make the run fail, or the disk failed;
            what was measured is kept.
    """
    gpus = Gpus.open()
    try:
        site = LocalSite(clock, halt, gpus)
        return execute_at(site, order, clock, observer, halt)
    finally:
        if gpus is not None:
            gpus.close()


def execute_at(
    site: Site, order: Order, clock: Clock, observer: Observer, halt: Halt
) -> Outcome:
    """Do as ``execute`` does, at a site of the caller's.

    Raises:
        RecipeError: As ``execute``.
        SessionError: As ``execute``.
    """
    with _disk_errors(order.out), contextlib.ExitStack() as hold:
        if order.resume:
            hold.enter_context(held(order.out))
        left = _left_to_do(order, engine_of(order.plan.recipe), site, clock)
        return _executed(site, order, left, (clock, observer, halt), hold)


def _executed(
    site: Site,
    order: Order,
    left: Resumed,
    hands: tuple[Clock, Observer, Halt],
    hold: contextlib.ExitStack,
) -> Outcome:
    clock, observer, halt = hands
    recipe = order.plan.recipe
    engine = engine_of(recipe)
    plan, run = left.plan, left.run
    plan = with_datasets(plan)
    port = (recipe.port or free_port(recipe.host)) if engine.boots else None
    observer.phase("preflight", f"{engine.name}, launches: {len(plan.launches)}")
    findings = preflight(plan, engine, order.out, port, site.gpus)
    writer = _writer(order, run)
    if not order.resume:
        hold.enter_context(held(order.out))
    book = Book(writer, observer)
    context = Context(
        recipe=recipe,
        engine=engine,
        model_config=run.model_config,
        port=port,
        site=site,
        watcher=site.watcher(book, recipe.telemetry),
        book=book,
        clock=clock,
        observer=observer,
        halt=halt,
        doctor=order.doctor,
        fixes=dict(left.fixes),
    )
    tally = Tally(n_cells=sum(len(launch.cells) for launch in plan.launches))
    complete = False
    try:
        for finding in findings:
            book.put_finding(finding)
        for launch in plan.launches:
            if halt.asked.is_set():
                break
            run_launch(context, launch, left.session, tally)
        complete = not halt.asked.is_set()
    finally:
        writer.close(complete)
    return Outcome(
        path=order.out,
        n_measured=left.n_finished + tally.n_measured,
        failures=tuple(tally.failures),
        interrupted=halt.asked.is_set(),
    )


def _left_to_do(order: Order, engine: EngineDef, site: Site, clock: Clock) -> Resumed:
    """Return what a run that is gone on with has left, or all of a new one."""
    if order.resume:
        here = machine(site.gpus)
        return resumed(order.plan, order.recipe_text, order.out, clock, here)
    run = header(order.plan, order.recipe_text, engine, clock, site.gpus)
    return Resumed(plan=order.plan, session="s0", n_finished=0, run=run)


def _writer(order: Order, run: Run) -> RunWriter:
    if order.resume:
        return RunWriter.reopen(order.out)
    return RunWriter.create(order.out, run)


@contextlib.contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SessionError(
            str(error.filename or out),
            error.strerror or str(error),
            "a disk that takes the run",
            "What was measured is kept: make room and go on with --resume",
        ) from error
