"""Going on with a run: the same recipe, the same clock, new names for new launches."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stepscope.archive.layout import is_run
from stepscope.archive.reader import read_records
from stepscope.archive.records import read_header
from stepscope.archive.secrets import text_without_secrets
from stepscope.clock import Clock
from stepscope.errors import RecipeError, SessionError
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import LaunchPlan, Plan
from stepscope.run.run import AppliedFix, Machine, Run
from stepscope.units import NS_PER_S, seconds

#: Wall clocks are stepped a little; a reboot moves the monotonic one by far more.
_CLOCK_SLACK_NS = 60 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """What is left of a plan.

    Attributes:
        plan: Launches with cells to measure, under names that are new to the run.
        session: Name of the session that the new launches belong to.
        n_finished: Cells that are kept, warm-ups excepted.
        run: The header, as it was written when the run began.
        fixes: What each configuration needed to boot, by its name.
    """

    plan: Plan
    session: str
    n_finished: int
    run: Run
    fixes: Mapping[str, tuple[AppliedFix, ...]] = field(default_factory=dict)


def resumed(
    plan: Plan, recipe_text: str, out: Path, clock: Clock, here: Machine
) -> Resumed:
    """Return what is left to do of the run in ``out``.

    Raises:
        RecipeError: There is no run, or its recipe differs.
        SessionError: Its instants can not go on one timeline with new ones.
    """
    if not is_run(out):
        raise RecipeError(
            str(out), "no run is here", "--resume needs one to go on with"
        )
    run = read_header(out)
    _same_recipe(plan, recipe_text, out, run)
    _same_clock(out, run, clock)
    records = read_records(out)
    done = {c.name for c in records.cells if c.status == "done"}
    known = {launch.name for launch in records.launches}
    sessions = [launch.session for launch in records.launches] or ["s0"]
    session = sessions[-1]
    if run.machine != here:
        session = f"s{len(set(sessions))}"
    left = tuple(
        _left(launch, done, known)
        for launch in plan.launches
        if any(c.wanted and c.name not in done for c in launch.cells)
    )
    measured = [c for x in plan.launches for c in x.cells if not c.warm_up]
    return Resumed(
        plan=msgspec.structs.replace(plan, launches=left),
        session=session,
        n_finished=sum(c.name in done for c in measured),
        run=run,
        fixes={x.configuration: x.applied_fixes for x in records.launches if x.ready},
    )


def _left(launch: LaunchPlan, done: set[str], known: set[str]) -> LaunchPlan:
    """Return a launch without its finished cells.

    It is another start of the server, so it gets a name and a log of its own, and so
    do its warm-ups.
    """
    suffix = _first_free(launch.name, known) if launch.name in known else ""
    cells = tuple(
        msgspec.structs.replace(
            cell,
            name=cell.name if cell.wanted else f"{cell.name}{suffix}",
            launch=f"{launch.name}{suffix}",
        )
        for cell in launch.cells
        if not cell.wanted or cell.name not in done
    )
    return msgspec.structs.replace(launch, name=f"{launch.name}{suffix}", cells=cells)


def _first_free(name: str, known: set[str]) -> str:
    number = 1
    while f"{name}-resume{number}" in known:
        number += 1
    return f"-resume{number}"


def _same_recipe(plan: Plan, recipe_text: str, out: Path, run: Run) -> None:
    given, kept = text_without_secrets(recipe_text), run.recipe_text or ""
    if given == kept or _reads_alike(plan, kept):
        return
    raise RecipeError(
        str(out),
        f"it was measured with another recipe ({_difference(kept, given)})",
        "the recipe that lies in the run directory",
        "Give that one, or another --out",
    )


def _reads_alike(plan: Plan, kept: str) -> bool:
    """Tell whether texts differ in comments and spaces alone."""
    try:
        return load_recipe(kept, "recipe.toml") == plan.recipe
    except RecipeError:
        return False


def _difference(kept: str, given: str) -> str:
    """Return the first lines that differ."""
    old, new = kept.splitlines(), given.splitlines()
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            was, now = _quoted(old[i1:i2]), _quoted(new[j1:j2])
            return f"line {i1 + 1}: {was} became {now}"
    return "its line ends"


def _quoted(lines: list[str]) -> str:
    return f"`{' '.join(lines[0].split())}`" if lines else "nothing"


def _same_clock(out: Path, run: Run, clock: Clock) -> None:
    """Refuse when the monotonic clock is not the one that the run began with."""
    then_at, then_unix = run.timeline.anchor_at_ns, run.timeline.anchor_unix_ns
    if then_at is None or then_unix is None:
        return
    now = clock.wall_anchor()
    moved = (now.unix_ns - now.monotonic_ns) - (then_unix - then_at)
    if abs(moved) > _CLOCK_SLACK_NS:
        raise SessionError(
            str(out),
            f"this machine's clocks have moved apart by {seconds(moved):.0f} s since it"
            " began (another machine, a restart or a suspend)",
            "instants of one run must lie on one clock",
            "Begin a new run with another --out",
        )
