"""Where the time between two tokens goes, as parts that sum to TPOT."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepscope.analysis.across.points import readable, whole_waves
from stepscope.analysis.across.records import (
    FloorPoint,
    StackPart,
    TokenStack,
    TracedStep,
)
from stepscope.analysis.across.traces import decode_step_ms
from stepscope.analysis.records import CellResult

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
        floor: Byte floors; without one there is no such part.
        traced: Steps by timeline.
        leave_out: Names of further cells to leave out where others repeat them.
    """
    rows: dict[tuple[str, int], list[CellResult]] = defaultdict(list)
    for cell in readable(cells):
        if cell.concurrency and cell.tpot_ms.mean is not None:
            rows[cell.configuration, cell.concurrency].append(cell)
    stacks = []
    for (configuration, concurrency), members in sorted(
        rows.items(), key=lambda item: (list(rows).index(item[0]), item[0][1])
    ):
        here = [c for c in members if whole_waves(c)] or members
        here = [c for c in here if c.name not in leave_out] or here
        point = next(
            (
                p
                for p in floor
                if (p.configuration, p.concurrency) == (configuration, concurrency)
            ),
            None,
        )
        step = next(
            (
                t
                for t in traced
                if (t.configuration, t.concurrency) == (configuration, concurrency)
                and t.usable
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
    per_token = cells[0].tokens_per_step_and_sequence or 1.0
    step = min(step / max(per_token, 1.0), total)
    parts = list(_inside(step, point, traced))
    inner = min(max(server if server is not None else total, step), total)
    if inner - step >= _LEAST_SHARE * total:
        parts.append(StackPart(name="steps slower than a decode step", ms=inner - step))
    if total - inner >= _LEAST_SHARE * total:
        parts.append(StackPart(name="after the server had the token", ms=total - inner))
    parts[-1] = StackPart(
        name=parts[-1].name,
        ms=parts[-1].ms + total - sum(part.ms for part in parts),
    )
    return TokenStack(
        configuration=cells[0].configuration,
        concurrency=cells[0].concurrency or 0,
        tpot_ms=total,
        step_ms=step,
        step_source=source,
        floor_ms=None if point is None else point.floor_ms,
        parts=tuple(part for part in parts if part.ms > 0),
        traced=traced is not None and traced.match == "same",
        cells=tuple(c.name for c in cells),
    )


def _inside(
    step: float, point: FloorPoint | None, traced: TracedStep | None
) -> list[StackPart]:
    """Return the parts of the decode step itself; they sum to it."""
    parts = _floor_parts(step, point)
    left = step - sum(part.ms for part in parts)
    rank = None
    if traced is not None and traced.match == "same":
        rank = max(traced.ranks, key=lambda r: r.step_ms, default=None)
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


def _floor_parts(step: float, point: FloorPoint | None) -> list[StackPart]:
    if point is None or point.floor_ms > step:
        return []
    experts = 0.0
    if point.expert_bytes and point.bytes_per_rank:
        experts = point.floor_ms * point.expert_bytes / point.bytes_per_rank
    rest = point.floor_ms - experts
    found = [
        StackPart(name="floor: other weights and KV", ms=rest),
        StackPart(name="floor: experts", ms=experts),
    ]
    return [part for part in found if part.ms > 0]
