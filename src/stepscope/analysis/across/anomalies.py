"""Rows that do not fit between their neighbours."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.across.points import Shape, shape_of, whole_waves
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

_ABOVE = 1.3


def ttft_findings(cells: Sequence[CellResult]) -> list[Finding]:
    """Flag cells whose mean TTFT stands above what lies on either side.

    TTFT can not fall as more requests share a server. A row above any later row by
    1.3, and above all sound earlier rows by as much, breaks that order by itself.
    All requests count, first wave too: a stall there is what it must see. Void cells
    are no neighbours, since their stamps are the client's.

    Assumes: the same shape of requests on all rows. The first row has no left
        neighbour and the last none on its right: neither can be flagged.
    """
    rows: dict[tuple[str, str, Shape], list[CellResult]] = defaultdict(list)
    for cell in cells:
        sound = cell.valid and not cell.warm_up and whole_waves(cell)
        if sound and cell.concurrency and cell.ttft_ms.mean:
            key = (cell.configuration, cell.session, shape_of(cell))
            rows[key].append(cell)
    found = []
    for members in rows.values():
        found += _out_of_order(members)
    return found


def _out_of_order(cells: Sequence[CellResult]) -> list[Finding]:
    points: dict[int, list[CellResult]] = defaultdict(list)
    for cell in cells:
        points[cell.concurrency or 0].append(cell)
    order = sorted(points)
    typical = {c: float(np.median([_ttft(x) for x in points[c]])) for c in order}
    found = []
    sound_low = typical[order[0]]
    for at in range(1, len(order) - 1):
        here = order[at]
        later = min(order[at + 1 :], key=lambda c: typical[c])
        flagged = [
            cell
            for cell in points[here]
            if _ttft(cell) > _ABOVE * max(sound_low, typical[later])
        ]
        found += [_finding(cell, order[at - 1], later, typical) for cell in flagged]
        if not flagged:
            sound_low = max(sound_low, typical[here])
    return found


def _ttft(cell: CellResult) -> float:
    assert cell.ttft_ms.mean is not None
    return cell.ttft_ms.mean


def _finding(
    cell: CellResult, before: int, after: int, typical: dict[int, float]
) -> Finding:
    return Finding(
        code="ttft-not-monotone",
        severity="warning",
        message=f"mean TTFT {_ttft(cell):.0f} ms at concurrency {cell.concurrency},"
        f" with {typical[before]:.0f} ms at {before} and {typical[after]:.0f} ms at"
        f" {after}: an accident, not a trend",
        hint="Repeat it; its throughput and TTFT can be no baseline of a comparison."
        " Its TPOT does not hold the wait for the first token.",
        cell=cell.name,
    )
