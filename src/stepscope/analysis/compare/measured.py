"""A run as it is compared: its figures, and which of them are odd or doubtful."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope.analysis.cell.modes import SAYS
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding
from stepscope.run.run import Run

#: Findings that stay with a figure wherever it is used.
_DOUBTS = (
    "warmup-not-converged",
    "not-steady",
    "jit-during-measurement",
    "failed-requests",
    "uneven-ranks",
)
#: Findings whose cells are compared only where their point has no others.
_ANOMALOUS = frozenset({"first-run-contaminated", "stall", "ttft-not-monotone"})


def anomalous(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the cells that stalled, were contaminated or are out of order."""
    return frozenset(f.cell for f in findings if f.code in _ANOMALOUS and f.cell)


def replaceable(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the cells in which one event made some first tokens late.

    Their hint is to repeat them and not to average them in; where nothing repeats
    them they stand, since the event need not have touched the rate.
    """
    event, _ = SAYS["one event"]
    return frozenset(
        f.cell
        for f in findings
        if f.code == "bimodal-ttft" and f.cell and event in f.message
    )


def doubtful(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return what a comparison must say of the figures that it rests on."""
    return tuple(f for f in findings if f.code in _DOUBTS and f.severity != "info")


@dataclass(frozen=True, slots=True)
class Measured:
    """A run and what was computed from it.

    Attributes:
        run: The run.
        cells: Figures of its cells.
        anomalous: Cells that stalled, were contaminated or are out of order.
        label: Name of the run, unique among those that are compared.
        doubts: Findings that every figure of their launch or cell carries.
        replaceable: Cells that are left out where their point has others.
    """

    run: Run
    cells: Sequence[CellResult]
    anomalous: frozenset[str]
    label: str
    doubts: tuple[Finding, ...] = ()
    replaceable: frozenset[str] = frozenset()
