"""Rows that do not fit between their neighbours."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.across.groups import whole_waves
from stepscope.analysis.records import CellResult
from stepscope.findings import Finding

_ABOVE_BOTH = 1.3


def ttft_findings(cells: Sequence[CellResult]) -> list[Finding]:
    """Flag a cell whose mean TTFT lies above both neighbours in concurrency.

    TTFT can not fall as more requests share a server, so a row above the next
    higher one by 1.3 is an accident: a stall. All requests count, since a stall in
    the first wave is what it must see.
    """
    rows: dict[tuple[str, str], dict[int, list[CellResult]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for cell in cells:
        usable = cell.status == "done" and not cell.warm_up and whole_waves(cell)
        if usable and cell.concurrency and cell.ttft_ms.mean is not None:
            rows[(cell.configuration, cell.session)][cell.concurrency].append(cell)
    found = []
    for points in rows.values():
        order = sorted(points)
        typical = {
            c: float(np.median([x.ttft_ms.mean or 0.0 for x in points[c]]))
            for c in order
        }
        for at in range(1, len(order) - 1):
            low, high = typical[order[at - 1]], typical[order[at + 1]]
            for cell in points[order[at]]:
                mean = cell.ttft_ms.mean or 0.0
                if mean > _ABOVE_BOTH * max(low, high):
                    found.append(_finding(cell, low, high, order[at - 1 : at + 2]))
    return found


def _finding(
    cell: CellResult, low: float, high: float, around: Sequence[int]
) -> Finding:
    return Finding(
        code="ttft-not-monotone",
        severity="warning",
        message=f"mean TTFT {cell.ttft_ms.mean:.0f} ms at concurrency"
        f" {cell.concurrency} is above both neighbours ({low:.0f} ms at {around[0]},"
        f" {high:.0f} ms at {around[2]}): a stall, not a trend",
        hint="Measure it again; it can be no baseline of a comparison.",
        cell=cell.name,
    )
