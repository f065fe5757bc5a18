"""Readings of one workload point: which belong together, and which are copies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from stepscope.analysis.compare.records import LeftOut
from stepscope.recipe.records import Workload

COPY = "a copy"
#: Where nobody says what was asked, mean lengths that differ by more are two points.
_SAME_LENGTH = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """One cell as a point of a comparison.

    ``counted``: mean tokens of a prompt and of an answer; None where unknown.
    ``mark``: what only a copy shares with it (``points.figures_of``).
    """

    arm: str
    session: str
    launch: str
    row: Workload
    cell: str
    values: Mapping[str, float]
    seconds: float | None
    anomalous: bool
    replaceable: bool = False
    counted: tuple[float | None, float | None] = (None, None)
    mark: tuple[float | None, ...] | None = None


def joined(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings with one row for each workload point.

    Some sources do not say what was asked: then what was counted must agree within
    5 %, and the row takes what another source of it says. Rows of which nobody says
    and that differ take their counts.
    """
    rows: dict[Workload, list[tuple[Workload, tuple[float | None, ...]]]] = {}
    found: list[tuple[Reading, Workload, int]] = []
    for one in readings:
        bare = bare_row(one.row)
        known = rows.setdefault(bare, [])
        lengths = _lengths(one.row)
        at = next(
            (
                i
                for i, (row, counted) in enumerate(known)
                if all(map(_alike, _lengths(row), counted, lengths, one.counted))
            ),
            None,
        )
        if at is None:
            at = len(known)
            known.append((one.row, one.counted))
        else:
            known[at] = (_filled(known[at][0], one.row), known[at][1])
        found.append((one, bare, at))
    return [replace(one, row=_named(rows[bare], at)) for one, bare, at in found]


def _named(
    known: Sequence[tuple[Workload, tuple[float | None, ...]]], at: int
) -> Workload:
    """Return a row that no other one is called like."""
    row, counted = known[at]
    if sum(other == row for other, _ in known) < 2:
        return row
    mean = (None if n is None else round(n) for n in counted)
    prompt, answer = (
        told if told is not None else n
        for told, n in zip(_lengths(row), mean, strict=True)
    )
    return msgspec.structs.replace(row, input_tokens=prompt, output_tokens=answer)


def _lengths(row: Workload) -> tuple[int | None, int | None]:
    return row.input_tokens, row.output_tokens


def bare_row(row: Workload) -> Workload:
    """Return a row without lengths, which some sources do not say."""
    return msgspec.structs.replace(row, input_tokens=None, output_tokens=None)


def _alike(
    asked: int | None,
    counted: float | None,
    other_asked: int | None,
    other_counted: float | None,
) -> bool:
    if asked == other_asked and asked is not None:
        return True
    if asked is not None and other_asked is not None:
        return False
    if counted is None or other_counted is None:
        return asked == other_asked
    return abs(counted - other_counted) <= _SAME_LENGTH * max(counted, other_counted)


def _filled(row: Workload, other: Workload) -> Workload:
    pairs = zip(_lengths(row), _lengths(other), strict=True)
    prompt, answer = (b if a is None else a for a, b in pairs)
    return msgspec.structs.replace(row, input_tokens=prompt, output_tokens=answer)


def without_copies(
    readings: Sequence[Reading],
) -> tuple[list[Reading], list[LeftOut]]:
    """Return the readings, each measurement once, and what was left out for that."""
    seen: dict[object, str] = {}
    kept, left = [], []
    for one in readings:
        key = (one.arm, one.session, one.row, one.mark)
        if one.mark is not None and key in seen:
            left.append(
                LeftOut(
                    cell=one.cell,
                    configuration=one.arm,
                    concurrency=one.row.concurrency,
                    reason=f"{COPY} of {seen[key]}: every figure is the same to the"
                    " last digit",
                )
            )
            continue
        seen.setdefault(key, one.cell)
        kept.append(one)
    return kept, left
