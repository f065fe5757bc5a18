"""The largest kernels, and the largest gaps by the pair of kernels around them."""

from collections import defaultdict

import numpy as np

from stepscope.timeline.columns import KERNEL
from stepscope.timeline.device import Device, in_periods
from stepscope.timeline.host import host_activity
from stepscope.timeline.names import short_name
from stepscope.timeline.records import TopGap, TopKernel
from stepscope.units import ms

_TOP = 12
#: The host's doings are looked up for gaps longer than this, nanoseconds.
_LONG_NS = 5_000


def top_kernels(device: Device) -> tuple[TopKernel, ...]:
    """Return the kernels that took most of the trace, by short name."""
    ops, names = device.trace.ops, device.trace.names
    n = max(len(device.start), 1)
    inside = in_periods(device, ops.start_ns) & (ops.kind == KERNEL)
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    lasted = ops.end_ns - ops.start_ns
    for name in np.unique(ops.name[ops.kind == KERNEL]).tolist():
        mine = (ops.name == name) & (ops.kind == KERNEL)
        row = spent[short_name(names[name])]
        row[0] += float(lasted[mine & inside].sum())
        row[1] += float((mine & inside).sum())
        row[2] += float(lasted[mine].sum())
    order = sorted(spent.items(), key=lambda kv: -kv[1][2])[:_TOP]
    return tuple(
        TopKernel(
            name=name,
            ms_per_step=ms(row[0] / n),
            count_per_step=row[1] / n,
            total_ms=ms(row[2]),
        )
        for name, row in order
    )


def top_gaps(
    device: Device, typical: float | None, *, host: bool
) -> tuple[TopGap, ...]:
    """Return the gap pairs that cost most.

    Args:
        device: One rank.
        typical: Median gap inside a graph, nanoseconds; None where unknown.
        host: False where host times can not be set against device times.
    """
    gaps, ops, names = device.gaps, device.trace.ops, device.trace.names
    n = max(len(device.start), 1)
    inside = np.flatnonzero(in_periods(device, gaps.start_ns))
    short: dict[str, int] = {}
    of = np.array([short.setdefault(short_name(x), len(short)) for x in names] or [0])
    words = list(short)
    pair = of[ops.name[gaps.before[inside]]] * len(words)
    pair += of[ops.name[gaps.after[inside]]]
    kinds, first, kind_of = np.unique(pair, return_index=True, return_inverse=True)
    lasted = gaps.end_ns - gaps.start_ns
    total = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(total, kind_of, lasted[inside])
    found = []
    for k in np.lexsort((first, -total))[:_TOP].tolist():
        before, after = (words[i] for i in divmod(int(kinds[k]), len(words)))
        index = inside[kind_of == k]
        worst = int(index[np.argmax(lasted[index])])
        long = int(lasted[worst]) > _LONG_NS
        where = (int(gaps.start_ns[worst]), int(gaps.end_ns[worst]))
        expected = None if typical is None else ms(typical * len(index) / n)
        found.append(
            TopGap(
                before=before,
                after=after,
                count_per_step=len(index) / n,
                us_mean=float(lasted[index].mean()) / 1000,
                us_max=float(lasted[worst]) / 1000,
                ms_per_step=ms(int(lasted[index].sum()) / n),
                expected_ms_per_step=expected,
                host=host_activity(device.trace, *where) if long and host else None,
            )
        )
    return tuple(found)
