"""Which cells may be read together: the same configuration, session and workload."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from stepscope.analysis.cell.loop_rules import DRAIN_SHARE, drain_share
from stepscope.analysis.records import CellResult


@dataclass(frozen=True, slots=True)
class Shape:
    """What one request was asked; None where nobody says."""

    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """One workload point of one configuration in one session."""

    configuration: str
    session: str
    shape: Shape
    concurrency: int | None
    n_prompts: int | None
    request_rate: float | None = None
    #: Of an open loop: how requests come, burstiness, cap, first and last rate.
    open_loop: tuple[object, ...] = ()


def shape_of(cell: CellResult) -> Shape:
    """Return the shape of a cell's requests."""
    return Shape(cell.asked_input_tokens, cell.asked_output_tokens)


def point_of(cell: CellResult) -> Point:
    """Return the point that a cell repeats."""
    return Point(
        configuration=cell.configuration,
        session=cell.session,
        shape=shape_of(cell),
        concurrency=cell.concurrency,
        n_prompts=cell.n_prompts,
        request_rate=cell.request_rate,
        open_loop=(cell.arrival, cell.burstiness, cell.max_concurrency, cell.ramp_rps),
    )


def readable(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells that may support a figure: valid, done, no warm-ups.

    A few failed requests leave a cell readable; from one in twenty on the batch was
    another than the cell's name says.
    """
    return [
        cell
        for cell in cells
        if cell.valid and not cell.warm_up and 20 * cell.n_failed <= cell.n_requests
    ]


def figures_of(cell: CellResult) -> tuple[float | None, ...] | None:
    """Return what only a copy of a cell shares with it; None where all is round.

    No clock repeats itself to the last digit. Figures of three decimals, such as a
    source publishes, may agree by chance.
    """
    stats = (cell.tpot_ms.mean, cell.ttft_ms.mean, cell.e2el_ms.mean)
    found = (cell.output_tokens_per_s, cell.duration_s, *stats)
    told = any(v is not None and abs(1e3 * v - round(1e3 * v)) > 1e-6 for v in found)
    return found if told else None


def copies(cells: Iterable[CellResult]) -> dict[str, str]:
    """Return cells whose figures are those of another of their point, by its name."""
    seen: dict[object, str] = {}
    found = {}
    for cell in cells:
        figures = figures_of(cell)
        first = seen.setdefault((point_of(cell), figures), cell.name)
        if figures is not None and first != cell.name:
            found[cell.name] = first
    return found


def readable_or_untraced(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return readable cells, and of a configuration without any its untraced load.

    That was driven for a timeline: too short to be a measurement, yet a step's time
    stands.
    """
    found = readable(cells)
    told = {cell.configuration for cell in found}
    spare = [
        msgspec.structs.replace(cell, warm_up=False)
        for cell in cells
        if cell.capture == "untraced" and cell.configuration not in told
    ]
    return found + readable(spare)


def in_step(cell: CellResult) -> float:
    """Return the sequences in a step: in flight, less those that wait for a place."""
    slots = cell.concurrency or 1
    held = cell.mean_in_flight or slots * min(cell.occupancy or 1.0, 1.0)
    inside = cell.sequences_per_step
    return held if inside is None else min(held, inside)


def tokens_a_step(cell: CellResult) -> float:
    """Return the tokens that a step gives each sequence; 1 where nobody says."""
    return max(cell.tokens_per_step_and_sequence or 1.0, 1.0)


def whole_waves(cell: CellResult) -> bool:
    """Return True where no incomplete last wave thins the batch noticeably."""
    return drain_share(cell.waves) <= DRAIN_SHARE


def value_of(cell: CellResult, metric: str) -> float | None:
    """Return a cell's figure: a rate itself, of a distribution its mean."""
    found = getattr(cell, metric)
    if found is None or isinstance(found, float):
        return found
    return None if found.mean is None else float(found.mean)
