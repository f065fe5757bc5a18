"""Arms whose true differences are known, and the whole way from cells to verdicts."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stepscope.analysis.compare.compare import Compared, within
from stepscope.analysis.compare.measured import Measured
from stepscope.analysis.compare.records import Comparison
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.recipe.records import Workload
from stepscope.run.run import Cell, Launch, Run, Timeline

Make = Callable[..., CellResult]
ROWS = (8, 16, 32, 64, 128, 256)


def arm(
    make: Make, configuration: str, effect: float, n: int, rng: np.random.Generator,
    *, cv: float = 0.01, session: str = "s0", rows: tuple[int, ...] = ROWS,
    launch_cv: float = 0.0, n_launches: int = 2,
) -> list[CellResult]:  # fmt: skip
    """``n`` runs a row, spread over launches that each move all rows by one factor."""
    own = rng.normal(0, launch_cv, n_launches) if launch_cv else np.zeros(n_launches)
    return [
        make(
            name=f"{configuration}-{session}-c{row}-r{i}",
            configuration=configuration,
            launch=f"{configuration}-{session}-l{i % n_launches}",
            session=session,
            concurrency=row,
            output_tokens_per_s=100
            * row
            * float(np.exp(effect + own[i % n_launches] + rng.normal(0, cv))),
        )
        for row in rows
        for i in range(n)
    ]


def run_of(cells: Sequence[CellResult], starts: Mapping[str, int] | None = None) -> Run:
    """The run that such cells come from; ``starts`` in seconds by launch."""
    launches = dict.fromkeys((c.launch, c.configuration, c.session) for c in cells)
    at = {name: 1_000_000_000 * s for name, s in (starts or {}).items()}
    return Run(
        id="made",
        engine="vllm",
        timeline=Timeline(kind="unix"),
        launches=tuple(
            Launch(
                name=name,
                configuration=configuration,
                session=session,
                ready=True,
                started_at_ns=at.get(name),
                stopped_at_ns=None if name not in at else at[name] + 60_000_000_000,
            )
            for name, configuration, session in launches
        ),
        cells=tuple(
            Cell(
                name=c.name,
                configuration=c.configuration,
                launch=c.launch,
                workload=Workload(
                    concurrency=c.concurrency,
                    n_prompts=64,
                    request_rate=c.request_rate,
                    input_tokens=c.asked_input_tokens,
                    output_tokens=c.asked_output_tokens,
                ),
            )
            for c in cells
        ),
    )


def whole(
    cells: Sequence[CellResult],
    flagged: frozenset[str] = frozenset(),
    starts: Mapping[str, int] | None = None,
) -> Compared:
    """Compare the configurations of one run with the first."""
    order = list(dict.fromkeys(c.configuration for c in cells))
    found = within(Measured(run_of(cells, starts), cells, flagged, "made"), order)
    assert found is not None
    return found


def compared(
    cells: list[CellResult], flagged: frozenset[str] = frozenset()
) -> tuple[tuple[Comparison, ...], list[Finding]]:
    """Return rows and findings."""
    found = whole(cells, flagged)
    return found.comparisons, list(found.findings)
