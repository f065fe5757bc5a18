"""Two configurations of one session, with the step times that a test gives them."""

from collections.abc import Sequence
from typing import Any

import pytest

from stepscope.analysis.across.groups import repeat_groups
from stepscope.analysis.compare.compare import within
from stepscope.analysis.compare.measured import Measured
from stepscope.analysis.records import Analysis, CellResult
from stepscope.run.run import Cell, Launch, Machine, Run

Bench = Any  # tests/board/conftest.py


class Two:
    """Builds a run of ``base`` and ``other`` and what was computed from it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def of(
        self,
        base_ms: Sequence[float],
        other_ms: Sequence[float],
        *,
        base: dict[str, Any] | None = None,
        other: dict[str, Any] | None = None,
        cells: dict[str, Any] | None = None,
        launches: bool = False,
        **run: Any,
    ) -> tuple[Run, Analysis]:
        """Return a run and its analysis.

        Args:
            base_ms: TPOT of each cell of the baseline.
            other_ms: Of the other configuration.
            base: Fields of the baseline's launches.
            other: Fields of the other's.
            cells: Fields of all results; ``{name}_`` prefixes are for one side.
            launches: Each cell on a launch of its own.
        """
        made: list[CellResult] = []
        records: list[Cell] = []
        starts: list[Launch] = []
        sides = (("base", base_ms, base or {}), ("other", other_ms, other or {}))
        for side, values, fields in sides:
            for i, ms in enumerate(values):
                launch = f"{side}-l{i if launches else 0}"
                name = f"{side}-c16-r{i}"
                mine = {
                    k.removeprefix(f"{side}_"): v
                    for k, v in (cells or {}).items()
                    if not k.startswith(("base_", "other_")) or k.startswith(f"{side}_")
                }
                given = {
                    "name": name,
                    "configuration": side,
                    "launch": launch,
                    "repeat": i,
                    "tpot_ms": self.bench.stats(ms),
                    "engine_step_ms": ms,
                    "server_tpot_ms": ms,
                    "output_tokens_per_s": 16_000 / ms,
                    "batch_means_error_pct": 1.0,
                }
                made.append(self.bench.result(**{**given, **mine}))
                records.append(self.bench.cell(name, configuration=side, launch=launch))
                if not any(x.name == launch for x in starts):
                    starts.append(
                        self.bench.launch(
                            **{"name": launch, "configuration": side, **fields}
                        )
                    )
        built = self.bench.run(
            cells=tuple(records),
            launches=tuple(starts),
            **{"machine": Machine(n_cpus=16), **run},
        )
        compared = within(Measured(built, made, frozenset(), "r"), ["base", "other"])
        assert compared is not None
        return built, Analysis(
            cells=tuple(made),
            comparisons=compared.comparisons,
            groups=repeat_groups(made, frozenset()),
        )


@pytest.fixture
def two(bench: Bench) -> Two:
    return Two(bench)
