"""What is open: hypotheses that no measurement has decided, and claims with a hole."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stepscope.analysis.records import Analysis
from stepscope.board.holes import SETTLES
from stepscope.board.planning.records import Settles
from stepscope.board.records import Board, NotSolid

_CONCURRENCY = re.compile(r"\bconcurrency (\d+)")
_REPEATED = re.compile(r'concurrency = \["(\d+)x\d+"\]')
#: Runs or launches, and the starts that they take where that is another number.
_UNITS = re.compile(
    r"\bTake (?:(\d+) (?:runs|launches) each|repeats of both)(?:, on (\d+) starts)?"
)
#: How the board says why a hypothesis is open, beside a missing measurement.
_REASONS = {
    "Every cell here is void": "void",
    "Every cell here is void; repeat": "void",
    "Nothing of this configuration was measured": "unmeasured",
    "Repeats at this concurrency disagree": "disagree",
}

#: Findings that say of themselves what is missing -> what that is called here.
_FOUND = {
    "too-few-sizes": "sizes",
    "step-model-poor": "sizes",
    "one-launch": "one-launch",
    "cross-session": "cross-session",
    "shared-baseline": "shared-baseline",
}


@dataclass(frozen=True, slots=True)
class Open:
    """One thing that is open.

    Attributes:
        kind: Of what.
        what: Hypothesis id, or the claim.
        configuration: Whose; None for a claim about several.
        low: Least concurrency; None for an open loop or a claim about no size.
        high: Most.
        now: Status, or why the claim is not solid.
        codes: What it lacks: finding codes, ``repeat``, ``void``, ``disagree``,
            ``sizes``, ``runs``.
        sizes: Concurrencies that would have to be repeated for it.
        n_runs: Runs an arm that a comparison needs; None: nobody knows.
        n_starts: Starts of each arm that these must be on.
        weight: One, shared among the ranges in which a hypothesis is open.
    """

    kind: Literal["hypothesis", "claim"]
    what: str
    configuration: str | None
    low: int | None
    high: int | None
    now: str
    codes: frozenset[str] = frozenset()
    sizes: tuple[int, ...] = ()
    n_runs: int | None = None
    n_starts: int | None = None
    weight: float = 1.0

    def covers(self, concurrency: int) -> bool:
        """Whether it is open at this concurrency."""
        return (
            self.low is not None
            and self.high is not None
            and (self.low <= concurrency <= self.high)
        )

    def told(self, how: Literal["decides", "bears-on"]) -> Settles:
        """Return the record of it."""
        return Settles(
            kind=self.kind,
            what=self.what,
            configuration=self.configuration,
            concurrency_from=self.low,
            concurrency_to=self.high,
            now=self.now,
            how=how,
        )


def opened(analysis: Analysis, board: Board) -> tuple[Open, ...]:
    """Return everything that is open, in the board's order, each once."""
    entries = [
        Open(
            kind="hypothesis",
            what=entry.hypothesis,
            configuration=entry.scope.configuration,
            low=entry.scope.concurrency_from,
            high=entry.scope.concurrency_to,
            now=entry.status,
            codes=frozenset(
                code
                for text, code in _REASONS.items()
                if text in (entry.would_decide or "")
            ),
        )
        for entry in board.entries
        if entry.status in ("standing", "untestable")
    ]
    shared = Counter((o.what, o.configuration) for o in entries)
    weighed = [
        replace(o, weight=1 / shared[(o.what, o.configuration)]) for o in entries
    ]
    claims = [_claim(hole, analysis) for hole in board.not_solid]
    return (*weighed, *dict.fromkeys((*claims, *_found(analysis, claims))))


def _found(analysis: Analysis, claims: Sequence[Open]) -> list[Open]:
    """Return what findings leave open that no claim holds already."""
    names = dict.fromkeys(c.configuration for c in analysis.cells)
    known = {(code, o.configuration) for o in claims for code in o.codes}
    found = []
    for finding in analysis.findings:
        code = _FOUND.get(finding.code)
        name = next((n for n in names if finding.message.startswith(f"{n}:")), None)
        if code is not None and (code, name) not in known:
            what = "a step model" if code == "sizes" else "a comparison"
            found.append(
                Open(
                    kind="claim",
                    what=f"{what}{f' of {name}' if name else ''} ({finding.code})",
                    configuration=name,
                    low=None,
                    high=None,
                    now=finding.message,
                    codes=frozenset({code}),
                )
            )
    return found


def _claim(hole: NotSolid, analysis: Analysis) -> Open:
    """Read a claim: whose it is, where, and what it lacks.

    The board's texts are made of the same constants that are looked for here.
    """
    settle = hole.what_would_settle_it
    codes = {code for code, text in SETTLES.items() if f"{code}:" in hole.why}
    cell = next(
        (c for c in analysis.cells if hole.claim.endswith(f" of {c.name}")), None
    )
    sizes = [int(n) for n in _REPEATED.findall(settle)]
    said = [int(n) for n in _CONCURRENCY.findall(hole.claim)]
    if cell is not None:
        codes |= {"void", *cell.void_reasons}
        said += [cell.concurrency] if cell.concurrency else []
    if sizes:
        codes.add("repeat")
    if "Measure more concurrencies" in settle:
        codes.add("sizes")
    units = _UNITS.search(settle)
    n_runs = n_starts = None
    if units is not None:
        codes.add("runs")
        n_runs, n_starts = (None if x is None else int(x) for x in units.groups())
    names = dict.fromkeys(c.configuration for c in analysis.cells)
    return Open(
        kind="claim",
        what=hole.claim,
        configuration=cell.configuration
        if cell is not None
        else next((n for n in names if hole.claim.startswith(f"{n}:")), None),
        low=min(said, default=None),
        high=max(said, default=None),
        now=hole.why,
        codes=frozenset(codes),
        sizes=tuple(dict.fromkeys(sizes or said)),
        n_runs=n_runs,
        n_starts=n_starts or n_runs,
    )
