"""The rate at which this machine's kernels read the experts, from a timeline.

A data sheet's bandwidth is reached by no kernel. Where a timeline shows how long the
kernels of the experts took, and coverage says how many bytes they read, the quotient
is what memory gives in this very step.
"""

import re
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.across.records import FloorPoint, TracedStep
from stepscope.board.opinion import seen
from stepscope.board.records import Evidence
from stepscope.board.timelines import traced
from stepscope.board.view import CellView

#: Kernels whose time is the reading of routed experts; routing, sorting and summing
#: kernels, and norms fused beside them, have other names.
_EXPERTS = re.compile(
    r"fused_moe_kernel|moe_gemm|moe_wna16|marlin_moe|grouped_?gemm|group_?gemm"
    r"|GroupProblemShape|m_grouped|bmm_.*(?:moe|dynBatch)",
    re.IGNORECASE,
)
#: A rate below this share of the data sheet's says that something else held the kernels
#: up: dividing by it would make any step look like memory traffic. Plain copies reach
#: 87 % on an H200.
_LEAST = 0.80


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes a second that memory gives.

    Attributes:
        bytes_per_s: The rate.
        evidence: Where it is from; None: the data sheet.
        name: What to call it.
    """

    bytes_per_s: float
    evidence: Evidence | None
    name: str


def read_rate(view: CellView, floor: FloorPoint) -> Rate | None:
    """Return the rate to divide a cell's bytes by.

    That of its own timeline, else the highest of the configuration's timelines, which
    makes the least of the floor, else the data sheet's.
    """
    peak = floor.bandwidth_bytes_per_s
    if peak is None:
        return None
    own = traced(view)
    steps = [own] if own is not None else list(view.analysis.traced)
    found = [
        rate
        for step in steps
        if step.configuration == view.configuration
        and (rate := _of_experts(view, step, peak)) is not None
    ]
    if not found:
        return Rate(peak, None, f"the data sheet's {peak / 1e12:.3g} TB/s")
    return max(found, key=lambda r: r.bytes_per_s)


def too_fast(view: CellView, floor: FloorPoint) -> Evidence | None:
    """Return a timeline in which experts would be read faster than memory allows.

    Then fewer bytes were read than coverage counts, or the device is another: the
    floor is too high.
    """
    peak = floor.bandwidth_bytes_per_s
    for step in view.analysis.traced:
        if peak is None or step.configuration != view.configuration:
            continue
        found = _spent(view, step)
        if found is None or found.rate <= peak:
            continue
        why = (
            f"{found.words}: {100 * found.rate / peak:.3g} % of the data sheet's"
            f" {peak / 1e12:.3g} TB/s, which no memory gives; routing is not uniform,"
            " or the device or the weights' type is another"
        )
        told = f"rate at which experts would be read at concurrency {step.concurrency}"
        return seen(view, told, found.rate / 1e12, "TB/s", why)
    return None


@dataclass(frozen=True, slots=True)
class _Spent:
    """Bytes of experts by coverage, over the time of their kernels."""

    rate: float
    words: str


def _spent(view: CellView, step: TracedStep) -> _Spent | None:
    """Return what the expert kernels of a timeline come to; None: it names none.

    Assumes: uniform routing, every expert that is hit read once, all of it.
    """
    point = next(
        (
            p
            for p in view.analysis.floor
            if p.configuration == step.configuration
            and p.concurrency == step.concurrency
        ),
        None,
    )
    if not step.usable or step.match not in ("same", "stretched") or point is None:
        return None
    spent = [
        sum(k.ms_per_step for k in rank.kernels if _EXPERTS.search(k.name))
        for rank in step.ranks
    ]
    ms = float(np.mean(spent))
    if not point.expert_bytes or ms <= 0 or view.run.layout.pp > 1:
        return None
    words = (
        f"{point.expert_bytes / 1e9:.4g} GB of experts,"
        f" {100 * (point.coverage or 1):.3g} % of them by coverage,"
        f" in {ms:.3g} ms of their kernels a step by timeline"
    )
    return _Spent(1e3 * point.expert_bytes / ms, words)


def _of_experts(view: CellView, step: TracedStep, peak: float) -> Rate | None:
    """Return the rate of the expert kernels of a timeline; None where it is no rate."""
    found = _spent(view, step)
    if found is None or not _LEAST <= found.rate / peak <= 1.0:
        return None
    rate, told = found.rate, f"at concurrency {step.concurrency}"
    item = seen(
        view,
        f"rate at which experts are read {told}",
        rate / 1e12,
        "TB/s",
        f"{found.words}: {100 * rate / peak:.3g} % of the data sheet's"
        f" {peak / 1e12:.3g} TB/s. Uniform routing is assumed",
    )
    return Rate(rate, item, f"{rate / 1e12:.3g} TB/s, measured {told}")
