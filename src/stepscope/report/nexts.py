"""What to run next, as the page and the Markdown tell it."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.analysis.records import Analysis
from stepscope.board.planning.choose import Budget
from stepscope.board.planning.plan import plan
from stepscope.board.planning.records import Candidate, Settles
from stepscope.board.records import Board
from stepscope.errors import StepscopeError
from stepscope.report.cells import UNKNOWN, shown
from stepscope.run.run import Run


@dataclass(frozen=True, slots=True)
class Measurement:
    """One next measurement, in words.

    ``alone`` is what it takes by itself, ``added`` what it adds to those above it in
    the recipe; both in minutes.
    """

    title: str
    reason: str
    decides: tuple[str, ...]
    bears_on: tuple[str, ...]
    alone: str
    added: str
    usd: str
    in_recipe: bool
    why_not: str
    command: str | None


@dataclass(frozen=True, slots=True)
class Next:
    """What to run next, or why nothing can be said.

    Attributes:
        measurements: Those in the recipe first.
        head: What the recipe takes, a sentence; empty without one.
        pace: Where the minutes are from.
        refused: Why there is no plan; empty where there is one.
        remarks: What planning has to say besides.
        left_open: What the recipe would not decide.
        fill_in: What must be filled in before the recipe runs.
        recipe: TOML; None without one.
    """

    measurements: tuple[Measurement, ...] = ()
    head: str = ""
    pace: str = ""
    refused: str = ""
    remarks: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    fill_in: tuple[str, ...] = ()
    recipe: str | None = None


def what_next(run: Run, analysis: Analysis, board: Board) -> Next:
    """Return what ``stepscope plan`` would say without a budget."""
    try:
        document = plan(run, analysis, board, Budget(None, None))
    except StepscopeError as error:
        return Next(refused=str(error))
    head = ""
    if document.recipe is not None and document.minutes is not None:
        most = document.most_minutes or document.minutes
        head = f"The recipe takes about {shown(document.minutes)} minutes"
        if document.usd is not None:
            head += f" and {document.usd:.2f} USD"
        head += f"; up to {shown(most)} where it warms up slowly."
    return Next(
        measurements=tuple(_measurement(c) for c in document.candidates),
        head=head,
        pace="; ".join(document.pace),
        remarks=tuple(f"{f.message}. {f.hint}".rstrip() for f in document.findings),
        left_open=_told(document.left_open),
        fill_in=document.fill_in,
        recipe=document.recipe,
    )


def _measurement(one: Candidate) -> Measurement:
    return Measurement(
        title=one.title,
        reason=one.reason,
        decides=_told([s for s in one.settles if s.how == "decides"]),
        bears_on=_told([s for s in one.settles if s.how == "bears-on"]),
        alone=shown(one.minutes),
        added=shown(one.added_minutes),
        usd=UNKNOWN if one.usd is None else f"{one.usd:.2f}",
        in_recipe=one.in_recipe,
        why_not=one.not_in_recipe or "",
        command=one.command,
    )


def _told(settles: Sequence[Settles]) -> tuple[str, ...]:
    """Return hypotheses with where they are open, then claims, each once.

    The ranges of one hypothesis stand together.
    """
    places: dict[str, list[str]] = {}
    for one in settles:
        if one.kind == "claim":
            continue
        low, high = one.concurrency_from, one.concurrency_to
        at = "" if low is None else f" {low}" if low == high else f" {low} to {high}"
        places.setdefault(one.what, []).append(f"{one.configuration or ''}{at}".strip())
    hypotheses = [
        f"{what} ({', '.join(w for w in dict.fromkeys(where) if w)})"
        for what, where in places.items()
    ]
    claims = [one.what for one in settles if one.kind == "claim"]
    return (*hypotheses, *dict.fromkeys(claims))
