"""What a next run would do, as needs that can be put together."""

from dataclasses import dataclass, field, replace

Flags = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Patch:
    """A configuration that the run did not have."""

    name: str
    flags: Flags = field(default_factory=dict)
    cpus: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """Needs of a next run; together they are what any of them needs.

    Attributes:
        repeats: Concurrency -> repeats in each launch.
        configurations: Names of the run's own that take part beside the baseline.
        patches: New ones.
        n_launches: Starts of each configuration.
        blocks: Warm-up blocks, at least.
        waves: Waves of a cell, at least.
        details: Whether the engine logs its iterations.
        traces: Concurrencies at which a timeline is taken.
    """

    repeats: dict[int, int] = field(default_factory=dict)
    configurations: frozenset[str] = frozenset()
    patches: tuple[Patch, ...] = ()
    n_launches: int = 1
    blocks: int = 6
    waves: int = 2
    details: bool = False
    traces: frozenset[int] = frozenset()

    def plus(self, other: "Draft") -> "Draft":
        """Return what both need."""
        sizes = sorted({*self.repeats, *other.repeats})
        names = {p.name for p in self.patches}
        return replace(
            self,
            repeats={
                c: max(self.repeats.get(c, 0), other.repeats.get(c, 0)) for c in sizes
            },
            configurations=self.configurations | other.configurations,
            patches=(
                *self.patches,
                *(p for p in other.patches if p.name not in names),
            ),
            n_launches=max(self.n_launches, other.n_launches),
            blocks=max(self.blocks, other.blocks),
            waves=max(self.waves, other.waves),
            details=self.details or other.details,
            traces=self.traces | other.traces,
        )
