"""B against A on each row: within a session, or through an anchor; else not at all."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stepscope.analysis.compare.spread import Spread, spread, welch
from stepscope.analysis.compare.table import Table
from stepscope.recipe.records import Workload

#: An arm in one session.
Place = tuple[str, str]
Unit = Literal["launch", "run"]
#: What starts of one command are taken to differ by where each arm had a single one,
#: as a standard deviation of logs. Nobody measured it there: a difference, or its
#: absence, counts only where it stands in spite of it. Source: docs/compare.md.
STARTS = 0.005


@dataclass(frozen=True, slots=True)
class Term:
    """One mean of a contrast: logs of its units, and how many runs are behind them."""

    place: Place
    units: tuple[float, ...]
    n_runs: int
    sound: bool

    @property
    def mean(self) -> float:
        """Mean of the units."""
        return float(np.mean(self.units))


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference of logs on one row.

    Attributes:
        a: Compared with.
        b: The other.
        row: The workload point.
        metric: What is compared.
        terms: Means that are added, then subtracted, in turn: b, a, and for an
            anchor its own in each session.
        anchor: What was measured in both sessions; None within one.
        value: log b - log a; None where it would be a raw figure of two sessions.
        error: Standard error; None without repeats.
        df: Of the error.
        starts: What starts may add to it, where no arm was started twice: assumed.
        why_not: Why there is no interval.
        raw: The value is a bare difference of two sessions of which nothing is known.
    """

    a: str
    b: str
    row: Workload
    metric: str
    terms: tuple[Term, ...]
    anchor: str | None = None
    value: float | None = None
    error: float | None = None
    df: float = 0.0
    starts: float = 0.0
    why_not: str | None = None
    raw: bool = False

    @property
    def weight(self) -> float:
        """One over the variance of the contrast in units of one unit's variance."""
        return 1 / sum(1 / len(t.units) for t in self.terms)

    @property
    def share(self) -> float:
        """Part of the variance that is not b's own."""
        return 1 - self.weight / len(self.terms[0].units)

    @property
    def sound(self) -> bool:
        """False where a mean rests on anomalous cells alone."""
        return all(t.sound for t in self.terms)

    @property
    def sessions(self) -> tuple[str, ...]:
        """Sessions of its means, a's first."""
        return tuple(dict.fromkeys(t.place[1] for t in reversed(self.terms)))


def unit_of(of: Table) -> Unit:
    """Return what repeats: launches where any arm was started more than once."""
    launches: dict[Place, set[str]] = defaultdict(set)
    for reading in of.readings:
        launches[(reading.arm, reading.session)].add(reading.launch)
    return "launch" if any(len(x) > 1 for x in launches.values()) else "run"


class Rows:
    """The readings of one metric, by place and row."""

    def __init__(self, of: Table, metric: str) -> None:
        self.unit = unit_of(of)
        self.metric = metric
        self._terms: dict[tuple[Place, Workload], Term] = {}
        self._units: dict[Place, dict[str, dict[object, float]]] = {}
        self._spreads: dict[frozenset[str], Spread | None] = {}
        values: dict[tuple[Place, Workload], dict[str, list[float]]] = {}
        sound: dict[tuple[Place, Workload], bool] = defaultdict(bool)
        for reading in of.readings:
            if metric not in reading.values:
                continue
            key = ((reading.arm, reading.session), reading.row)
            unit = reading.launch if self.unit == "launch" else reading.cell
            of_row = values.setdefault(key, {}).setdefault(unit, [])
            of_row.append(float(np.log(reading.values[metric])))
            sound[key] |= not reading.anomalous
        for (place, row), units in values.items():
            means = {name: float(np.mean(v)) for name, v in units.items()}
            self._terms[(place, row)] = Term(
                place=place,
                units=tuple(means.values()),
                n_runs=sum(len(v) for v in units.values()),
                sound=sound[(place, row)],
            )
            for name, mean in means.items():
                table = self._units.setdefault(place, {})
                table.setdefault(name, {})[row] = mean

    def term(self, place: Place, row: Workload) -> Term | None:
        """Return the mean of a place at a row; None where nothing was measured."""
        return self._terms.get((place, row))

    def rows_of(self, arm: str) -> list[Workload]:
        """Return the rows of an arm, from few requests in flight to many."""
        found = dict.fromkeys(row for (a, _), row in self._terms if a == arm)
        return sorted(found, key=lambda r: (r.concurrency or 0, r.request_rate or 0))

    def sessions_of(self, arm: str, row: Workload) -> list[str]:
        """Return where an arm was measured at a row."""
        return [s for (a, s), r in self._terms if (a, r) == (arm, row)]

    def spread(self, sessions: Sequence[str]) -> Spread | None:
        """Return how much units of these sessions vary, over all arms and rows."""
        key = frozenset(sessions)
        if key not in self._spreads:
            tables = [u for (_, s), u in self._units.items() if s in key]
            self._spreads[key] = spread(tables, nested=self.unit == "launch")
        return self._spreads[key]


def contrasts(of: Table, rows: Rows, a: str, b: str, metric: str) -> list[Contrast]:
    """Return b against a on every row that both have.

    Source: within a session the difference of mean logs. Between sessions the
        difference of two differences, each against the same configuration measured
        there: what the sessions themselves differ by falls out.
    Assumes: a session moves all configurations by one factor.
    """
    found = []
    for row in rows.rows_of(b):
        in_a, in_b = rows.sessions_of(a, row), rows.sessions_of(b, row)
        if not in_a:
            continue
        common = [s for s in in_a if s in in_b]
        if common:
            for session in common:
                terms = _terms(rows, row, ((b, session), (a, session)))
                found.append(_contrast(a, b, row, metric, terms))
            continue
        found.append(_anchored(of, rows, (a, in_a), (b, in_b), row, metric))
    changed = of.changes(a) != of.changes(b) or len(of.changes(b)) > 1
    if changed:
        why = "to boot, their servers were changed in different ways"
        return [replace(one, why_not=one.why_not or why) for one in found]
    return [with_error(one, rows) for one in found]


def _terms(rows: Rows, row: Workload, places: Sequence[Place]) -> tuple[Term, ...]:
    found = [rows.term(place, row) for place in places]
    return tuple(term for term in found if term is not None)


def _contrast(
    a: str, b: str, row: Workload, metric: str, terms: tuple[Term, ...]
) -> Contrast:
    value = sum((-1) ** i * t.mean for i, t in enumerate(terms))
    return Contrast(a, b, row, metric, terms, value=value)


def _anchored(
    of: Table,
    rows: Rows,
    left: tuple[str, list[str]],
    right: tuple[str, list[str]],
    row: Workload,
    metric: str,
) -> Contrast:
    (a, in_a), (b, in_b) = left, right
    ways = [
        (*way, anchor)
        for s in in_a
        for t in in_b
        for anchor, way in _anchors(of, rows, (a, s), (b, t), row)
    ]
    if not ways:
        terms = _terms(rows, row, ((b, in_b[0]), (a, in_a[0])))
        return Contrast(
            a, b, row, metric, terms, why_not="measured in different sessions"
        )
    # Fewest means first, then the most repeats: both make the smallest error.
    best = max(ways, key=lambda w: 1 / sum(1 / len(t.units) for t in w[0]))
    return replace(_contrast(a, b, row, metric, best[0]), anchor=best[1])


def _anchors(
    of: Table, rows: Rows, left: Place, right: Place, row: Workload
) -> Iterator[tuple[str, tuple[tuple[Term, ...]]]]:
    """Yield what both sessions measured, and the means that the contrast then has."""
    (a, s), (b, t) = left, right
    for p in of.arms:
        for q in of.arms:
            what = of.same.get((p, s))
            if what is None or what != of.same.get((q, t)):
                continue
            if rows.term((p, s), row) is None or rows.term((q, t), row) is None:
                continue
            if (p, q) == (a, b):
                continue
            places: list[Place] = [] if q == b else [(b, t), (q, t)]
            places += [] if p == a else [(p, s), (a, s)]
            yield p, (_terms(rows, row, places),)


def with_error(one: Contrast, rows: Rows) -> Contrast:
    """Return a contrast with its standard error, where repeats allow one."""
    if one.value is None:
        return one
    if rows.unit == "run":
        one = replace(one, starts=STARTS * len(one.terms) ** 0.5)
    alone = [t for t in one.terms if t.n_runs < 2]
    if alone:
        return replace(one, why_not=f"one run of {alone[0].place[0]}: no interval")
    found = rows.spread(one.sessions)
    if found is None:
        return replace(one, why_not="nothing repeats: no interval")
    sizes = [len(t.units) for t in one.terms]
    if not found.alike and min(sizes) > 1:
        variances = [float(np.var(t.units, ddof=1)) for t in one.terms]
        error, df = welch(sizes, variances)
        return replace(one, error=error, df=df)
    return replace(one, error=found.sd * float(one.weight**-0.5), df=found.df)
