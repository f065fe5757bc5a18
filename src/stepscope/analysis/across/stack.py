"""Where the time between two tokens goes, as parts that sum to TPOT."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.across.points import (
    readable_or_untraced,
    tokens_a_step,
    whole_waves,
)
from stepscope.analysis.across.records import (
    FloorPoint,
    StackPart,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.across.traces import decode_step_ms, is_step_of
from stepscope.analysis.floor import refuted
from stepscope.analysis.records import CellResult
from stepscope.run.stepbudget import RankBudget

#: A difference of two clocks below this share of TPOT is not told from none.
_LEAST_SHARE = 0.005


def token_stacks(
    cells: Sequence[CellResult],
    floor: Sequence[FloorPoint],
    traced: Sequence[TracedStep],
    leave_out: frozenset[str] = frozenset(),
) -> tuple[TokenStack, ...]:
    """Return the parts of TPOT at each configuration and concurrency.

    From the device outwards: bytes that must be moved (the floor, at the data sheet's
    bandwidth), what else kept the device busy and idle time by cause (timelines whose
    steps are as long as untraced ones), the rest of the decode step where no timeline
    tells, what slower steps (prefill beside decode) add to the mean, and what arose
    after the server had the token. They sum to the client's mean TPOT.

    Args:
        cells: All cells; those that can support nothing are left out.
        floor: Byte floors; without one, or where the DRAM counter refutes it, there is
            no such part.
        traced: Steps by timeline.
        leave_out: Names of further cells to leave out where others repeat them.
    """
    rows: dict[tuple[str, int], list[CellResult]] = defaultdict(list)
    for cell in readable_or_untraced(cells):
        if cell.concurrency and cell.tpot_ms.mean:
            rows[cell.configuration, cell.concurrency].append(cell)
    stacks = []
    order = list(dict.fromkeys(name for name, _ in rows))
    for (configuration, concurrency), members in sorted(
        rows.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
    ):
        here = [c for c in members if whole_waves(c)] or members
        here = [c for c in here if c.name not in leave_out] or here
        point = next(
            (
                p
                for p in floor
                if (p.configuration, p.concurrency) == (configuration, concurrency)
                and not refuted(p)
            ),
            None,
        )
        step = next(
            (
                t
                for t in traced
                if (t.configuration, t.concurrency) == (configuration, concurrency)
                and t.usable
                and all(is_step_of(t, c) for c in here)
            ),
            None,
        )
        stacks.append(_stack(here, point, step))
    return tuple(stacks)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _stack(
    cells: Sequence[CellResult], point: FloorPoint | None, traced: TracedStep | None
) -> TokenStack:
    total = _mean([c.tpot_ms.mean for c in cells])
    assert total is not None
    server = _mean([c.server_tpot_ms for c in cells])
    found = [d for c in cells if (d := decode_step_ms(c)) is not None]
    step, source = total, "TPOT"
    if found:
        step, source = float(np.mean([ms for ms, _ in found])), found[0][1]
    # Everything is told for each token of a sequence: a step may give it several.
    per_token = tokens_a_step(cells[0])
    step = min(step / per_token, total)
    floor_ms = None if point is None else point.floor_ms / per_token
    parts = list(_inside(step, _floor_parts(step, point, floor_ms), traced))
    inner = min(max(server if server is not None else total, step), total)
    if inner - step >= _LEAST_SHARE * total:
        parts.append(StackPart(name=_slower(cells), ms=inner - step))
    if total - inner >= _LEAST_SHARE * total:
        parts.append(StackPart(name="after the server had the token", ms=total - inner))
    return TokenStack(
        configuration=cells[0].configuration,
        concurrency=cells[0].concurrency or 0,
        tpot_ms=total,
        step_ms=step,
        step_source=source,
        floor_ms=floor_ms,
        parts=_closed(parts, total),
        traced=traced is not None and traced.match == "same",
        cells=tuple(c.name for c in cells),
        rank=_number(traced),
    )


def _number(traced: TracedStep | None) -> int | None:
    told = _told_rank(traced)
    several = traced is not None and traced.n_ranks > 1
    return told.rank if told is not None and several else None


def _slower(cells: Sequence[CellResult]) -> str:
    """Return what lies between two tokens beside a decode step."""
    if any(c.preemptions for c in cells):
        return "steps slower than a decode step, and waits of preempted requests"
    return "steps slower than a decode step"


def _closed(parts: Sequence[StackPart], total: float) -> tuple[StackPart, ...]:
    """Return the parts with what is too small to tell added to the largest of them.

    Not to a part of the floor: that is arithmetic.
    """
    kept = [part for part in parts if part.ms > 0]
    open_parts = [p for p in kept if not p.name.startswith("floor")] or kept
    largest = max(open_parts, key=lambda p: p.ms)
    rest = total - sum(part.ms for part in kept)
    return tuple(
        StackPart(name=p.name, ms=p.ms + rest) if p is largest else p for p in kept
    )


def _told_rank(traced: TracedStep | None) -> RankBudget | None:
    """Return the rank whose parts are told.

    All ranks of a step take as long, and what one waits another works: that which the
    others wait for sets the step.
    """
    if traced is None or traced.match != "same":
        return None
    late = [r for r in traced.ranks if r.rank == traced.straggler_rank]
    return max(late or traced.ranks, key=lambda r: r.step_ms, default=None)


def _inside(
    step: float, floor: Sequence[StackPart], traced: TracedStep | None
) -> list[StackPart]:
    """Return the parts of the decode step itself; they sum to it."""
    parts = list(floor)
    left = step - sum(part.ms for part in parts)
    rank = _told_rank(traced)
    if rank is None or rank.idle_ms is None or rank.step_ms <= 0:
        name = "decode step above the floor" if parts else "decode step"
        return [*parts, StackPart(name=f"{name}, no timeline", ms=left)]
    shrink = step / rank.step_ms
    idle = {n: (ms or 0.0) * shrink for n, ms in rank.idle_by_cause.items()}
    waits = (rank.communication_wait_ms or 0.0) * shrink
    told = sum(idle.values()) + waits
    if told > left:
        scale = left / told if told else 0.0
        idle = {name: ms * scale for name, ms in idle.items()}
        waits, told = waits * scale, left
    name = "device busy above the floor" if parts else "device busy"
    parts.append(StackPart(name=name, ms=left - told))
    parts.append(StackPart(name="waiting for other ranks", ms=waits))
    parts += [
        StackPart(name=f"idle: {name.replace('_', ' ')}", ms=ms)
        for name, ms in idle.items()
    ]
    return [part for part in parts if part.ms > 0]


def _floor_parts(
    step: float, point: FloorPoint | None, floor_ms: float | None
) -> list[StackPart]:
    if point is None or floor_ms is None or floor_ms > step:
        return []
    experts = 0.0
    if point.expert_bytes and point.bytes_per_rank:
        experts = floor_ms * point.expert_bytes / point.bytes_per_rank
    rest = floor_ms - experts
    found = [
        StackPart(name="floor: other weights and KV", ms=rest),
        StackPart(name="floor: experts", ms=experts),
    ]
    return [part for part in found if part.ms > 0]
