"""One measurement on offer: what it would settle, and what a recipe needs for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from stepscope.analysis.records import Analysis
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.history import History
from stepscope.board.planning.opened import Open
from stepscope.board.planning.records import Settles
from stepscope.run.run import Run

#: What a measurement is worth that bears on a thing without deciding it.
BEARS_ON = 0.25


@dataclass(frozen=True, slots=True)
class Facts:
    """What offers are made from."""

    run: Run
    analysis: Analysis
    history: History
    opens: tuple[Open, ...]

    def hypotheses(self, *names: str) -> tuple[Open, ...]:
        """Return the open ones of these; unmeasured ranges left out.

        Void ranges too where the run is ours: the same cells would be void again.
        """
        barred = {"unmeasured", "void"} if self.history.ours else {"unmeasured"}
        return tuple(
            o
            for o in self.opens
            if o.kind == "hypothesis" and o.what in names and not o.codes & barred
        )

    def lacking(self, *codes: str) -> tuple[Open, ...]:
        """Return what lacks one of these."""
        return tuple(o for o in self.opens if o.codes & set(codes))

    def sizes(self, opens: Iterable[Open]) -> tuple[int, ...]:
        """Return the measured concurrencies at which any of these is open."""
        mine = tuple(opens)
        return tuple(c for c in self.history.sizes if any(o.covers(c) for o in mine))

    def others(self, opens: Iterable[Open]) -> frozenset[str]:
        """Return the configurations beside the baseline that these are about."""
        names = {o.configuration for o in opens if o.configuration is not None}
        return frozenset(names & set(self.history.configurations[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A measurement.

    Attributes:
        needs: What a recipe needs for it; None: no recipe can do it here.
        not_in_recipe: Why, where ``needs`` is None.
        command: How to do it by hand, or what to read.
    """

    id: str
    title: str
    reason: str
    decides: tuple[Open, ...] = ()
    bears_on: tuple[Open, ...] = ()
    needs: Draft | None = None
    not_in_recipe: str | None = None
    command: str | None = None

    def value(self, settled: frozenset[Open] = frozenset()) -> float:
        """Return what it would still be worth after ``settled``."""
        decided = sum(o.weight for o in self.decides if o not in settled)
        return decided + BEARS_ON * sum(
            o.weight for o in self.bears_on if o not in settled
        )

    def settles(self) -> tuple[Settles, ...]:
        """Return the records of what it would settle."""
        return (
            *(o.told("decides") for o in self.decides),
            *(o.told("bears-on") for o in self.bears_on),
        )


def once(sizes: Iterable[int]) -> dict[int, int]:
    """Return one repeat of each of these concurrencies."""
    return dict.fromkeys(sizes, 1)
