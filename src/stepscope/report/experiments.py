"""Experiments in words: what a change moved, what that says, what it did to the board.

The page and the terminal say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.board.claims import number, span
from stepscope.board.records import Board, Chosen, ExperimentResult, Moved, Told

_OUTCOMES = {
    "longer": "moved",
    "shorter": "moved the other way",
    "unchanged": "unchanged",
    "needs-launches": "not told from noise",
}


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """One experiment.

    Attributes:
        title: What was changed, between which configurations.
        moved: A line for each workload point.
        said: What it says of causes, by itself.
        limits: What it moves besides, and what it can not see.
        chosen: What `explain` had of it, a line each; empty where nobody chose it.
    """

    title: str
    moved: tuple[str, ...]
    said: tuple[str, ...]
    limits: str
    chosen: tuple[str, ...]


def experiment_rows(board: Board) -> list[ExperimentRow]:
    """Return the experiments of a run."""
    return [
        ExperimentRow(
            title=_title(one),
            moved=tuple(_moved(one, m) for m in one.moved),
            said=_said(one),
            limits=_limits(one),
            chosen=() if one.chosen is None else _chosen(one.chosen),
        )
        for one in board.experiments
    ]


def _title(one: ExperimentResult) -> str:
    if one.heavy is None:
        return f"{one.title} ({one.light})"
    return f"{one.title}: {one.light} against {one.heavy}"


def _moved(one: ExperimentResult, moved: Moved) -> str:
    where = (
        span(moved.concurrency, moved.concurrency)
        if moved.request_rate is None
        else f"at {moved.request_rate:g} requests/s"
    )
    return (
        f"{where}: {number(moved.light_ms)} ms ({one.light}),"
        f" {number(moved.heavy_ms)} ms ({one.heavy}), {moved.delta_pct:+.3g} %:"
        f" {_OUTCOMES[moved.outcome]} ({moved.why})"
    )


def _said(one: ExperimentResult) -> tuple[str, ...]:
    decided = tuple(_told(t) for t in one.said if t.status != "standing")
    left = dict.fromkeys(
        f"{t.hypothesis} of {t.configuration}"
        for t in one.said
        if t.status == "standing"
    )
    if left:
        return (*decided, f"leaves {', '.join(left)} standing")
    if not decided and one.moved:
        return ("it decides no cause",)
    return decided


def _told(told: Told) -> str:
    text = f"{told.hypothesis} of {told.configuration} {_words(told)}"
    return f"{text} {span(told.concurrency_from, told.concurrency_to)}"


def _words(told: Told) -> str:
    status = told.status.replace("-", " ")
    if told.share_of_step_pct is None:
        return status
    bound = "at most" if told.status == "ruled-out" else "at least"
    return f"{status} ({bound} {number(told.share_of_step_pct)} % of the step)"


def _limits(one: ExperimentResult) -> str:
    if not one.moves:
        return ""
    return f"Moves: {one.moves}. Can not see: {one.cannot_see}."


def _chosen(chosen: Chosen) -> tuple[str, ...]:
    took = "" if chosen.minutes is None else f"; {chosen.minutes:.1f} minutes"
    money = "" if chosen.usd is None else f", {chosen.usd:.2f} USD"
    lines = [
        f"experiment {chosen.number}, chosen to decide {', '.join(chosen.splits)}"
        f" ({', '.join(chosen.launches)}{took}{money})"
    ]
    if chosen.failure is not None:
        return (*lines, f"it measured nothing: {chosen.failure}")
    lines += [
        f"before: {_statuses(chosen.before)}",
        f"after: {_statuses(chosen.after)}",
    ]
    lines.append(f"eliminated: {', '.join(chosen.eliminated) or 'nothing'}")
    if chosen.supported:
        lines.append(f"supported: {', '.join(chosen.supported)}")
    return tuple(lines)


def _statuses(told: Sequence[Told]) -> str:
    return "; ".join(
        f"{t.hypothesis} {_words(t)} {span(t.concurrency_from, t.concurrency_to)}"
        for t in told
    )
